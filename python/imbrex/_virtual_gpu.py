# SPDX-License-Identifier: Apache-2.0
"""The virtual GPU and its reports."""
from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from . import _checking, _display, _imbrex
from ._imbrex import Report
from ._kernel import Kernel

Extents = int | Sequence[int]


def _extents(given: Extents | None) -> list[int]:
    if given is None:
        return []
    return [given] if isinstance(given, int) else [int(extent) for extent in given]


def _ptx_of(given: str | os.PathLike) -> tuple[str, str]:
    """PTX text and what to call it: `given` is the text, or a file."""
    if isinstance(given, str) and "\n" in given:
        return given, "kernel.ptx"
    with open(given, encoding="utf-8") as file:
        return file.read(), os.fspath(given)


class VirtualGpu:
    """A GPU that runs PTX on the CPU, and says what is wrong with it.

    >>> gpu = imbrex.VirtualGpu("sm_90a")
    >>> report = gpu.run("saxpy.ptx", grid=8, block=128, arguments=[1000, 2.0, x, y])
    >>> report.findings
    []

    target: "sm_80", "sm_90a", "sm_100a", ...
    seed: of interleaving and of the order in which asynchronous operations end; 0 is a plain fair order.
    checks: "on" or "off"; "all" is the same as "on".
    strict: False makes notes of what every chip does right though PTX leaves it undefined (docs/checkers.md), as suits
        PTX of other people; they are in the report's `notes`.
    budget: warp instructions of a cluster before it counts as endless; 0 is 2**40.

    Raises LaunchError for an unknown target.
    """

    def __init__(self, target: str = "sm_100a", *, seed: int = 0, checks: str = "on", strict: bool = True, budget: int = 0):
        self.device = _imbrex.Device.virtual(target, seed=seed, checks=checks, budget=budget, strict=strict)

    @property
    def target(self) -> str:
        return self.device.target

    def run(
        self,
        kernel: Kernel | str | os.PathLike,
        grid: Extents | None = None,
        block: Extents | None = None,
        arguments: Sequence[Any] = (),
        *,
        entry: str = "",
        cluster: Extents | None = None,
        shared_bytes: int = 0,
        cooperative: bool = False,
    ) -> Report:
        """Runs a kernel to its end, or to where it cannot go on, and reports. What it wrote is in the arrays afterwards.

        kernel: PTX text, a PTX file, or an imbrex.Kernel, which knows its grid and block itself.
        grid, block, cluster: CTAs, threads of a CTA, CTAs of a cluster; an int, or x, y, z.
        arguments: for a pointer an array of the host; for a number an int, a float (of 4 or 8 bytes, as the parameter
            has), a NumPy scalar, or bytes. A read-only array is not written back.
        entry: the kernel's name, where the PTX has several.
        shared_bytes: of dynamic shared memory.
        cooperative: all CTAs are resident at once, as grid.sync() needs.

        Raises LaunchError for a launch that a GPU would refuse, ParseError for PTX that does not parse. What the
        kernel does wrong raises nothing: it is in the report.
        """
        if isinstance(kernel, Kernel):
            if grid is not None or block is not None:
                raise _imbrex.LaunchError(
                    f"{kernel.name}: grid and block were given\n  help: a Kernel computes them; leave them out"
                )
            report = kernel._launch(arguments, self.device)
        else:
            text, name = _ptx_of(kernel)
            if grid is None or block is None:
                missing = "grid" if grid is None else "block"
                raise _imbrex.LaunchError(f"{name}: {missing} is missing\n  help: PTX does not say it: pass {missing}=")
            module = _imbrex.PtxModule(self.device, text, name)
            report = module.launch(
                entry,
                _extents(grid),
                _extents(block),
                list(arguments),
                cluster=_extents(cluster),
                shared_bytes=shared_bytes,
                cooperative=cooperative,
            )
        _checking.saw(report)
        return report

    def __repr__(self) -> str:
        return f"<virtual GPU of {self.target}>"


Report._repr_html_ = _display.report_html
_imbrex.Finding._repr_html_ = _display.finding_html
