# SPDX-License-Identifier: Apache-2.0
"""Products and attention on arrays of any library."""
from __future__ import annotations

from typing import Any, Literal

from . import _imbrex

_matmul = _imbrex.matmul


def _is_compiling() -> bool:
    """Whether torch.compile is tracing: replaced by torch's own function when torch is there."""
    return False


def _traced(name, out, *args, **kwargs):
    """The operator of torch, while torch.compile is tracing."""
    from . import _torch

    return _torch.traced(name, out, *args, **kwargs)


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


def gated_matmul(
    a: Array,
    b: Array,
    up: Array,
    activation: Activation | None = "silu",
    *,
    out: Array | None = None,
    out_dtype: Any = None,
    scale_a: Array | None = None,
    scale_b: Array | None = None,
    target: str = "sm_90a",
) -> Array:
    """activation(a @ b) * (a @ up) in one kernel: SwiGLU's two products with "silu", GEGLU's with one of the GELUs.

    a: [m, k], float16, bfloat16 or float8_e4m3. Copied first where it is not dense or 16 bytes do not divide k, as are b and up.
    b, up: [k, n] of a's type, as views of weights that lie as [n, k]: `w[:n].T` and `w[n:].T`. n a multiple of 8.
    out: [m, n], of a's type (of float8: float16 or bfloat16); made if None, of `out_dtype`.
    scale_a, scale_b: float32: one element, or one for each row of a, [m], such as rms_factors(a), and for each column of b
        and of up, [2, n].

    Sums, scales and activation are float32; nothing is rounded before the result is. Differentiable by torch in a, b and up
    of 16 bits, without scales. Raises LaunchError naming the argument. On a GPU that runs sm_90a (Hopper).
    """
    if _is_compiling():
        return _traced("gated_matmul", out, a, b, up, activation, out_dtype if out is None else out.dtype, scale_a, scale_b)
    return _imbrex.gated_matmul(a, b, up, activation, out_dtype, scale_a, scale_b, out=out, target=target)


def quantised_matmul(
    a: Array,
    b: Array,
    up: Array | None = None,
    *,
    block: int = 128,
    activation: Activation | None = None,
    scale_a: Array | None = None,
    scale_b: Array | None = None,
    target: str = "sm_90a",
) -> tuple[Array, Array]:
    """activation(a @ b), or activation(a @ b) * (a @ up), as float8_e4m3, and its scales.

    a, b, up, scale_a, scale_b: as gated_matmul(), but n is a multiple of 16, and without `up` scale_b is [n].
    block: 128: a scale per 128 columns, in the product's own kernel, but for gated ones of 512 rows and more. 0: a scale per
        row, which no tile has all of: the result is rounded to bfloat16, and a second kernel quantises it.

    Returns float8_e4m3 [m, n] and float32, [m, n / 128] rounded up or [m, 1], as quantise_float8(x, block=block) does: matmul
    and grouped_matmul take `scale.T` of blocks as it lies, and `scale[:, 0]` of rows. Not differentiated. NumPy needs the
    package ml_dtypes. Raises LaunchError naming the argument. On a GPU that runs sm_90a (Hopper).
    """
    options = {"block": block, "activation": activation, "scale_a": scale_a, "scale_b": scale_b}
    if _is_compiling():
        return _traced("quantised_matmul", None, a, b, up, **options)
    return _imbrex.quantised_matmul(a, b, up, **options, target=target)


