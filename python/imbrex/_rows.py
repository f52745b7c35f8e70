# SPDX-License-Identifier: Apache-2.0
"""What works row by row, on arrays of any library.

Arrays are float16, bfloat16 or float32, and computed in float32; of any number of rows and columns; dense, or of at most
three dimensions with neighbouring columns. LaunchError names the argument that does not fit. On GPUs from Ampere on
(float8: from Hopper on).
"""
from __future__ import annotations

from . import _imbrex, _operators
from ._operators import Activation, Array


def softmax(x: Array, *, out: Array | None = None, target: str = "sm_90a") -> Array:
    """Softmax along the last dimension of x [..., n].

    x: float16, bfloat16 or float32; dense, or of at most three dimensions with neighbouring columns.
    out: like x, of any of these types; it may be x. Made if None, of x's type.

    Differentiable by torch. Raises LaunchError naming the argument.
    """
    if _operators._is_compiling():
        return _operators._traced("softmax", out, x)
    return _imbrex.softmax(x, out=out, target=target)


def layer_norm(
    x: Array, weight: Array, bias: Array, eps: float = 1e-5, *, out: Array | None = None, target: str = "sm_90a"
) -> Array:
    """(x - mean) / sqrt(variance + eps) * weight + bias along the last dimension of x [..., n].

    x: float16, bfloat16 or float32; dense, or of at most three dimensions with neighbouring columns.
    weight, bias: [n], of any of these types.
    out: like x, of any of these types; it may be x. Made if None, of x's type.

    Differentiable by torch, up to n = 16384. Raises LaunchError naming the argument.
    """
    if _operators._is_compiling():
        return _operators._traced("layer_norm", out, x, weight, bias, eps)
    return _imbrex.layer_norm(x, weight, bias, eps, out=out, target=target)


def rms_norm(x: Array, weight: Array, eps: float = 1e-6, *, out: Array | None = None, target: str = "sm_90a") -> Array:
    """x / sqrt(mean of x^2 + eps) * weight along the last dimension of x [..., n].

    x, weight, out: as layer_norm().

    Differentiable by torch, up to n = 16384. Raises LaunchError naming the argument.
    """
    if _operators._is_compiling():
        return _operators._traced("rms_norm", out, x, weight, eps)
    return _imbrex.rms_norm(x, weight, eps, out=out, target=target)


def rms_factors(x: Array, eps: float = 1e-6, *, target: str = "sm_90a") -> Array:
    """1 / sqrt(mean of x^2 + eps) of each row of x [m, n]: float32 [m].

    x: as layer_norm().

    A product of normalised rows reads x as it is with `scale_a=rms_factors(x)`; the norm's weights are multiplied into
    those of the product beforehand. Not differentiated. Raises LaunchError naming the argument.
    """
    if _operators._is_compiling():
        return _operators._traced("rms_factors", None, x, eps)
    return _imbrex.rms_factors(x, eps, target=target)


def gated(
    gate: Array, up: Array, activation: Activation | None = "silu", *, out: Array | None = None, target: str = "sm_90a"
) -> Array:
    """activation(gate) * up: SwiGLU with "silu", GEGLU with one of the GELUs.

    gate, up: of one shape [..., n], float16, bfloat16 or float32; dense, or of at most three dimensions with neighbouring
        columns: the halves of one matrix, `h[:, :n]` and `h[:, n:]`, are not copied.
    out: like gate, of any of these types; it may be gate or up. Made if None, of gate's type.

    Differentiable by torch. Raises LaunchError naming the argument.
    """
    if _operators._is_compiling():
        return _operators._traced("gated", out, gate, up, activation)
    return _imbrex.gated(gate, up, activation, out=out, target=target)


def rope(
    x: Array,
    cos: Array,
    sin: Array,
    positions: Array | None = None,
    *,
    interleaved: bool = False,
    inverse: bool = False,
    out: Array | None = None,
    target: str = "sm_90a",
) -> Array:
    """Rotary position embedding: turns the pairs of each head's elements by the angles of its token's position.

    x: [tokens, heads, d], float16, bfloat16 or float32; d even, at most 1024; elements of a head are neighbours.
    cos, sin: float32 [positions, d / 2].
    positions: int32 [tokens], each token's row of cos and sin; None: token t has row t. On a GPU they are not tested.
    interleaved: pairs are elements 2 i and 2 i + 1; else i and i + d / 2.
    inverse: turns back.
    out: like x, of any of these types; it may be x.

    Differentiable by torch in x. Raises LaunchError naming the argument.
    """
    options = {"interleaved": interleaved, "inverse": inverse}
    if _operators._is_compiling():
        return _operators._traced("rope", out, x, cos, sin, positions, **options)
    return _imbrex.rope(x, cos, sin, positions, **options, out=out, target=target)


def cross_entropy(logits: Array, classes: Array, *, target: str = "sm_90a") -> Array:
    """log(sum of exp(logits)) - logits[class] of each row: float32 [rows].

    logits: [rows, n], float16, bfloat16 or float32, columns neighbours in memory.
    classes: int32 [rows]; a row of a negative class counts for nothing: its loss and gradient are 0.

    Differentiable by torch in the logits. Raises LaunchError naming the argument.
    """
    if _operators._is_compiling():
        return _operators._traced("cross_entropy", None, logits, classes)
    return _imbrex.cross_entropy(logits, classes, target=target)


def top_k(x: Array, k: int, *, target: str = "sm_90a") -> tuple[Array, Array]:
    """The k largest elements of each row of x [..., n], largest first, and their columns: [..., k] of x's type, and of int32.

    x: float16, bfloat16 or float32; dense, or a matrix with neighbouring columns.
    k: at most 64 and at most n; the time grows with it. Of equal elements the one of the smaller column comes first.

    Differentiable by torch. Raises LaunchError naming the argument.
    """
    if _operators._is_compiling():
        return _operators._traced("top_k", None, x, k)
    return _imbrex.top_k(x, k, target=target)


def quantise_float8(
    x: Array,
    gate: Array | None = None,
    *,
    block: int = 0,
    activation: Activation | None = "silu",
    target: str = "sm_90a",
) -> tuple[Array, Array]:
    """x / scale as float8_e4m3, and the scale, such that the largest of its row or block is 448.

    x: [..., n], float16, bfloat16 or float32; dense, or of at most three dimensions with neighbouring columns.
    gate: like x: what is quantised is activation(gate) * x.
    block: 0: a scale per row, [..., 1]. 128: one per 128 columns, [..., n / 128] rounded up, in memory with the rows side by
        side, so that grouped_matmul takes `scale.T` as it lies.

    Not differentiated. NumPy needs the package ml_dtypes. Raises LaunchError naming the argument.
    """
    options = {"block": block, "activation": activation}
    if _operators._is_compiling():
        return _operators._traced("quantise_float8", None, x, gate, **options)
    return _imbrex.quantise_float8(x, gate, **options, target=target)


def transpose(x: Array, *, out: Array | None = None, target: str = "sm_90a") -> Array:
    """The last two dimensions of x [..., m, n] exchanged in memory: a dense [..., n, m] of x's type.

    x: elements of 8, 16 or 32 bits; dense, or of at most three dimensions with neighbouring columns.
    out: [..., n, m] of x's type, which shares no memory with x. Made if None.

    `imbrex.matmul` takes a transposed view as it lies, which moves nothing. Differentiable by torch. Raises LaunchError
    naming the argument.
    """
    if _operators._is_compiling():
        return _operators._traced("transpose", out, x)
    return _imbrex.transpose(x, out=out, target=target)
