# SPDX-License-Identifier: Apache-2.0
"""The operators as torch.ops.imbrex.*: eager, under torch.compile, with autograd. Imported only where torch is."""
from __future__ import annotations

import torch

from . import _gradients, _imbrex, _operators

_SCHEMAS = (
    "matmul(Tensor a, Tensor b, Tensor? bias=None, str? activation=None, float alpha=1.0, float beta=0.0, "
    "Tensor? residual=None, ScalarType? out_dtype=None, Tensor? scale_a=None, Tensor? scale_b=None) -> Tensor",
    "attention(Tensor q, Tensor k, Tensor v, *, bool causal=False, float? scale=None) -> Tensor",
    # What attention keeps for its gradients, and those: used by its autograd.
    "attention_forward(Tensor q, Tensor k, Tensor v, *, bool causal=False, float? scale=None) -> (Tensor, Tensor)",
    "attention_backward(Tensor grad, Tensor q, Tensor k, Tensor v, Tensor o, Tensor log_sum_exp, *, bool causal=False, "
    "float? scale=None) -> (Tensor, Tensor, Tensor)",
    "softmax(Tensor x) -> Tensor",
    "layer_norm(Tensor x, Tensor weight, Tensor bias, float eps=1e-05) -> Tensor",
)
_library: torch.library.Library | None = None


def register() -> None:
    """Defines the operators: once, whoever asks."""
    global _library
    if _library is not None:
        return
    _library = torch.library.Library("imbrex", "DEF")
    for schema in _SCHEMAS:
        _library.define(schema, tags=(torch.Tag.pt2_compliant_tag, torch.Tag.needs_fixed_stride_order))
    kernels = {
        "matmul": _imbrex.matmul_operator,
        "attention": _imbrex.attention,
        "attention_forward": _imbrex.attention_forward,
        "attention_backward": _imbrex.attention_backward,
        "softmax": _imbrex.softmax,
        "layer_norm": _imbrex.layer_norm,
    }
    fakes = {
        "matmul": _fake_matmul,
        "attention": _fake_attention,
        "attention_forward": lambda q, k, v, **_: (_fake_attention(q, k, v), q.new_empty(q.shape[:-1], dtype=torch.float32)),
        "attention_backward": lambda grad, q, k, v, *_, **__: tuple(_new_like_heads(t, t.shape[-1]) for t in (q, k, v)),
        "softmax": lambda x: x.new_empty(x.shape),
        "layer_norm": lambda x, *_: x.new_empty(x.shape),
    }
    for name, kernel in kernels.items():
        for key in ("CPU", "CUDA"):
            _library.impl(name, kernel, key)
        torch.library.register_fake(f"imbrex::{name}", fakes[name], lib=_library)
        if name != "attention_backward":
            _gradients.register(_library, name, kernel)
    _operators._is_compiling = torch.compiler.is_compiling


def _fake_matmul(
    a, b, bias=None, activation=None, alpha=1.0, beta=0.0, residual=None, out_dtype=None, scale_a=None, scale_b=None
):
    dims = a.dim(), b.dim()
    torch._check(all(d in (2, 3) for d in dims), lambda: f"imbrex.matmul: a and b are of {dims} dimensions, not 2 or 3")
    torch._check(a.shape[-1] == b.shape[-2], lambda: f"imbrex.matmul: inner sizes {a.shape[-1]} and {b.shape[-2]} differ")
    if out_dtype is None:
        out_dtype = a.dtype if a.dtype in (torch.float16, torch.bfloat16) else torch.bfloat16
    batch = [a.shape[0] if dims[0] == 3 and (dims[1] == 2 or b.shape[0] == 1) else b.shape[0]] if 3 in dims else []
    return a.new_empty((*batch, a.shape[-2], b.shape[-1]), dtype=out_dtype)


def _new_like_heads(t, columns):
    """As the extension makes it: with heads and rows in the order in which they lie in t's memory."""
    rows, heads = t.dim() - 2, t.dim() - 3
    shape = [*t.shape[:-1], columns]
    if t.stride(heads) < t.stride(rows) and t.shape[heads] > 1 and t.shape[rows] > 1:
        shape[heads], shape[rows] = shape[rows], shape[heads]
        return t.new_empty(shape).transpose(heads, rows)
    return t.new_empty(shape)


def _fake_attention(q, k, v, **_):
    return _new_like_heads(q, v.shape[-1])


def _into(out, made):
    return made if out is None else out.copy_(made)


def traced_matmul(a, b, out, bias, activation, alpha, beta, residual, out_dtype, scale_a, scale_b):
    if out is not None and beta != 0 and residual is None:
        residual = out
    made = torch.ops.imbrex.matmul(
        a,
        b,
        bias=bias,
        activation=activation,
        alpha=alpha,
        beta=beta,
        residual=residual,
        out_dtype=out_dtype if out is None else out.dtype,
        scale_a=scale_a,
        scale_b=scale_b,
    )
    return _into(out, made)


def traced_attention(q, k, v, causal, scale, out):
    return _into(out, torch.ops.imbrex.attention(q, k, v, causal=causal, scale=scale))


def traced_softmax(x, out):
    return _into(out, torch.ops.imbrex.softmax(x))


def traced_layer_norm(x, weight, bias, eps, out):
    return _into(out, torch.ops.imbrex.layer_norm(x, weight, bias, eps))