def grouped_matmul(
    a: Array,
    b: Array,
    rows: Array,
    *,
    masked: bool = False,
    out: Array | None = None,
    out_dtype: Any = None,
    scale_a: Array | None = None,
    scale_b: Array | None = None,
    target: str = "sm_90a",
) -> Array:
    """a[i] @ b[g] for each row i of each group g, whose sizes only the device knows: a mixture's experts, in one launch.

    a: [m, k], the rows of all groups; both float16, both bfloat16 or both float8_e4m3. Copied first where it is not dense or
        16 bytes do not divide k, as is b.
    b: [groups, k, n], as a view of weights that lie as [groups, n, k]: `w.mT`, or `w.swapaxes(1, 2)`. n a multiple of 8.
    rows: int32 [groups + 1]: group g has the rows rows[g] ... rows[g + 1] - 1. At most 1024 groups, which may be empty.
    masked: a is [groups, room, k], and rows [groups]: group g has the first rows[g] of its `room` rows.
    out: [m, n], or [groups, room, n], of a's type (of float8: float16 or bfloat16); made if None, of `out_dtype`. Rows that
        belong to no group are not written: in a new array they are undefined.
    scale_a, scale_b: float32, of float8 operands: [m] and [groups, n]; or per 128 of k: [k / 128, m], which is `scale.T` of
        quantise_float8(x, block=128), and [groups, n / 128, k / 128], quotients rounded up.

    Sizes are read on the device: a captured call serves other sizes at each replay. Differentiable by torch in a and b of 16
    bits; for the gradient of a, b is transposed in memory. Raises LaunchError naming the argument. On a GPU that runs
    sm_90a (Hopper).
    """
    if _is_compiling():
        return _traced("grouped_matmul", out, a, b, rows, masked, out_dtype if out is None else out.dtype, scale_a, scale_b)
    return _imbrex.grouped_matmul(a, b, rows, masked, out_dtype, scale_a, scale_b, out=out, target=target)


def attention(
    q: Array,
    k: Array,
    v: Array,
    *,
    causal: bool = False,
    scale: float | None = None,
    window: tuple[int, int] = (-1, -1),
    prefix: int = 0,
    soft_cap: float = 0.0,
    alibi_slopes: Array | None = None,
    sinks: Array | None = None,
    q_begins: Array | None = None,
    kv_begins: Array | None = None,
    q_scales: Array | None = None,
    k_scales: Array | None = None,
    v_scales: Array | None = None,
    deterministic: bool = True,
    out_dtype: Any = None,
    out: Array | None = None,
    target: str = "sm_90a",
) -> Array:
    """softmax(scale q k^T) v for every head; the scores are never in memory.

    q: [heads, q_rows, d] or [batch, heads, q_rows, d], float16, bfloat16 or float8_e4m3; d a multiple of 16 (of float8, of
        32), at most 256.
    k: the same with kv_rows, and as many heads, or a divisor of them that consecutive heads of q share.
    v: like k, of head sizes that may be others, which are then the result's.
    scale: None is 1 / sqrt(d).
    out: like q; made if None, with heads and rows in the order in which they lie in q's memory. Of float8 it is float16 or
        bfloat16: `out_dtype`, bfloat16 if None.

    Row i is at position p = i + kv_rows - q_rows; one that sees nothing is 0.
    causal: it sees the columns up to p.
    window: it sees that many columns before p, and behind p; -1 is all of them.
    prefix: it sees this many first columns, and those up to p.
    soft_cap: scores become soft_cap * tanh(score / soft_cap); 0: they do not.
    alibi_slopes: float32 [heads]: slope * (column - p) is added to the scores.
    sinks: float32 [heads]: a score that takes part in each sum of weights, and has no value.
    q_begins, kv_begins: int32 [sequences + 1], ascending from 0: sequences of these rows of q, and of k and v, lie one behind
        the other, and see nothing of each other; positions are counted in each. Without a batch. Read on the device. Rows
        behind the last sequence are not written.
    q_scales, k_scales, v_scales: float32, of float8: [heads] and [kv_heads], or with a batch [batch, heads] and so on: what
        an element stands for is multiplied by its head's. With one dimension more, [..., heads, (rows + 127) // 128], by that of
        its block of 128 rows, which is positive. Of packed sequences [heads, rows // 128 + sequences]: each has blocks of its own,
        from number begins[s] // 128 + s on. All or none.
    deterministic: equal calls have gradients of equal bits; False lets the last bits of q's differ where that is faster (heads of
        96 and 128 with no mask but `causal`, v's size that of k, not packed), for more memory meanwhile.

    Strides may be any: `x.transpose(1, 2)` of [batch, rows, heads, d] is not copied, and what is returned for it is such a
    view too. Differentiable by torch in q, k and v of 16 bits. Raises LaunchError naming the argument. On a GPU that runs sm_90a (Hopper).
    """
    try:
        left, right = window
    except (TypeError, ValueError):
        raise TypeError(f"attention(): window is {window!r}; give two numbers of columns, before and behind, -1 for all") from None
    options = {
        "causal": causal,
        "scale": scale,
        "window_left": left,
        "window_right": right,
        "prefix": prefix,
        "soft_cap": soft_cap,
        "deterministic": deterministic,
    }
    tensors = q, k, v, alibi_slopes, sinks, q_begins, kv_begins, q_scales, k_scales, v_scales
    if _is_compiling():
        return _traced("attention", out, *tensors, **options, out_dtype=out_dtype if out is None else out.dtype)
    return _imbrex.attention(*tensors, **options, out_dtype=out_dtype, out=out, target=target)


