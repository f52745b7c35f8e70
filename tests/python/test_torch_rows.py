# SPDX-License-Identifier: Apache-2.0
"""torch's tensors, row by row and in groups: results, gradients, registration, torch.compile. On the host, or where
IMBREX_TEST_DEVICE=cuda says so on a Hopper GPU."""
import os

import pytest

import imbrex

torch = pytest.importorskip("torch", reason="SKIPPED: needs PyTorch: pip install torch")
functional = torch.nn.functional
DEVICE = os.environ.get("IMBREX_TEST_DEVICE", "cpu")


@pytest.fixture(autouse=True)
def on_the_device():
    with torch.device(DEVICE):
        yield


def normal(*shape, dtype=torch.float32, seed=0):
    generator = torch.Generator("cpu").manual_seed(seed + sum(shape))
    return torch.randn(*shape, generator=generator, device="cpu").to(DEVICE, dtype)


def error(got, expected):
    return ((got.double() - expected.double()).abs().max() / expected.double().abs().max()).item()


def both(ours, exact, *tensors, tolerance=1e-5):
    """Values and gradients of `ours`, against those of `exact` in float64."""
    leaves = [t.detach().requires_grad_() for t in tensors]
    doubles = [t.detach().double().requires_grad_() for t in tensors]
    got, expected = ours(*leaves), exact(*doubles)
    assert got.shape == expected.shape and error(got.detach(), expected.detach()) < tolerance
    weights = normal(*expected.shape).double()
    gradients = torch.autograd.grad((got.double() * weights).sum(), leaves)
    for g, e, t in zip(gradients, torch.autograd.grad((expected * weights).sum(), doubles), tensors):
        assert g.dtype == t.dtype and g.shape == t.shape and error(g, e) < tolerance


def exact_rms_norm(x, weight):
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * weight


TYPES = {torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 3e-2}
types = pytest.mark.parametrize("dtype", TYPES, ids=str)


@types
@pytest.mark.parametrize("shape", [(7, 33), (3, 7, 40)])
def test_rows(shape, dtype):
    tolerance, n = TYPES[dtype], shape[-1]
    x, w, b = normal(*shape, dtype=dtype), normal(n, dtype=dtype), normal(n, seed=1)
    both(imbrex.softmax, lambda x: torch.softmax(x, -1), x, tolerance=tolerance)
    both(imbrex.layer_norm, lambda x, w, b: functional.layer_norm(x, (n,), w, b), x, w, b, tolerance=tolerance)
    both(imbrex.rms_norm, exact_rms_norm, x, w, tolerance=tolerance)


def test_a_gradient_that_is_one_number():
    x = normal(5, 32).requires_grad_()
    imbrex.rms_norm(x, torch.ones(32)).sum().backward()  # its gradient has strides of 0
    got, x.grad = x.grad, None
    exact_rms_norm(x, torch.ones(32)).sum().backward()
    assert error(got, x.grad) < 1e-4


@pytest.mark.parametrize("activation", ["silu", "gelu", "gelu_tanh", "relu", None])
def test_gated(activation):
    forms = {
        "silu": functional.silu,
        "gelu": functional.gelu,
        "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
        "relu": torch.relu,
        None: lambda x: x,
    }
    halves = normal(6, 80)
    both(
        lambda gate, up: imbrex.gated(gate, up, activation),
        lambda gate, up: forms[activation](gate) * up,
        halves[:, :40],
        halves[:, 40:],
        tolerance=1e-4,
    )


def test_rope():
    x, angle, places = normal(5, 3, 16), normal(9, 8), torch.tensor([8, 0, 3, 3, 1], dtype=torch.int32)
    cos, sin = angle.cos(), angle.sin()

    def exact(x):
        c, s = (t[places.long()][:, None] for t in (cos.double(), sin.double()))
        first, second = x.chunk(2, -1)
        return torch.cat([first * c - second * s, second * c + first * s], -1)

    both(lambda x: imbrex.rope(x, cos, sin, places), exact, x)


