# SPDX-License-Identifier: Apache-2.0
"""Kernels: compiled from C++ sources, or of the library."""
from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

from . import _checking, _display, _imbrex


def _settings(text: str) -> dict[str, Any]:
    """{"block_m": 128} of "block_m=128"."""

    def value(word: str):
        if word in ("true", "false"):
            return word == "true"
        for kind in (int, float):
            try:
                return kind(word)
            except ValueError:
                pass
        return word

    return {name: value(word) for name, word in (setting.split("=", 1) for setting in text.split())}


def _text(settings: Mapping[str, Any]) -> str:
    def word(value):
        return ("true" if value else "false") if isinstance(value, bool) else str(value)

    return " ".join(f"{name}={word(value)}" for name, value in settings.items())


class Kernel:
    """A kernel in C++: a struct whose operator() is traced (docs/guide.md).

    >>> scale = imbrex.Kernel("scale.cpp", "Scale", block=256)
    >>> scale(n, 2.0, x, y)

    source: a file, or the C++ itself (a str with line breaks).
    name: the struct, with its namespace and template arguments.
    members: values for members of the struct.
    flags: for the compiler, such as "-I/opt/kernels".
    autotune: the first call of each shape tries every configuration of the tuning space on the call's own arguments,
        which it leaves as they were, and the winner is kept; see also tune().

    The system's compiler ($CXX, c++, g++ or clang++; GCC 12 or Clang 14 and later) compiles the source once; the result
    is kept by content, in IMBREX_CACHE_DIR or ~/.cache/imbrex. CompileError has the compiler's words.
    """

    def __init__(
        self,
        source: str | os.PathLike,
        name: str,
        *,
        flags: str | list[str] = (),
        autotune: bool = False,
        **members: Any,
    ):
        from . import _plugin

        path = _plugin.build(source, name, tuple(members), flags.split() if isinstance(flags, str) else list(flags))
        self._kernel = _imbrex.Kernel.plugin(path, members)
        self._kernel.set_autotuned(autotune)
        self._sizes = None

    @classmethod
    def _of(cls, kernel, sizes=None) -> Kernel:
        made = cls.__new__(cls)
        made._kernel = kernel
        made._sizes = sizes
        return made

    @property
    def name(self) -> str:
        return self._kernel.name

    @property
    def target(self) -> str:
        """What it is compiled for: "sm_80", "sm_90a", ..."""
        return self._kernel.target

    @property
    def configuration(self) -> dict[str, Any]:
        """The values of the members that its tuning space names."""
        return _settings(self._kernel.configuration)

    @property
    def space(self) -> list[dict[str, Any]]:
        """Every configuration of its tuning space; the first is the default."""
        return [_settings(text) for text in self._kernel.space]

    def configured(self, **members: Any) -> Kernel:
        """The kernel with other values for members of its tuning space."""
        return self._of(self._kernel.configured(_text({**self.configuration, **members})), self._sizes)

    def __call__(self, *arguments: Any) -> None:
        """Launches with one argument for each parameter of operator(), in order: arrays for pointers, numbers, and for
        element types "float16" or a dtype of NumPy or torch.

        On a CUDA GPU the call does not wait. Arrays of the host run on the virtual GPU of the kernel's target, and
        FindingError says what it found. Raises LaunchError naming the argument for what does not fit, CompileError for
        a kernel that cannot be compiled with these arguments. The first call with new compile-time arguments compiles.
        """
        self._kernel(*arguments)

    def _launch(self, arguments, device=None, *, timed=False, target=""):
        return self._kernel.launch(*arguments, device=device, target=target, timed=timed)

    def run(self, *arguments: Any, seed: int = 0, checks: str = "on"):
        """Runs on the virtual GPU and gives the report, findings or not: see VirtualGpu.run."""
        report = self._launch(arguments, _imbrex.Device.virtual(self.target, seed=seed, checks=checks))
        _checking.saw(report)
        return report

    def prepare(self, *arguments: Any) -> None:
        """Compiles and loads what a call with these arguments needs, so that it can be recorded into a CUDA graph."""
        self._kernel.prepare(*arguments)

    def ir(self, *arguments: Any, after: str = "trace") -> _display.Code:
        """The IR after a pass: "trace" before any, "" after all. Arrays may be None."""
        return _display.Code(self._kernel.ir(*arguments, after=after))

    def ptx(self, *arguments: Any, target: str = "") -> _display.Code:
        """The PTX, for the kernel's own target or another. Arrays may be None."""
        return _display.Code(self._kernel.ptx(*arguments, target=target))

    def timeline(self, *arguments: Any, cta: int = 0) -> _display.Timeline:
        """Runs on the virtual GPU and predicts where the time goes on the chip (docs/timeline.md). `cta`: whose lanes
        are drawn, with those of its cluster."""
        device = _imbrex.Device.virtual(self.target, checks="off", timeline=True, cta=cta)
        return _display.Timeline(self._launch(arguments, device))

    def explain(self, **sizes: int) -> _display.Page:
        """The page of `imbrex explain` about a registered kernel: tiles, traffic, roofline, occupancy, timeline, code."""
        if self._sizes is None:
            raise _imbrex.LaunchError(
                f"{self.name}: only a registered kernel has a problem to explain\n"
                "  help: use imbrex.kernels['softmax'], or register yours: see KernelRegistration in docs/guide.md"
            )
        import tempfile

        with tempfile.TemporaryDirectory() as folder:
            page = os.path.join(folder, "page.html")
            words = ["imbrex", "explain", self._sizes[0], "-o", page]
            for name, value in sizes.items():
                words += [f"--{name}", str(value)]
            if self.configuration:
                words += ["--config", _text(self.configuration).replace(" ", ",")]
            if _imbrex.command(words) == 2:
                raise _imbrex.LaunchError(f"{self.name} cannot be explained with {sizes}; see the messages above")
            with open(page, encoding="utf-8") as file:
                return _display.Page(file.read())

    def tune(self, *arguments: Any, seconds: float = 60.0, repeats: int = 20) -> Kernel:
        """The kernel with the fastest configuration of its space for such a call.

        On a CUDA GPU each configuration is launched in the arrays given, `repeats` times, and judged by the median
        time; on the virtual GPU by the predicted time. One that does not compile, or whose results in the arrays differ
        from the default's by more than rounding, is left out. After `seconds` the best so far is taken. The results of
        all are in `tuned` of the kernel returned: (configuration, microseconds or the reason it was left out).
        """
        if len(self._kernel.space) < 2:
            return self
        import time

        from ._tune import compare

        tuned, best, until = [], None, time.monotonic() + seconds
        for text in self._kernel.space:
            if best is not None and time.monotonic() > until:
                break
            kernel = self._of(self._kernel.configured(text), self._sizes)
            try:
                microseconds = kernel._time(arguments, repeats)
                if best is None:
                    expected = compare(arguments)
                elif not expected.same(arguments):
                    tuned.append((kernel.configuration, "its results differ from the default configuration's"))
                    continue
            except (_imbrex.CompileError, _imbrex.LaunchError, _imbrex.FindingError) as error:
                tuned.append((kernel.configuration, str(error)))
                continue
            tuned.append((kernel.configuration, microseconds))
            if best is None or microseconds < best[0]:
                best = microseconds, kernel
        if best is None:
            raise _imbrex.LaunchError(f"{self.name}: no configuration runs\n  " + "\n  ".join(str(t) for t in tuned))
        best[1].tuned = tuned
        return best[1]

    def _time(self, arguments, repeats: int) -> float:
        import statistics

        report = self._launch(arguments)
        if report.clean and report.statistics["ctas"]:
            device = _imbrex.Device.virtual(self.target, checks="off", timeline=True, cta=0)
            return self._launch(arguments, device).predicted_microseconds
        if not report.clean:
            raise _imbrex.FindingError(str(report))
        return 1000 * statistics.median(
            self._launch(arguments, timed=True).milliseconds for _ in range(repeats)
        )

    def __repr__(self) -> str:
        configuration = self._kernel.configuration
        return f"<Kernel {self.name}{' ' if configuration else ''}{configuration}, {self.target}>"


class _UnknownKernel(KeyError):
    """Shown as the words it was given, where KeyError shows them quoted."""

    def __str__(self) -> str:
        return self.args[0]


class _Registered(Mapping):
    """The kernels of the library, by name: imbrex.kernels["softmax"]."""

    def __getitem__(self, name: str) -> Kernel:
        try:
            kernel = _imbrex.Kernel.registered(name, "")
        except _imbrex.LaunchError as error:
            raise _UnknownKernel(str(error)) from None
        _, _, sizes = _imbrex.registered_kernels()[name]
        return Kernel._of(kernel, (name, sizes))

    def __iter__(self) -> Iterator[str]:
        return iter(_imbrex.registered_kernels())

    def __len__(self) -> int:
        return len(_imbrex.registered_kernels())

    def __contains__(self, name) -> bool:
        return name in _imbrex.registered_kernels()

    def __repr__(self) -> str:
        return "\n".join(f"{name:28}{facts[1]:9}{facts[0]}" for name, facts in _imbrex.registered_kernels().items())


kernels = _Registered()