def attention_decode(
    q: Array,
    k: Array,
    v: Array,
    lengths: Array | None = None,
    *,
    page_table: Array | None = None,
    causal: bool = False,
    scale: float | None = None,
    window: int = -1,
    soft_cap: float = 0.0,
    alibi_slopes: Array | None = None,
    sinks: Array | None = None,
    k_scales: Array | None = None,
    v_scales: Array | None = None,
    parts: int = 0,
    out: Array | None = None,
    target: str = "sm_90a",
) -> Array:
    """Attention of a few rows, as in decoding, to long caches.

    q: [batch, heads, rows, d], float16 or bfloat16; d a multiple of 16, at most 256.
    k, v: [batch, kv_heads, rows that there is room for, d]; with a page table [pages, kv_heads, rows of a page, d]. Of q's
        type, or float8_e4m3. kv_heads divide heads. Strides are multiples of 16 bytes. What lies beyond a sequence's length may be anything.
    lengths: int32 [batch], rows of each sequence that are there; None: all that there is room for.
    page_table: int32 [batch, pages of a sequence]: the pages of each sequence, in order; asks for lengths.
    causal: row i sees the columns up to its position, length - rows + i.
    window: it sees that many columns before its position; -1 is all of them. Others are not read.
    soft_cap, alibi_slopes, sinks: as in attention().
    k_scales, v_scales: float32 [kv_heads], by which elements of float8 are multiplied; both or none.
    parts: CTAs that a sequence is divided among; 0: as many as fill the GPU.
    out: like q; made if None, with heads and rows in the order in which they lie in q's memory.

    Lengths and table are read on the device: a captured call serves every step. Not differentiated. Raises LaunchError
    naming the argument. On a GPU that runs sm_90a (Hopper).
    """
    tensors = q, k, v, lengths, page_table, alibi_slopes, sinks, k_scales, v_scales
    options = {"causal": causal, "scale": scale, "window_left": window, "soft_cap": soft_cap, "parts": parts}
    if _is_compiling():
        return _traced("attention_decode", out, *tensors, **options)
    return _imbrex.attention_decode(*tensors, **options, out=out, target=target)


def attention_latent_decode(
    q: Array,
    cache: Array,
    lengths: Array | None = None,
    *,
    value_size: int = 512,
    page_table: Array | None = None,
    causal: bool = False,
    scale: float | None = None,
    window: int = -1,
    soft_cap: float = 0.0,
    alibi_slopes: Array | None = None,
    sinks: Array | None = None,
    parts: int = 0,
    out: Array | None = None,
    target: str = "sm_90a",
) -> Array:
    """Multi-head latent attention of a few rows, with the projections absorbed: all heads share one cache.

    q: [batch, heads, rows, d], float16 or bfloat16; d a multiple of 64, at most 576.
    cache: [batch, 1, rows that there is room for, d], with a page table [pages, 1, rows of a page, d], of 8, 16, 32 or a
        multiple of 64 rows. A row is a key, and its first value_size elements are the value: a multiple of 128, at most 512.
        Of q's type; or of float8_e4m3, with rows of bytes: value_size elements, a float32 factor for each 128 of them (as many
        as fill multiples of 16 bytes), and d - value_size elements of q's type: 656 for d = 576 and values of 512.
    lengths, page_table, causal, window, soft_cap, alibi_slopes, sinks, parts: as attention_decode()'s.
    scale: None is 1 / sqrt(d), which is rarely what such a model has.
    out: [batch, heads, rows, value_size]; made if None.

    Lengths and table are read on the device. Not differentiated. Raises LaunchError naming the argument. On a GPU that runs
    sm_90a (Hopper).
    """
    tensors = q, cache, lengths, page_table, alibi_slopes, sinks
    options = {"value_size": value_size, "causal": causal, "scale": scale, "window_left": window, "soft_cap": soft_cap}
    if _is_compiling():
        return _traced("attention_latent_decode", out, *tensors, **options, parts=parts)
    return _imbrex.attention_latent_decode(*tensors, **options, parts=parts, out=out, target=target)
