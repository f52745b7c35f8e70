# SPDX-License-Identifier: Apache-2.0
"""The operators as torch.ops.imbrex.*: eager, under torch.compile, with autograd. Imported only where torch is."""
from __future__ import annotations

import torch

from . import _gradients, _imbrex, _operators

_library: torch.library.Library | None = None


def register() -> None:
    """Defines the operators: once, whoever asks."""
    global _library
    if _library is not None:
        return
    _library = torch.library.Library("imbrex", "DEF")
    for schema, fake in _OPERATORS.items():
        _library.define(schema, tags=(torch.Tag.pt2_compliant_tag, torch.Tag.needs_fixed_stride_order))
        name = schema.partition("(")[0]
        kernel = getattr(_imbrex, "matmul_operator" if name == "matmul" else name)
        for key in ("CPU", "CUDA"):
            _library.impl(name, kernel, key)
        torch.library.register_fake(f"imbrex::{name}", fake, lib=_library)
        _gradients.register(_library, name, kernel)
    _operators._is_compiling = torch.compiler.is_compiling


def _fake_matmul(
    a, b, bias=None, activation=None, alpha=1.0, beta=0.0, residual=None, out_dtype=None, scale_a=None, scale_b=None
):
    dims = a.dim(), b.dim()
    torch._check(all(d in (2, 3) for d in dims), lambda: f"imbrex.matmul: a and b are of {dims} dimensions, not 2 or 3")
    torch._check(a.shape[-1] == b.shape[-2], lambda: f"imbrex.matmul: inner sizes {a.shape[-1]} and {b.shape[-2]} differ")
    batch = [a.shape[0] if dims[0] == 3 and (dims[1] == 2 or b.shape[0] == 1) else b.shape[0]] if 3 in dims else []
    return a.new_empty((*batch, a.shape[-2], b.shape[-1]), dtype=out_dtype or _dtype_of_product(a))


def _dtype_of_product(a):
    return a.dtype if a.dtype in (torch.float16, torch.bfloat16) else torch.bfloat16


def _fake_grouped_matmul(a, b, rows, masked=False, out_dtype=None, scale_a=None, scale_b=None):
    return a.new_empty((*a.shape[:-1], b.shape[-1]), dtype=out_dtype or _dtype_of_product(a))


def _fake_gated_matmul(a, b, up, activation="silu", out_dtype=None, scale_a=None, scale_b=None):
    return a.new_empty((a.shape[0], b.shape[1]), dtype=out_dtype or _dtype_of_product(a))


