# SPDX-License-Identifier: Apache-2.0
"""torch's tensors on the host: eager, under torch.compile, with autograd. tests/python/on_gpu.py is for those of a GPU."""
import subprocess
import sys

import pytest

import imbrex

torch = pytest.importorskip("torch", reason="SKIPPED: needs PyTorch: pip install torch")


def normal(*shape, dtype=torch.float32, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed + sum(shape))).to(dtype)


def error(got, expected):
    return ((got.double() - expected.double()).abs().max() / expected.double().abs().max()).item()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_matmul(dtype):
    a, w = normal(33, 64, dtype=dtype), normal(40, 64, dtype=dtype)
    c = imbrex.matmul(a, w.T)
    assert isinstance(c, torch.Tensor) and c.dtype == dtype
    assert error(c, a.double() @ w.double().T) < 1e-2
    out = torch.full((33, 40), float("nan"))
    assert imbrex.matmul(a, w.T, out=out) is out and error(out, a.double() @ w.double().T) < 1e-5


def test_operators_are_registered():
    a = normal(16, 16, dtype=torch.float16)
    assert torch.equal(torch.ops.imbrex.matmul(a, a), imbrex.matmul(a, a))
    x = normal(3, 5)
    assert error(torch.ops.imbrex.softmax(x), torch.softmax(x, -1)) < 1e-6
    w, b = normal(5), normal(5)
    assert error(torch.ops.imbrex.layer_norm(x, w, b), torch.nn.functional.layer_norm(x, (5,), w, b)) < 1e-5
    q = normal(2, 4, 20, 32, dtype=torch.float16)
    expected = torch.nn.functional.scaled_dot_product_attention(q.double(), q.double(), q.double(), is_causal=True)
    assert error(torch.ops.imbrex.attention(q, q, q, causal=True), expected) < 3e-3


def test_torch_checks_the_operators():
    a, b = normal(16, 24, dtype=torch.float16), normal(24, 8, dtype=torch.float16)
    checks = ("test_schema", "test_faketensor", "test_autograd_registration")
    torch.library.opcheck(torch.ops.imbrex.matmul.default, (a, b), test_utils=checks)
    torch.library.opcheck(torch.ops.imbrex.softmax.default, (normal(3, 5),), test_utils=checks)
    torch.library.opcheck(torch.ops.imbrex.layer_norm.default, (normal(3, 5), normal(5), normal(5)), test_utils=checks)
    q = normal(2, 20, 3, 16, dtype=torch.float16).transpose(1, 2)
    torch.library.opcheck(torch.ops.imbrex.attention.default, (q, q, q), {"causal": True}, test_utils=checks)


ACTIVATIONS = {
    None: lambda x: x,
    "relu": torch.relu,
    "silu": torch.nn.functional.silu,
    "gelu": torch.nn.functional.gelu,
    "gelu_tanh": lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
}


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_gradients(activation):
    def leaf(*shape, dtype=torch.float16):
        return normal(*shape, dtype=dtype).requires_grad_()

    a, b, bias, residual = leaf(24, 16), leaf(16, 40), leaf(40, dtype=torch.float32), leaf(24, 40)
    own = [a, b, bias, residual]
    c = imbrex.matmul(a, b, bias=bias, residual=residual, beta=0.5, alpha=2.0, activation=activation)
    weights = normal(24, 40)
    got = torch.autograd.grad((c.float() * weights).sum(), own)
    doubles = [t.detach().double().requires_grad_() for t in own]
    d = 2.0 * doubles[0] @ doubles[1] + doubles[2] + 0.5 * doubles[3]
    d = ACTIVATIONS[activation](d)
    expected = torch.autograd.grad((d * weights.double()).sum(), doubles)
    for g, e, t in zip(got, expected, own):
        assert g.dtype == t.dtype and error(g, e) < 1e-2
    with torch.no_grad():
        assert not imbrex.matmul(a, b).requires_grad
    with pytest.raises(NotImplementedError, match="scaled operands have no gradient"):
        imbrex.matmul(a, b, scale_a=torch.ones(1))


def test_gradients_of_a_batch():
    a, b = normal(3, 24, 16, dtype=torch.float16), normal(16, 40, dtype=torch.float16)
    a.requires_grad_(), b.requires_grad_()
    weights = normal(3, 24, 40)
    got = torch.autograd.grad((imbrex.matmul(a, b).float() * weights).sum(), (a, b))
    da, db = (t.detach().double().requires_grad_() for t in (a, b))
    expected = torch.autograd.grad(((da @ db) * weights.double()).sum(), (da, db))
    for g, e in zip(got, expected):
        assert g.shape == e.shape and error(g, e) < 1e-2


