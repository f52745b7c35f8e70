# SPDX-License-Identifier: Apache-2.0
"""The kernel library on arrays of any library."""
from __future__ import annotations

from typing import Any, Literal

from . import _imbrex

_matmul = _imbrex.matmul
_attention = _imbrex.attention
_softmax = _imbrex.softmax
_layer_norm = _imbrex.layer_norm


def _is_compiling() -> bool:
    """Whether torch.compile is tracing: replaced by torch's own function when torch is there."""
    return False


Array = Any
Activation = Literal["relu", "gelu", "gelu_tanh", "gelu_fast", "silu"]


def matmul(
    a: Array,
    b: Array,
    *,
    out: Array | None = None,
    bias: Array | None = None,
    activation: Activation | None = None,
    alpha: float = 1.0,
    beta: float = 0.0,
    residual: Array | None = None,
    out_dtype: Any = None,
    scale_a: Array | None = None,
    scale_b: Array | None = None,
    target: str = "sm_90a",
) -> Array:
    """activation(alpha * scale_a * scale_b * a @ b + bias + beta * residual), in one kernel, with sums in float32.

    a: [m, k] and b: [k, n], both float16, both bfloat16 or both float8_e4m3, or batches [matrices, m, k] and
        [matrices, k, n], of which one may be a single matrix. Strides may be any; a transposed view (`w.T` of a weight
        [n, k]) is as fast as a dense matrix. On a GPU, an operand whose rows do not begin at multiples of 16 bytes is
        copied first.
    out: [m, n] or [matrices, m, n], float16, bfloat16 or float32; made if None, of `out_dtype` or a's type (of float8: bfloat16).
    bias: [n], one per column, or [m, 1], one per row, of the result's type or float32.
    residual: [m, n] of the result's type; with beta and without residual, `out` itself as it was.
    scale_a, scale_b: float32, one element each.
    target: what host arrays run on, a virtual GPU.

    Differentiable by torch in a, b, bias and residual; the gradient of an activation other than None and "relu" computes the
    product once more. With `out`, nothing is differentiated.

    Raises LaunchError (a ValueError) naming the argument for what does not fit, and FindingError where the virtual GPU
    finds something wrong. On a GPU that runs sm_90a (Hopper); the first call with new sizes compiles, for up to seconds.
    """
    if _is_compiling():
        from . import _torch

        return _torch.traced_matmul(a, b, out, bias, activation, alpha, beta, residual, out_dtype, scale_a, scale_b)
    return _matmul(a, b, out, bias, activation, alpha, beta, residual, out_dtype, scale_a, scale_b, target)


def attention(
    q: Array,
    k: Array,
    v: Array,
    *,
    causal: bool = False,
    scale: float | None = None,
    out: Array | None = None,
    target: str = "sm_90a",
) -> Array:
    """softmax(scale q k^T) v for every head; the scores are never in memory.

    q: [heads, q_rows, d] or [batch, heads, q_rows, d], float16 or bfloat16; d a multiple of 16, at most 256.
    k: the same with kv_rows, and as many heads, or a divisor of them that consecutive heads of q share.
    v: like k, of head sizes that may be others, which are then the result's.
    causal: row i sees the columns up to i + kv_rows - q_rows; one that sees nothing is 0.
    scale: None is 1 / sqrt(d).
    out: like q; made if None, with heads and rows in the order in which they lie in q's memory.

    Strides may be any: `x.transpose(1, 2)` of [batch, rows, heads, d] is not copied, and what is returned for it is such a
    view too. Differentiable by torch, by kernels that give equal bits for equal calls. Raises LaunchError naming the
    argument. On a GPU that runs sm_90a (Hopper).
    """
    if _is_compiling():
        from . import _torch

        return _torch.traced_attention(q, k, v, causal, scale, out)
    return _attention(q, k, v, causal=causal, scale=scale, out=out, target=target)


def softmax(x: Array, *, out: Array | None = None, target: str = "sm_90a") -> Array:
    """Softmax along the last dimension of x [..., n], float32, n at most 16384.

    x is dense, or of at most three dimensions with neighbouring columns. Differentiable by torch. Raises LaunchError.
    """
    if _is_compiling():
        from . import _torch

        return _torch.traced_softmax(x, out)
    return _softmax(x, out=out, target=target)


def layer_norm(
    x: Array, weight: Array, bias: Array, eps: float = 1e-5, *, out: Array | None = None, target: str = "sm_90a"
) -> Array:
    """(x - mean) / sqrt(variance + eps) * weight + bias along the last dimension of x [..., n].

    x: float32, n at most 16384; dense, or of at most three dimensions with neighbouring columns.
    weight, bias: float32 [n].

    Differentiable by torch. Raises LaunchError naming the argument.
    """
    if _is_compiling():
        from . import _torch

        return _torch.traced_layer_norm(x, weight, bias, eps, out)
    return _layer_norm(x, weight, bias, eps, out=out, target=target)
