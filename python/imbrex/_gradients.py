# SPDX-License-Identifier: Apache-2.0
"""Autograd of torch.ops.imbrex.*: what is kept of a call, and its gradients. Imported only where torch is."""
from __future__ import annotations

import torch


def register(library: torch.library.Library, name: str, kernel) -> None:
    """Gives an operator its gradients, if it has some. A call that needs none costs one dictionary look-up and goes to the
    kernel."""
    if name not in _FORMULAS:
        return
    setup_context, backward = _FORMULAS[name]
    try:
        from torch._library import autograd

        operator = getattr(torch.ops.imbrex, name).default
        differentiated = autograd.make_autograd_impl(operator, autograd.Info(backward, setup_context))
        after_autograd, keys = torch._C._after_autograd_keyset, torch._C.DispatchKey
        views = torch._C.DispatchKeySet(keys.ADInplaceOrView)
        grad_is_enabled, any_requires_grad = torch._C.is_grad_enabled, torch._C._any_requires_grad
    except (ImportError, AttributeError):  # another torch: by its public function, some microseconds slower
        torch.library.register_autograd(f"imbrex::{name}", backward, setup_context=setup_context, lib=library)
        return
    # By the keys of a call: whether nothing but the kernel is left to run after autograd; no mode, no subclass of Tensor,
    # no transform. Then the dispatcher need not be asked again.
    is_direct: dict[int, bool] = {}

    def call(keyset, *args, **kwargs):
        if grad_is_enabled() and any_requires_grad(*args):
            if name == "attention":  # the operator that keeps what the gradients need
                return torch.ops.imbrex.attention_forward(*args[:_OF_FORWARD], **_kept_options(args, kwargs))[0]
            return differentiated(keyset, *args, **kwargs)
        raw = keyset.raw_repr()
        direct = is_direct.get(raw)
        if direct is None:
            left = (keyset & after_autograd) - views
            direct = is_direct[raw] = left.highestPriorityTypeId() in (keys.CPU, keys.CUDA)
        return kernel(*args, **kwargs) if direct else differentiated(keyset, *args, **kwargs)

    library.impl(name, call, "Autograd", with_keyset=True)


def differentiable(name: str, *args, **kwargs):
    """What the extension calls where an operand requires a gradient and grad mode is on."""
    return getattr(torch.ops.imbrex, name)(*args, **kwargs)


def _refuse(function: str, what: str):
    raise NotImplementedError(f"imbrex.{function}: {what} no gradient here\n  help: call it under torch.no_grad(), or detach them")


def _matmul_context(ctx, inputs, output):
    a, b, bias, ctx.activation, ctx.alpha, ctx.beta, residual, _, scale_a, scale_b = inputs
    if scale_a is not None or scale_b is not None:
        _refuse("matmul", "scaled operands have")
    is_computed_again = ctx.activation not in (None, "relu")
    ctx.facts = [None if t is None else (t.shape, t.dtype) for t in (bias, residual)]
    ctx.save_for_backward(
        a,
        b,
        output if ctx.activation == "relu" else None,
        bias if is_computed_again else None,
        residual if is_computed_again else None,
    )


def _product(a, b):
    """a @ b by the kernel where it takes the type, else by torch."""
    return torch.ops.imbrex.matmul(a, b) if a.dtype in (torch.float16, torch.bfloat16) else a @ b


def _to(grad, shape):
    """The sum over a batch that an operand of `shape` did not have."""
    while grad.dim() > len(shape):
        grad = grad.float().sum(0).to(grad.dtype)
    return grad if grad.shape == shape else grad.float().sum(0, keepdim=True).to(grad.dtype)


def _before_activation(ctx, grad):
    """The gradient of what the activation was given. For GELU and SiLU that is computed anew: it was never stored."""
    a, b, output, bias, residual = ctx.saved_tensors
    if ctx.activation is None:
        return grad
    if ctx.activation == "relu":
        return grad * (output > 0)
    bias, residual = (None if t is None else t.float() for t in (bias, residual))  # the result's type
    z = torch.ops.imbrex.matmul(a, b, bias, None, ctx.alpha, ctx.beta, residual, torch.float32)
    if ctx.activation == "silu":
        return torch.ops.aten.silu_backward(grad.float(), z)
    form = "none" if ctx.activation == "gelu" else "tanh"
    return torch.ops.aten.gelu_backward(grad.float(), z, approximate=form)