def gradients(function, *tensors):
    """Of a sum with weights that depend on the shape of the result alone."""
    leaves = [t.detach().requires_grad_() for t in tensors]
    out = function(*leaves)
    return torch.autograd.grad((out.double() * normal(*out.shape).double()).sum(), leaves)


def exact_attention(q, k, v, causal):
    k, v = (t.repeat_interleave(q.shape[-3] // t.shape[-3], -3) for t in (k, v))
    scores = q @ k.mT / q.shape[-1] ** 0.5
    rows, columns = scores.shape[-2:]
    hidden = torch.ones(rows, columns, dtype=torch.bool).triu(columns - rows + 1) if causal else torch.zeros(rows, columns, dtype=torch.bool)
    return torch.softmax(scores.masked_fill(hidden, float("-inf")), -1).nan_to_num(0) @ v


# Rows of q before those of k see nothing at all where there are more of q.
@pytest.mark.parametrize("rows, kv_rows, causal", [(20, 20, False), (20, 20, True), (12, 20, True), (24, 20, True)])
def test_gradients_of_attention(rows, kv_rows, causal):
    q, k, v = (normal(2, *shape, 16, dtype=torch.float16) for shape in [(4, rows), (2, kv_rows), (2, kv_rows)])
    got = gradients(lambda *t: imbrex.attention(*t, causal=causal), q, k, v)
    seen = gradients(lambda *t: imbrex.attention(*t, causal=causal), q[0], k[0], v[0])[0]
    assert seen.shape == q[0].shape
    expected = gradients(lambda *t: exact_attention(*t, causal=causal), q.double(), k.double(), v.double())
    for g, e in zip(got, expected):
        assert g.dtype == torch.float16 and error(g, e.nan_to_num(0)) < 1e-2


def test_gradients_of_attention_in_any_order():
    """By another kernel, whose last bits are others."""
    q, k, v = (normal(4, rows, 64, dtype=torch.float16) for rows in (150, 140, 140))
    one_order, any_order = (
        gradients(lambda *t: imbrex.attention(*t, deterministic=deterministic), q, k, v) for deterministic in (True, False)
    )
    expected = gradients(lambda *t: exact_attention(*t, causal=False), q.double(), k.double(), v.double())
    for g, e in zip(any_order, expected):
        assert error(g, e) < 1e-2
    assert not torch.equal(one_order[0], any_order[0])


def test_gradients_of_attention_with_other_sizes_and_orders():
    q, k = (normal(2, 20, 2, 32, dtype=torch.float16, seed=i).transpose(1, 2) for i in range(2))
    v = normal(2, 2, 20, 48, dtype=torch.float16)
    got = gradients(lambda *t: imbrex.attention(*t, scale=0.3), q, k, v)
    expected = gradients(
        lambda q, k, v: torch.softmax(0.3 * q @ k.mT, -1) @ v, q.double(), k.double(), v.double()
    )
    for g, e, t in zip(got, expected, (q, k, v)):
        assert error(g, e) < 1e-2 and g.stride() == t.stride()
    o = torch.ops.imbrex.attention(q.requires_grad_(), k, v)
    assert o.requires_grad and o.shape == v.shape
    checks = ("test_schema", "test_faketensor", "test_autograd_registration")
    torch.library.opcheck(torch.ops.imbrex.attention_forward.default, (q.detach(), k, v), test_utils=checks)


STEPS = {
    "window": {"window": (5, 2)},
    "soft cap": {"soft_cap": 1.5, "causal": True},
    "prefix": {"prefix": 6},
    "alibi": {"alibi_slopes": torch.tensor([0.5, 0.25])},
    "sinks": {"sinks": torch.tensor([0.5, -1.0]), "causal": True},
}


@pytest.mark.parametrize("what", STEPS)
def test_gradients_of_attention_with(what):
    """Against differences: of the sum along a direction, by the kernel itself, in q."""
    options = STEPS[what]
    q, k, v, along = (normal(2, 24, 16, dtype=torch.float16, seed=i) for i in range(4))
    weights = normal(2, 24, 16).double()
    (got,) = gradients(lambda t: imbrex.attention(t, k, v, **options), q)

    def at(step):
        return (imbrex.attention(q + step * along, k, v, **options).double() * weights).sum()

    expected = (at(0.0625) - at(-0.0625)) / 0.125
    slope = (got.double() * along.double()).sum()
    assert abs(slope - expected) < 0.02 * (got.double() * along.double()).abs().sum()


def test_attention_refuses_gradients_that_are_not_computed():
    q = normal(2, 8, 16, dtype=torch.float16)
    with pytest.raises(NotImplementedError, match="sinks have no gradient"):
        imbrex.attention(q, q, q, sinks=torch.zeros(2, requires_grad=True))


def test_gradients_of_packed_sequences():
    begins = [0, 7, 7, 30]
    at = torch.tensor(begins, dtype=torch.int32)
    q, k, v = (normal(heads, 30, 16, dtype=torch.float16, seed=i) for i, heads in enumerate((4, 2, 2)))
    packed = gradients(lambda *t: imbrex.attention(*t, causal=True, q_begins=at, kv_begins=at), q, k, v)
    expected = gradients(
        lambda *t: torch.cat([exact_attention(*(x[:, b:e] for x in t), True) for b, e in zip(begins, begins[1:])], 1),
        *(t.double() for t in (q, k, v)),
    )
    for g, e in zip(packed, expected):
        assert error(g, e) < 1e-2


def test_attention_of_float8_and_latent_attention_are_operators():
    checks = ("test_schema", "test_faketensor")
    q, k, v = (normal(2, 24, 32, seed=i).to(torch.float8_e4m3fn) for i in range(3))
    o = imbrex.attention(q, k, v)
    assert o.dtype == torch.bfloat16 and error(o, exact_attention(q.double(), k.double(), v.double(), False)) < 0.2
    latent, cache = normal(1, 3, 1, 128, dtype=torch.float16), normal(1, 1, 40, 128, dtype=torch.float16)
    torch.library.opcheck(
        torch.ops.imbrex.attention_latent_decode.default, (latent, cache), {"value_size": 128}, test_utils=checks
    )
    with pytest.raises(NotImplementedError, match="float8 have no gradient"):
        scale = torch.ones(2, requires_grad=True)
        imbrex.attention(q, k, v, q_scales=scale, k_scales=scale, v_scales=scale)


def test_attention_keeps_the_order_of_memory():
    q, k, v = normal(2, 20, 3, 4, 16, dtype=torch.float16).permute(2, 0, 3, 1, 4)  # of [batch, rows, 3, heads, size]
    o = imbrex.attention(q, k, v)
    assert o.shape == q.shape and o.transpose(1, 2).is_contiguous()
    assert torch.equal(o, imbrex.attention(q.contiguous(), k, v))


def test_modes_and_transforms_see_the_operators():
    from torch.utils._python_dispatch import TorchDispatchMode

    seen = []

    class Mode(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            seen.append(str(function))
            return function(*args, **(kwargs or {}))

    a = normal(16, 16, dtype=torch.float16)
    plain = torch.ops.imbrex.matmul(a, a)
    with Mode():
        assert torch.equal(torch.ops.imbrex.matmul(a, a), plain)
    assert "imbrex.matmul.default" in seen


def test_compiled_as_one_graph():
    def layer(x, w, bias):
        return torch.sin(imbrex.matmul(x, w.T, bias=bias, activation="relu")) + 1

    x, w, bias = normal(16, 32, dtype=torch.float16), normal(24, 32, dtype=torch.float16), normal(24)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    assert error(compiled(x, w, bias), layer(x, w, bias)) < 1e-3
    w.requires_grad_()
    compiled(x, w, bias).float().sum().backward()
    by_compiled, w.grad = w.grad, None
    layer(x, w, bias).float().sum().backward()
    assert error(by_compiled, w.grad) < 1e-2


def test_gradients_when_compiled():
    def layer(x, w, norm):
        q = imbrex.matmul(x * norm, w.T, activation="silu").reshape(20, 2, 16).transpose(0, 1)
        return imbrex.softmax(imbrex.attention(q, q, q, causal=True).float())

    tensors = normal(20, 32, dtype=torch.float16), normal(32, 32, dtype=torch.float16), normal(32, dtype=torch.float16)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    for got, expected in zip(gradients(compiled, *tensors), gradients(layer, *tensors)):
        assert error(got, expected) < 1e-2


@pytest.mark.parametrize("first", ["torch", "imbrex"])
def test_either_may_be_imported_first(first):
    second = "imbrex" if first == "torch" else "torch"
    text = f"import {first}, {second}; print(torch.ops.imbrex.softmax(torch.zeros(1, 4)))"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False)
    assert "0.25" in done.stdout, done.stderr


def test_torch_may_be_looked_for_before_it_is_imported():
    text = "import imbrex, importlib.util as u; u.find_spec('torch'); import torch; print(torch.ops.imbrex.softmax(torch.zeros(1, 4)))"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False)
    assert "0.25" in done.stdout, done.stderr


def test_imbrex_alone_does_not_import_torch():
    text = "import sys, imbrex; sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", text], check=False).returncode == 0


def test_refuses():
    a = normal(16, 16, dtype=torch.float16)
    with pytest.raises(imbrex.LaunchError, match="b is float32.*, a is float16"):
        imbrex.matmul(a, a.float())
    with pytest.raises(Exception, match="inner sizes 16 and 8 differ"):
        imbrex.matmul(a, a[:8])