def test_transpose():
    both(imbrex.transpose, lambda x: x.mT, normal(2, 9, 40))


@types
def test_cross_entropy(dtype):
    classes = torch.tensor([0, 32, 5, -1, 8, 8, 31], dtype=torch.int32)
    both(
        lambda x: imbrex.cross_entropy(x, classes),
        lambda x: functional.cross_entropy(x, classes.long(), reduction="none", ignore_index=-1),
        normal(7, 33, dtype=dtype),
        tolerance=TYPES[dtype],
    )


def test_top_k():
    both(lambda x: imbrex.top_k(x, 3)[0], lambda x: torch.topk(x, 3).values, normal(4, 20))
    assert torch.equal(imbrex.top_k(normal(4, 20), 3)[1].long(), torch.topk(normal(4, 20), 3).indices)


@pytest.mark.parametrize("activation", ["silu", "gelu_tanh"])
def test_gated_matmul(activation):
    form = {"silu": torch.nn.functional.silu, "gelu_tanh": lambda x: torch.nn.functional.gelu(x, approximate="tanh")}[activation]
    both(
        lambda a, b, up: imbrex.gated_matmul(a, b.T, up.T, activation),
        lambda a, b, up: form(a @ b.T) * (a @ up.T),
        *(normal(n, 32, dtype=torch.float16, seed=i) / 2 for i, n in enumerate((24, 40, 40))),
        tolerance=2e-2,
    )


def test_scaled_gated_products_have_no_gradient():
    a, w = normal(8, 16, dtype=torch.float16).requires_grad_(), normal(8, 16, dtype=torch.float16)
    with pytest.raises(NotImplementedError, match="gated_matmul: scaled operands and float8 have no gradient"):
        imbrex.gated_matmul(a, w.T, w.T, scale_a=torch.ones(8))


@pytest.mark.parametrize("masked", [False, True])
def test_grouped_matmul(masked):
    rows = torch.tensor([3, 0, 8, 5] if masked else [0, 7, 7, 21, 30], dtype=torch.int32)
    a = normal(4, 8, 16, dtype=torch.float16) if masked else normal(32, 16, dtype=torch.float16)
    w = normal(4, 24, 16, dtype=torch.float16)

    def exact(a, w):
        made = torch.zeros(*a.shape[:-1], 24, dtype=torch.float64)
        for g in range(4):
            part = (g, slice(0, int(rows[g]))) if masked else slice(int(rows[g]), int(rows[g + 1]))
            made[part] = a[part] @ w[g].T
        return made

    def ours(a, w):
        made = imbrex.grouped_matmul(a, w.mT, rows, masked=masked)
        used = torch.zeros(made.shape[:-1], dtype=torch.bool)
        for g in range(4):
            used[(g, slice(0, int(rows[g]))) if masked else slice(int(rows[g]), int(rows[g + 1]))] = True
        return torch.where(used[..., None], made, 0)

    both(ours, exact, a, w, tolerance=1e-2)


def test_scaled_groups_have_no_gradient():
    a, w = normal(8, 16).to(torch.float8_e4m3fn), normal(1, 8, 16, dtype=torch.float16)
    scale = torch.ones(8, requires_grad=True)
    with pytest.raises(NotImplementedError, match="operands of float8 have no gradient"):
        torch.ops.imbrex.grouped_matmul(
            a, w.to(torch.float8_e4m3fn).mT, torch.tensor([0, 8], dtype=torch.int32), False, None, scale, torch.ones(1, 8)
        )