def _matmul_backward(ctx, grad):
    a, b = ctx.saved_tensors[:2]
    grad = _before_activation(ctx, grad)
    of_bias, of_residual = ctx.facts
    grad_bias = grad_residual = None
    if of_bias is not None:
        shape, dtype = of_bias  # per column: [n] or [1, n]; per row: [m, 1]
        per_row = len(shape) == 2 and shape[1] == 1 and grad.shape[-1] != 1
        sums = grad.float().sum(-1) if per_row else grad.float().flatten(0, -2).sum(0)
        if per_row and sums.dim() == 2:
            sums = sums.sum(0)
        grad_bias = sums.reshape(shape).to(dtype)
    if of_residual is not None:
        grad_residual = _to(ctx.beta * grad, of_residual[0]).to(of_residual[1])
    scaled = (ctx.alpha * grad).to(a.dtype)
    grad_a = _to(_product(scaled, b.mT), a.shape) if ctx.needs_input_grad[0] else None
    grad_b = _to(_product(a.mT, scaled), b.shape) if ctx.needs_input_grad[1] else None
    return grad_a, grad_b, grad_bias, None, None, None, grad_residual, None, None, None


def _gated_matmul_context(ctx, inputs, output):
    *tensors, ctx.activation, _, scale_a, scale_b = inputs
    if scale_a is not None or scale_b is not None or tensors[0].dtype not in (torch.float16, torch.bfloat16):
        _refuse("gated_matmul", "scaled operands and float8 have")
    ctx.save_for_backward(*tensors)


def _gated_matmul_backward(ctx, grad):
    a, b, up = ctx.saved_tensors
    # Both products anew: they were never stored.
    gate, factor = _product(a, b), _product(a, up)
    grad_gate, grad_factor = torch.ops.imbrex.gated_backward(grad.to(a.dtype).contiguous(), gate, factor, ctx.activation)
    grad_a = grad_b = grad_up = None
    if ctx.needs_input_grad[0]:
        grad_a = torch.ops.imbrex.matmul(grad_factor, up.mT, residual=_product(grad_gate, b.mT), beta=1.0)
    if ctx.needs_input_grad[1]:
        grad_b = _product(a.mT, grad_gate)
    if ctx.needs_input_grad[2]:
        grad_up = _product(a.mT, grad_factor)
    return grad_a, grad_b, grad_up, None, None, None, None


def _grouped_matmul_context(ctx, inputs, output):
    a, b, rows, ctx.masked, _, scale_a, scale_b = inputs
    if scale_a is not None or scale_b is not None or a.dtype not in (torch.float16, torch.bfloat16):
        _refuse("grouped_matmul", "operands of float8 have")
    ctx.save_for_backward(a, b, rows)


def _grouped_matmul_backward(ctx, grad):
    a, b, rows = ctx.saved_tensors
    grad = grad.to(a.dtype).contiguous()
    grad_a = grad_b = None
    if ctx.needs_input_grad[0]:
        grad_a = torch.ops.imbrex.grouped_matmul_rows_gradient(grad, b.contiguous(), rows, ctx.masked)
    if ctx.needs_input_grad[1]:  # lies in memory as b does: [groups, n, k]
        grad_b = torch.ops.imbrex.grouped_matmul_weight_gradient(grad, a.contiguous(), rows, ctx.masked).mT
    return grad_a, grad_b, None, None, None, None, None


_OF_FORWARD = 7  # arguments of attention() that attention_forward() has too: those in front of the scales


def _kept_options(inputs, options):
    if any(scale is not None for scale in inputs[_OF_FORWARD:]) or inputs[0].dtype not in (torch.float16, torch.bfloat16):
        _refuse("attention", "operands of float8 have")
    return {name: value for name, value in options.items() if name != "out_dtype"}


def _attention_context(ctx, inputs, keyword_only_inputs, output):
    slopes, sinks = inputs[3:5]
    for name, tensor in (("alibi_slopes", slopes), ("sinks", sinks)):
        if tensor is not None and tensor.requires_grad:
            _refuse("attention", f"{name} have")
    known = output if isinstance(output, tuple) else ()
    ctx.options = _kept_options(inputs, keyword_only_inputs)
    ctx.inputs = len(inputs)
    ctx.save_for_backward(*inputs[:_OF_FORWARD], *known)
    ctx.mark_non_differentiable(*known[1:])


