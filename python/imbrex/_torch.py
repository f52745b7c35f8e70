# SPDX-License-Identifier: Apache-2.0
"""The operators as torch.ops.imbrex.*: eager, under torch.compile, with autograd. Imported only where torch is."""
from __future__ import annotations

import torch

from . import _imbrex, _operators

_SCHEMAS = (
    "matmul(Tensor a, Tensor b, Tensor? bias=None, str? activation=None, float alpha=1.0, float beta=0.0, "
    "Tensor? residual=None, ScalarType? out_dtype=None, Tensor? scale_a=None, Tensor? scale_b=None) -> Tensor",
    "attention(Tensor q, Tensor k, Tensor v, *, bool causal=False, float? scale=None) -> Tensor",
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
    for key in ("CPU", "CUDA"):
        _library.impl("matmul", _run_matmul, key)
        _library.impl("attention", _imbrex.attention, key)
        _library.impl("softmax", _imbrex.softmax, key)
        _library.impl("layer_norm", _imbrex.layer_norm, key)
    torch.library.register_fake("imbrex::matmul", _fake_matmul, lib=_library)
    torch.library.register_fake("imbrex::attention", lambda q, k, v, **_: q.new_empty(q.shape), lib=_library)
    torch.library.register_fake("imbrex::softmax", lambda x: x.new_empty(x.shape), lib=_library)
    torch.library.register_fake("imbrex::layer_norm", lambda x, *_: x.new_empty(x.shape), lib=_library)
    torch.library.register_autograd("imbrex::matmul", _matmul_backward, setup_context=_matmul_context, lib=_library)
    _operators._is_compiling = torch.compiler.is_compiling


def _run_matmul(
    a, b, bias=None, activation=None, alpha=1.0, beta=0.0, residual=None, out_dtype=None, scale_a=None, scale_b=None
):
    return _imbrex.matmul(
        a, b, None, bias, activation, alpha, beta, residual, out_dtype, scale_a, scale_b, "sm_90a", False
    )


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


def _matmul_context(ctx, inputs, output):
    a, b, bias, activation, ctx.alpha, ctx.beta, residual, _, scale_a, scale_b = inputs
    ctx.bias_shape = None if bias is None else bias.shape
    ctx.residual_shape = None if residual is None else residual.shape
    ctx.types = [None if t is None else t.dtype for t in (bias, residual)]
    if activation not in (None, "relu"):
        raise NotImplementedError(
            f"imbrex.matmul: activation '{activation}' has no gradient here\n"
            "  help: apply it by torch: torch.nn.functional.gelu(imbrex.matmul(a, b))"
        )
    if scale_a is not None or scale_b is not None:
        raise NotImplementedError("imbrex.matmul: scaled operands have no gradient here\n  help: call it under torch.no_grad()")
    ctx.save_for_backward(a, b, output if activation == "relu" else None)


def _product(a, b):
    """a @ b by the kernel where it takes the type, else by torch."""
    return torch.ops.imbrex.matmul(a, b) if a.dtype in (torch.float16, torch.bfloat16) else a @ b


def _to(grad, shape):
    """The sum over a batch that an operand of `shape` did not have."""
    while grad.dim() > len(shape):
        grad = grad.float().sum(0).to(grad.dtype)
    return grad if grad.shape == shape else grad.float().sum(0, keepdim=True).to(grad.dtype)


def _matmul_backward(ctx, grad):
    a, b, output = ctx.saved_tensors
    if output is not None:
        grad = grad * (output > 0)
    bias_type, residual_type = ctx.types
    grad_bias = grad_residual = None
    if bias_type is not None:
        # per column: [n] or [1, n]; per row: [m, 1]
        per_row = len(ctx.bias_shape) == 2 and ctx.bias_shape[1] == 1 and grad.shape[-1] != 1
        sums = grad.float().sum(-1) if per_row else grad.float().flatten(0, -2).sum(0)
        if per_row and sums.dim() == 2:
            sums = sums.sum(0)
        grad_bias = sums.reshape(ctx.bias_shape).to(bias_type)
    if residual_type is not None:
        grad_residual = _to(ctx.beta * grad, ctx.residual_shape).to(residual_type)
    scaled = (ctx.alpha * grad).to(a.dtype)
    grad_a = _to(_product(scaled, b.mT), a.shape) if ctx.needs_input_grad[0] else None
    grad_b = _to(_product(a.mT, scaled), b.shape) if ctx.needs_input_grad[1] else None
    return grad_a, grad_b, grad_bias, None, None, None, grad_residual, None, None, None


def matmul_with_grad(a, b, bias, activation, alpha, beta, residual, out_dtype):
    """What the extension calls where an operand requires a gradient."""
    call = torch.ops.imbrex.matmul if torch.is_grad_enabled() else _run_matmul
    return call(a, b, bias, activation, alpha, beta, residual, out_dtype)


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
