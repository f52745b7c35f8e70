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

def matmul(a: object, b: object, out: object | None = None, bias: object | None = None, activation: object | None = None, alpha: float = 1.0, beta: float = 0.0, residual: object | None = None, out_dtype: object | None = None, scale_a: object | None = None, scale_b: object | None = None, target: str = 'sm_90a') -> object: ...

def matmul_operator(a: object, b: object, bias: object | None = None, activation: object | None = None, alpha: float = 1.0, beta: float = 0.0, residual: object | None = None, out_dtype: object | None = None, scale_a: object | None = None, scale_b: object | None = None) -> object: ...

def attention(q: object, k: object, v: object, alibi_slopes: object | None = None, sinks: object | None = None, q_begins: object | None = None, kv_begins: object | None = None, q_scales: object | None = None, k_scales: object | None = None, v_scales: object | None = None, *, causal: bool = False, scale: float | None = None, window_left: int = -1, window_right: int = -1, prefix: int = 0, soft_cap: float = 0.0, deterministic: bool = True, out_dtype: object | None = None, out: object | None = None, target: str = 'sm_90a') -> object: ...

def attention_decode(q: object, k: object, v: object, lengths: object | None = None, page_table: object | None = None, alibi_slopes: object | None = None, sinks: object | None = None, k_scales: object | None = None, v_scales: object | None = None, *, causal: bool = False, scale: float | None = None, window_left: int = -1, soft_cap: float = 0.0, parts: int = 0, out: object | None = None, target: str = 'sm_90a') -> object: ...

def attention_latent_decode(q: object, cache: object, lengths: object | None = None, page_table: object | None = None, alibi_slopes: object | None = None, sinks: object | None = None, *, value_size: int = 512, causal: bool = False, scale: float | None = None, window_left: int = -1, soft_cap: float = 0.0, parts: int = 0, out: object | None = None, target: str = 'sm_90a') -> object: ...

def attention_forward(q: object, k: object, v: object, alibi_slopes: object | None = None, sinks: object | None = None, q_begins: object | None = None, kv_begins: object | None = None, *, causal: bool = False, scale: float | None = None, window_left: int = -1, window_right: int = -1, prefix: int = 0, soft_cap: float = 0.0, deterministic: bool = True) -> tuple: ...

def attention_backward(grad: object, q: object, k: object, v: object, o: object, log_sum_exp: object, alibi_slopes: object | None = None, sinks: object | None = None, q_begins: object | None = None, kv_begins: object | None = None, *, causal: bool = False, scale: float | None = None, window_left: int = -1, window_right: int = -1, prefix: int = 0, soft_cap: float = 0.0, deterministic: bool = True) -> tuple: ...

def gated_matmul(a: object, b: object, up: object, activation: object | None = 'silu', out_dtype: object | None = None, scale_a: object | None = None, scale_b: object | None = None, *, out: object | None = None, target: str = 'sm_90a') -> object: ...

def quantised_matmul(a: object, b: object, up: object | None = None, *, block: int = 128, activation: object | None = None, scale_a: object | None = None, scale_b: object | None = None, target: str = 'sm_90a') -> tuple: ...

def grouped_matmul(a: object, b: object, rows: object, masked: bool = False, out_dtype: object | None = None, scale_a: object | None = None, scale_b: object | None = None, *, out: object | None = None, target: str = 'sm_90a') -> object: ...

def grouped_matmul_rows_gradient(grad: object, b: object, rows: object, masked: bool = False) -> object: ...

def grouped_matmul_weight_gradient(a: object, b: object, rows: object, masked: bool = False) -> object: ...

class RankGroup:
    """imbrex.parallel.Communicator stands on it."""

    def __init__(self, gpus: str, target: str, patience: float, seed: int, rank: int | None = None, size: int | None = None, job: str = '', gpu: int = -1, ranks_of_server: int = 0, address: str = '') -> None: ...

    @property
    def rank(self) -> int: ...

    @property
    def size(self) -> int: ...

    @property
    def device(self) -> Device: ...

    def barrier(self) -> None: ...

    def gather(self, text: str) -> list[str]: ...

    def synchronize(self, stream: int = 0) -> None: ...

    def leave(self, why: str = '') -> None: ...

    def all_reduce(self, x: object, out: object | None = None) -> object: ...

    def all_gather(self, x: object, out: object | None = None) -> object: ...

    def reduce_scatter(self, x: object, out: object | None = None) -> object: ...

    def all_gather_matmul(self, x: object, w: object, bias: object | None = None, activation: object | None = None, rows: int | None = None, out: object | None = None) -> object: ...

    def matmul_reduce_scatter(self, x: object, w: object, bias: object | None = None, activation: object | None = None, out: object | None = None) -> object: ...

    def matmul_all_reduce(self, x: object, w: object, bias: object | None = None, activation: object | None = None, out: object | None = None) -> object: ...

    def expert_exchange(self, tokens: int, width: int, experts: int, chosen: int, dtype: object) -> Exchange: ...

class Exchange:
    """imbrex.parallel.ExpertExchange stands on it."""

    def dispatch(self, x: object, chosen: object) -> tuple: ...

    def combine(self, results: object, weights: object, out: object | None = None) -> object: ...

    def results(self, x: object) -> object: ...

def softmax(x: object, *, out: object | None = None, target: str = 'sm_90a') -> object: ...

def layer_norm(x: object, weight: object, bias: object, eps: float = 1e-05, *, out: object | None = None, target: str = 'sm_90a') -> object: ...

def rms_norm(x: object, weight: object, eps: float = 1e-06, *, out: object | None = None, target: str = 'sm_90a') -> object: ...

def rms_factors(x: object, eps: float = 1e-06, *, target: str = 'sm_90a') -> object: ...

def gated(gate: object, up: object, activation: object | None = 'silu', *, out: object | None = None, target: str = 'sm_90a') -> object: ...

def rope(x: object, cos: object, sin: object, positions: object | None = None, *, interleaved: bool = False, inverse: bool = False, out: object | None = None, target: str = 'sm_90a') -> object: ...

def cross_entropy(logits: object, classes: object, *, target: str = 'sm_90a') -> object: ...

def top_k(x: object, k: int, *, target: str = 'sm_90a') -> tuple: ...

def quantise_float8(x: object, gate: object | None = None, *, block: int = 0, activation: object | None = 'silu', target: str = 'sm_90a') -> tuple: ...

def transpose(x: object, *, out: object | None = None, target: str = 'sm_90a') -> object: ...

def softmax_backward(grad: object, y: object) -> object: ...

def layer_norm_backward(grad: object, x: object, weight: object, eps: float) -> tuple: ...

def rms_norm_backward(grad: object, x: object, weight: object, eps: float) -> tuple: ...

def gated_backward(grad: object, gate: object, up: object, activation: object | None) -> tuple: ...

def cross_entropy_gradient(logits: object, classes: object) -> object: ...

def version() -> str: ...

def describe(arg: object, /) -> str: ...

def command(words: Sequence[str], itself: Sequence[str] = []) -> int: ...