def _attention_backward(ctx, grad, *_):
    saved = ctx.saved_tensors
    inputs, known = saved[:_OF_FORWARD], saved[_OF_FORWARD:]
    q, k, v, *others = inputs
    o, log_sum_exp = known or torch.ops.imbrex.attention_forward(*inputs, **ctx.options)
    gradients = torch.ops.imbrex.attention_backward(grad, q, k, v, o, log_sum_exp, *others, **ctx.options)
    return (*gradients, *[None] * (ctx.inputs - 3))


def _softmax_context(ctx, inputs, output):
    ctx.save_for_backward(output)


def _softmax_backward(ctx, grad):
    return torch.ops.imbrex.softmax_backward(grad.contiguous(), *ctx.saved_tensors)


def _layer_norm_context(ctx, inputs, output):
    x, weight, bias, ctx.eps = inputs
    ctx.save_for_backward(x, weight)
    ctx.bias_dtype = bias.dtype


def _layer_norm_backward(ctx, grad):
    dx, dweight, dbias = torch.ops.imbrex.layer_norm_backward(grad.contiguous(), *ctx.saved_tensors, ctx.eps)
    return dx, dweight, dbias.to(ctx.bias_dtype), None


def _rms_norm_context(ctx, inputs, output):
    *tensors, ctx.eps = inputs
    ctx.save_for_backward(*tensors)


def _rms_norm_backward(ctx, grad):
    return (*torch.ops.imbrex.rms_norm_backward(grad.contiguous(), *ctx.saved_tensors, ctx.eps), None)


def _gated_context(ctx, inputs, output):
    *tensors, ctx.activation = inputs
    ctx.save_for_backward(*tensors)


def _gated_backward(ctx, grad):
    return (*torch.ops.imbrex.gated_backward(grad.contiguous(), *ctx.saved_tensors, ctx.activation), None)


def _rope_context(ctx, inputs, keyword_only_inputs, output):
    _, cos, sin, positions = inputs
    if cos.requires_grad or sin.requires_grad:
        _refuse("rope", "cos and sin have")
    ctx.save_for_backward(cos, sin, positions)
    ctx.options = keyword_only_inputs


def _rope_backward(ctx, grad):
    back = {**ctx.options, "inverse": not ctx.options["inverse"]}
    return torch.ops.imbrex.rope(grad.contiguous(), *ctx.saved_tensors, **back), None, None, None


def _cross_entropy_context(ctx, inputs, output):
    ctx.save_for_backward(*inputs)


def _cross_entropy_backward(ctx, grad):
    gradient = torch.ops.imbrex.cross_entropy_gradient(*ctx.saved_tensors)
    return (gradient * grad.unsqueeze(-1)).to(gradient.dtype), None


def _top_k_context(ctx, inputs, output):
    ctx.mark_non_differentiable(output[1])
    ctx.save_for_backward(output[1])
    ctx.shape = inputs[0].shape


def _top_k_backward(ctx, grad, _):
    (indices,) = ctx.saved_tensors
    return grad.new_zeros(ctx.shape).scatter(-1, indices.long(), grad), None


def _transpose_context(ctx, inputs, output):
    pass


def _transpose_backward(ctx, grad):
    return torch.ops.imbrex.transpose(grad.contiguous())


_FORMULAS = {
    "matmul": (_matmul_context, _matmul_backward),
    "gated_matmul": (_gated_matmul_context, _gated_matmul_backward),
    "grouped_matmul": (_grouped_matmul_context, _grouped_matmul_backward),
    "attention": (_attention_context, _attention_backward),
    "attention_forward": (_attention_context, _attention_backward),
    "softmax": (_softmax_context, _softmax_backward),
    "layer_norm": (_layer_norm_context, _layer_norm_backward),
    "rms_norm": (_rms_norm_context, _rms_norm_backward),
    "gated": (_gated_context, _gated_backward),
    "rope": (_rope_context, _rope_backward),
    "cross_entropy": (_cross_entropy_context, _cross_entropy_backward),
    "top_k": (_top_k_context, _top_k_backward),
    "transpose": (_transpose_context, _transpose_backward),
}