def _fake_quantised_matmul(a, b, up=None, *, block=128, **_):
    scale = a.new_empty((1 if block == 0 else -(-b.shape[1] // block), a.shape[0]), dtype=torch.float32)
    return a.new_empty((a.shape[0], b.shape[1]), dtype=torch.float8_e4m3fn), scale.transpose(0, 1)


def _new_like_heads(t, columns):
    """As the extension makes it: with heads and rows in the order in which they lie in t's memory."""
    rows, heads = t.dim() - 2, t.dim() - 3
    shape = [*t.shape[:-1], columns]
    if t.stride(heads) < t.stride(rows) and t.shape[heads] > 1 and t.shape[rows] > 1:
        shape[heads], shape[rows] = shape[rows], shape[heads]
        return t.new_empty(shape).transpose(heads, rows)
    return t.new_empty(shape)


def _fake_attention(q, k, v, *_, out_dtype=None, **__):
    made = _new_like_heads(q, v.shape[-1])
    return made if q.dtype in (torch.float16, torch.bfloat16) else made.to(out_dtype or torch.bfloat16)


def _fake_quantise(x, gate=None, *, block=0, activation="silu"):
    shape = [*x.shape[:-1], 1 if block == 0 else -(-x.shape[-1] // block)]
    if block != 0 and x.dim() > 1:
        scale = x.new_empty([*shape[:-2], shape[-1], shape[-2]], dtype=torch.float32).transpose(-1, -2)
    else:
        scale = x.new_empty(shape, dtype=torch.float32)
    return x.new_empty(x.shape, dtype=torch.float8_e4m3fn), scale


def _fake_top_k(x, k):
    shape = [*x.shape[:-1], k]
    return x.new_empty(shape), x.new_empty(shape, dtype=torch.int32)


def _fake_transpose(x):
    return x.new_empty([*x.shape[:-2], x.shape[-1], x.shape[-2]])


def _like(*places):
    """A fake whose results are dense and like these of its arguments."""

    def fake(*tensors, **_):
        made = tuple(tensors[i].new_empty(tensors[i].shape) for i in places)
        return made if len(made) > 1 else made[0]

    return fake


_STEPS = (
    "*, bool causal=False, float? scale=None, int window_left=-1, int window_right=-1, int prefix=0, float soft_cap=0.0, "
    "bool deterministic=True"
)
_OPTIONAL = "Tensor? alibi_slopes=None, Tensor? sinks=None, Tensor? q_begins=None, Tensor? kv_begins=None"
# Each operator and its fake kernel.
_OPERATORS = {
    "matmul(Tensor a, Tensor b, Tensor? bias=None, str? activation=None, float alpha=1.0, float beta=0.0, "
    "Tensor? residual=None, ScalarType? out_dtype=None, Tensor? scale_a=None, Tensor? scale_b=None) -> Tensor": _fake_matmul,
    'gated_matmul(Tensor a, Tensor b, Tensor up, str? activation="silu", ScalarType? out_dtype=None, Tensor? scale_a=None, '
    "Tensor? scale_b=None) -> Tensor": _fake_gated_matmul,
    "quantised_matmul(Tensor a, Tensor b, Tensor? up=None, *, int block=128, str? activation=None, Tensor? scale_a=None, "
    "Tensor? scale_b=None) -> (Tensor, Tensor)": _fake_quantised_matmul,
    "grouped_matmul(Tensor a, Tensor b, Tensor rows, bool masked=False, ScalarType? out_dtype=None, Tensor? scale_a=None, "
    "Tensor? scale_b=None) -> Tensor": _fake_grouped_matmul,
    f"attention(Tensor q, Tensor k, Tensor v, {_OPTIONAL}, Tensor? q_scales=None, Tensor? k_scales=None, Tensor? v_scales=None, "
    f"{_STEPS}, ScalarType? out_dtype=None) -> Tensor": _fake_attention,
    "attention_decode(Tensor q, Tensor k, Tensor v, Tensor? lengths=None, Tensor? page_table=None, Tensor? alibi_slopes=None, "
    "Tensor? sinks=None, Tensor? k_scales=None, Tensor? v_scales=None, *, bool causal=False, float? scale=None, "
    "int window_left=-1, float soft_cap=0.0, int parts=0) -> Tensor": lambda q, *_, **__: _new_like_heads(q, q.shape[-1]),
    "attention_latent_decode(Tensor q, Tensor cache, Tensor? lengths=None, Tensor? page_table=None, Tensor? alibi_slopes=None, "
    "Tensor? sinks=None, *, int value_size=512, bool causal=False, float? scale=None, int window_left=-1, float soft_cap=0.0, "
    "int parts=0) -> Tensor": lambda q, *_, value_size=512, **__: _new_like_heads(q, value_size),
    "softmax(Tensor x) -> Tensor": _like(0),
    "layer_norm(Tensor x, Tensor weight, Tensor bias, float eps=1e-05) -> Tensor": _like(0),
    "rms_norm(Tensor x, Tensor weight, float eps=1e-06) -> Tensor": _like(0),
    "rms_factors(Tensor x, float eps=1e-06) -> Tensor": lambda x, *_: x.new_empty(x.shape[:1], dtype=torch.float32),
    'gated(Tensor gate, Tensor up, str? activation="silu") -> Tensor': _like(0),
    "rope(Tensor x, Tensor cos, Tensor sin, Tensor? positions=None, *, bool interleaved=False, bool inverse=False) -> Tensor": _like(0),
    "cross_entropy(Tensor logits, Tensor classes) -> Tensor": lambda logits, _: logits.new_empty(logits.shape[:1], dtype=torch.float32),
    "top_k(Tensor x, int k) -> (Tensor, Tensor)": _fake_top_k,
    'quantise_float8(Tensor x, Tensor? gate=None, *, int block=0, str? activation="silu") -> (Tensor, Tensor)': _fake_quantise,
    "transpose(Tensor x) -> Tensor": _fake_transpose,
    # What attention keeps for its gradients, and the gradients: used by autograd.
    f"attention_forward(Tensor q, Tensor k, Tensor v, {_OPTIONAL}, {_STEPS}) -> (Tensor, Tensor)": lambda q, k, v, *_, **__: (
        _fake_attention(q, k, v),
        q.new_empty(q.shape[:-1], dtype=torch.float32),
    ),
    f"attention_backward(Tensor grad, Tensor q, Tensor k, Tensor v, Tensor o, Tensor log_sum_exp, {_OPTIONAL}, {_STEPS}) -> (Tensor, Tensor, Tensor)": lambda grad, q, k, v, *_, **__: tuple(
        _new_like_heads(t, t.shape[-1]) for t in (q, k, v)
    ),
    "grouped_matmul_rows_gradient(Tensor grad, Tensor b, Tensor rows, bool masked=False) -> Tensor": lambda grad, b, *_: grad.new_empty(
        (*grad.shape[:-1], b.shape[1])
    ),
    "grouped_matmul_weight_gradient(Tensor a, Tensor b, Tensor rows, bool masked=False) -> Tensor": lambda a, b, rows, masked=False: a.new_empty(
        (rows.shape[0] - (not masked), a.shape[-1], b.shape[-1])
    ),
    "softmax_backward(Tensor grad, Tensor y) -> Tensor": _like(1),
    "layer_norm_backward(Tensor grad, Tensor x, Tensor weight, float eps) -> (Tensor, Tensor, Tensor)": _like(1, 2, 2),
    "rms_norm_backward(Tensor grad, Tensor x, Tensor weight, float eps) -> (Tensor, Tensor)": _like(1, 2),
    "gated_backward(Tensor grad, Tensor gate, Tensor up, str? activation) -> (Tensor, Tensor)": _like(1, 2),
    "cross_entropy_gradient(Tensor logits, Tensor classes) -> Tensor": _like(0),
}


def traced(name, out, *args, **kwargs):
    """The operator while torch.compile traces: with `out` it is copied there."""
    made = getattr(torch.ops.imbrex, name)(*args, **kwargs)
    return made if out is None else out.copy_(made)


def traced_matmul(a, b, out, bias, activation, alpha, beta, residual, out_dtype, scale_a, scale_b):
    if out is not None:
        out_dtype = out.dtype
        if beta != 0 and residual is None:
            residual = out
    return traced("matmul", out, a, b, bias, activation, alpha, beta, residual, out_dtype, scale_a, scale_b)
