# SPDX-License-Identifier: Apache-2.0
# By python -m nanobind.stubgen -m imbrex._imbrex, which leaves out the errors.
from collections.abc import Sequence

from imbrex import (
    CompileError as CompileError,
    DeviceError as DeviceError,
    Error as Error,
    FindingError as FindingError,
    InternalError as InternalError,
    LaunchError as LaunchError,
    ParseError as ParseError
)


class Error(Exception): ...

class CompileError(Error): ...

class LaunchError(Error, ValueError): ...

class DeviceError(Error, RuntimeError): ...

class ParseError(Error, ValueError): ...

class FindingError(DeviceError):
    report: Report

class InternalError(Exception): ...

class Place:
    """A line of the kernel's source and of its PTX."""

    @property
    def file(self) -> str:
        """The kernel's source, or '' where the PTX names none."""

    @property
    def line(self) -> int:
        """Line of `file`, from 1."""

    @property
    def ptx_line(self) -> int:
        """Line of the PTX text, from 1."""

    @property
    def ptx(self) -> str:
        """The instruction, as written."""

    @property
    def function(self) -> str: ...

class Actor:
    """Who did it: a thread, or the asynchronous unit that works for it."""

    @property
    def cta(self) -> tuple: ...

    @property
    def warp(self) -> int:
        """Warp of the CTA; -1 where no single one is meant."""

    @property
    def lane(self) -> int:
        """Lane of the warp; -1 where the whole warp is meant."""

    @property
    def unit(self) -> str:
        """'' for a thread; else 'TMA', 'tensor core', ..."""

class Finding:
    """One thing that is wrong with a kernel (docs/checkers.md)."""

    @property
    def kind(self) -> str:
        """'race', 'out-of-bounds', 'deadlock', ..."""

    @property
    def severity(self) -> str:
        """'finding', or 'note': undefined by the letter of PTX, and right on every chip."""

    @property
    def rule(self) -> str:
        """The rule of PTX that libraries bend, such as 'equal-values', or ''."""

    @property
    def message(self) -> str:
        """One line: what happened, with the numbers."""

    @property
    def place(self) -> Place: ...

    @property
    def actor(self) -> Actor: ...

    @property
    def other_place(self) -> object:
        """Of a race: the other access; else None."""

    @property
    def address(self) -> int: ...

    @property
    def facts(self) -> list[str]: ...

    @property
    def hint(self) -> str:
        """The remedy, or ''."""

    @property
    def count(self) -> int:
        """How many times it happened."""

    def __str__(self) -> str: ...

    def __repr__(self) -> str: ...

class Report:
    """What is known after a launch on the virtual GPU."""

    @property
    def notes(self) -> list[Finding]:
        """What is a note, and no finding: none where the virtual GPU is strict."""

    @property
    def clean(self) -> bool:
        """The kernel ran to its end and nothing was found."""

    @property
    def findings(self) -> list[Finding]: ...

    @property
    def completed(self) -> bool:
        """Every thread ran to its end, findings or not."""

    @property
    def output(self) -> str:
        """What the kernel printed by printf."""

    @property
    def milliseconds(self) -> float:
        """Wall-clock time of the run on the virtual GPU."""

    @property
    def kernel(self) -> str: ...

    @property
    def statistics(self) -> dict:
        """
        What was counted, as a dict: ctas, instructions, global_bytes_read, tensor_flops, ...
        """

    @property
    def has_timeline(self) -> bool: ...

    @property
    def predicted_microseconds(self) -> object:
        """
        The time on the real chip by the cost model, where a timeline was asked for; else None.
        """

    def timeline_svg(self) -> str:
        """
        The predicted timeline as a picture (docs/timeline.md). Raises LaunchError where none was asked for.
        """

    def __str__(self) -> str: ...

    def __repr__(self) -> str: ...

class Device:
    """A GPU: a CUDA one, or the virtual GPU."""

    @staticmethod
    def virtual(target: str, *, seed: int = 0, checks: str = 'on', budget: int = 0, timeline: bool = False, cta: int = -1, strict: bool = True) -> Device: ...

    @staticmethod
    def cuda(ordinal: int = 0) -> Device: ...

    @property
    def is_virtual(self) -> bool: ...

    @property
    def name(self) -> str: ...

    @property
    def target(self) -> str: ...

    @property
    def multiprocessors(self) -> int: ...

    def can_run(self, target: str) -> bool: ...

    def synchronize(self) -> None: ...

    def __repr__(self) -> str: ...

def has_cuda() -> bool: ...

def set_default_virtual_gpu(target: str, device: Device | None) -> None: ...

class PtxModule:
    def __init__(self, device: Device, ptx: str, name: str = 'module.ptx') -> None: ...

    @property
    def kernels(self) -> list[str]: ...

    def launch(self, kernel: str, grid: Sequence[int], block: Sequence[int], arguments: Sequence, *, cluster: Sequence[int] = [], shared_bytes: int = 0, cooperative: bool = False) -> Report: ...

class Kernel:
    @staticmethod
    def registered(arg0: str, arg1: str, /) -> Kernel: ...

    @staticmethod
    def plugin(arg0: str, arg1: dict, /) -> Kernel: ...

    def configured(self, arg: str, /) -> Kernel: ...

    @property
    def name(self) -> str: ...

    @property
    def target(self) -> str: ...

    @property
    def configuration(self) -> str: ...

    @property
    def space(self) -> list[str]: ...

    def launch(self, *arguments, device: object | None = None, target: str = '', timed: bool = False) -> Report: ...

    def __call__(self, *args) -> None: ...

    def set_autotuned(self, arg: bool, /) -> None: ...

    def prepare(self, *args) -> None: ...

    def ir(self, *arguments, after: str = 'trace', target: str = '') -> str: ...

    def ptx(self, *arguments, target: str = '') -> str: ...

def pass_names() -> list[str]: ...

def registered_kernels() -> dict: ...

def attention_forward(q: object, k: object, v: object, *, causal: bool = False, scale: float | None = None) -> tuple: ...

def attention_backward(grad: object, q: object, k: object, v: object, o: object, log_sum_exp: object, *, causal: bool = False, scale: float | None = None) -> tuple: ...

def matmul_operator(a: object, b: object, bias: object | None = None, activation: object | None = None, alpha: float = 1.0, beta: float = 0.0, residual: object | None = None, out_dtype: object | None = None, scale_a: object | None = None, scale_b: object | None = None) -> object: ...

def matmul(a: object, b: object, out: object | None = None, bias: object | None = None, activation: object | None = None, alpha: float = 1.0, beta: float = 0.0, residual: object | None = None, out_dtype: object | None = None, scale_a: object | None = None, scale_b: object | None = None, target: str = 'sm_90a') -> object: ...

def softmax(x: object, *, out: object | None = None, target: str = 'sm_90a') -> object: ...

def layer_norm(x: object, weight: object, bias: object, eps: float = 9.999999747378752e-06, *, out: object | None = None, target: str = 'sm_90a') -> object: ...

def attention(q: object, k: object, v: object, *, causal: bool = False, scale: float | None = None, out: object | None = None, target: str = 'sm_90a') -> object: ...

def version() -> str: ...

def describe(arg: object, /) -> str: ...

def command(arg: Sequence[str], /) -> int: ...