def calls():
    x, w, half = normal(4, 32), normal(32), normal(4, 32, dtype=torch.float16)
    ints = torch.tensor([1, 2, 3, 0], dtype=torch.int32)
    q = normal(2, 4, 1, 64, dtype=torch.float16)
    cache = normal(2, 2, 48, 64, dtype=torch.float16)
    weights = normal(2, 8, 32, dtype=torch.float16).mT
    first = torch.tensor([0, 3, 4], dtype=torch.int32)
    return {
        "softmax": ((x,), {}),
        "softmax_backward": ((x, x), {}),
        "layer_norm": ((half, w, w), {}),
        "layer_norm_backward": ((half, half, w, 1e-5), {}),
        "rms_norm": ((half, w), {}),
        "rms_norm_backward": ((half, half, w, 1e-6), {}),
        "gated": ((x, x), {}),
        "gated_backward": ((x, x, half, "silu"), {}),
        "rope": ((normal(4, 2, 8), normal(4, 4), normal(4, 4), ints), {"interleaved": True}),
        "cross_entropy": ((half, ints), {}),
        "cross_entropy_gradient": ((half, ints), {}),
        "top_k": ((x, 3), {}),
        "transpose": ((half,), {}),
        "quantise_float8": ((normal(3, 4, 200),), {"block": 128}),
        "rms_factors": ((half,), {}),
        "gated_matmul": ((half, weights[0], weights[1]), {}),
        "quantised_matmul": ((half, normal(144, 32, dtype=torch.float16).mT), {}),
        "attention_decode": ((q, cache, cache, torch.tensor([48, 20], dtype=torch.int32)), {"causal": True}),
        "grouped_matmul": ((half, weights, first), {}),
        "grouped_matmul_rows_gradient": ((normal(4, 8, dtype=torch.float16), weights.contiguous(), first), {}),
        "grouped_matmul_weight_gradient": ((half, half, first), {}),
    }


@pytest.mark.parametrize("name", calls())
def test_torch_checks(name):
    args, kwargs = calls()[name]
    operator = getattr(torch.ops.imbrex, name).default
    checks = ("test_schema", "test_faketensor", "test_autograd_registration")
    torch.library.opcheck(operator, args, kwargs, test_utils=checks)


def test_compiled_as_one_graph():
    first = torch.tensor([0, 12, 20], dtype=torch.int32)
    ones, zeros, classes = torch.ones(20, 8), torch.zeros(20, 8), torch.arange(20, dtype=torch.int32)

    def layer(x, w, norm):
        rows = imbrex.rms_norm(x, norm)
        up = imbrex.matmul(rows, w.T)
        h = imbrex.gated(up[:, :32], up[:, 32:])
        h = imbrex.layer_norm(h, norm, norm)
        h = imbrex.grouped_matmul(h, w.reshape(2, 32, 32).mT, first)
        turned = imbrex.rope(h.reshape(20, 2, 16), ones, zeros).reshape(20, 32)
        largest, _ = imbrex.top_k(turned, 2)
        return imbrex.cross_entropy(turned, classes) + largest.float().sum(-1)

    tensors = normal(20, 32, dtype=torch.float16), normal(64, 32, dtype=torch.float16), normal(32, dtype=torch.float16)
    results = []
    for function in (layer, torch.compile(layer, fullgraph=True, backend="aot_eager")):
        leaves = [t.detach().requires_grad_() for t in tensors]
        out = function(*leaves)
        results.append((out.detach(), *torch.autograd.grad(out.sum(), leaves)))
    for got, expected in zip(*results):
        assert error(got, expected) < 2e-2


def test_compiled_decode_and_out():
    def step(q, k, v, lengths, out):
        imbrex.softmax(imbrex.attention_decode(q, k, v, lengths), out=out)
        return imbrex.quantise_float8(out.reshape(8, 64))[1]

    q, k = normal(2, 4, 1, 64, dtype=torch.float16), normal(2, 2, 48, 64, dtype=torch.float16)
    lengths = torch.tensor([48, 20], dtype=torch.int32)
    made = [torch.full((2, 4, 1, 64), float("nan"), dtype=torch.float16) for _ in range(2)]
    scales = [f(q, k, k, lengths, out) for f, out in zip((step, torch.compile(step, fullgraph=True, backend="aot_eager")), made)]
    assert torch.equal(scales[0], scales[1]) and torch.equal(made[0], made[1]) and not made[0].isnan().any()
