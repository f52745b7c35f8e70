# SPDX-License-Identifier: Apache-2.0
"""What Triton's tutorials teach, written anew: vector add, softmax, matmul with autotuning, dropout, layer norm with its
backward pass, attention. Tensors are PyTorch's, on the GPU, as in any such program; it knows nothing of a virtual one."""
import sys

import torch
import triton
import triton.language as tl

DEVICE = triton.runtime.driver.active.get_active_torch_device()


def compare(got, wanted, tolerance):
    assert got.is_cuda and got.shape == wanted.shape and got.dtype == wanted.dtype
    got, wanted = got.double(), wanted.double()
    assert not got.isnan().any()
    difference = (got - wanted).abs().max().item()
    assert difference <= tolerance * max(1, wanted.abs().max().item()), difference


@triton.jit
def add_kernel(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, i < n) + tl.load(y + i, i < n), i < n)


def vector_add():
    n = 98432 // 16 + 3
    x, y = torch.rand(n, device=DEVICE), torch.rand(n, device=DEVICE)
    out = torch.full_like(x, float("nan"))
    add_kernel[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, y, out, n, BLOCK=1024)
    compare(out, x + y, 0)


@triton.jit
def softmax_kernel(out, x, out_stride, x_stride, rows, cols, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    for row in tl.range(tl.program_id(0), rows, tl.num_programs(0)):
        values = tl.load(x + row * x_stride + i, i < cols, other=-float("inf"))
        powers = tl.exp(values - tl.max(values, 0))
        tl.store(out + row * out_stride + i, powers / tl.sum(powers, 0), i < cols)


def softmax():
    x = torch.randn(37, 781, device=DEVICE)
    out = torch.full_like(x, float("nan"))
    block = triton.next_power_of_2(x.shape[1])
    softmax_kernel[(8,)](out, x, out.stride(0), x.stride(0), *x.shape, BLOCK=block, num_warps=8)
    compare(out, torch.softmax(x.double(), 1).float(), 1e-6)


@triton.autotune(
    configs=[
        triton.Config({"BM": 64, "BN": 64, "BK": 32, "GROUP": 4}, num_stages=3, num_warps=4),
        triton.Config({"BM": 128, "BN": 64, "BK": 32, "GROUP": 8}, num_stages=2, num_warps=4),
    ],
    key=["m", "n", "k"],
)
@triton.jit
def matmul_kernel(a, b, c, m, n, k, am, ak, bk, bn, cm, cn, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
                  GROUP: tl.constexpr):
    pid = tl.program_id(0)
    tiles_m, tiles_n = tl.cdiv(m, BM), tl.cdiv(n, BN)
    first = pid // (GROUP * tiles_n) * GROUP
    group = min(tiles_m - first, GROUP)
    tile_m = first + pid % (GROUP * tiles_n) % group
    tile_n = pid % (GROUP * tiles_n) // group
    i = (tile_m * BM + tl.arange(0, BM)) % m
    j = (tile_n * BN + tl.arange(0, BN)) % n
    l = tl.arange(0, BK)
    a += i[:, None] * am + l[None, :] * ak
    b += l[:, None] * bk + j[None, :] * bn
    acc = tl.zeros((BM, BN), tl.float32)
    for left in range(k, 0, -BK):
        acc = tl.dot(tl.load(a, l[None, :] < left, 0.0), tl.load(b, l[:, None] < left, 0.0), acc)
        a += BK * ak
        b += BK * bk
    i = tile_m * BM + tl.arange(0, BM)
    j = tile_n * BN + tl.arange(0, BN)
    tl.store(c + i[:, None] * cm + j[None, :] * cn, acc.to(tl.float16), (i[:, None] < m) & (j[None, :] < n))


def matmul():
    m, n, k = 144, 136, 88
    a = torch.randn(m, k, device=DEVICE, dtype=torch.float16)
    b = torch.randn(n, k, device=DEVICE, dtype=torch.float16).T
    c = torch.full((m, n), float("nan"), device=DEVICE, dtype=torch.float16)
    grid = lambda meta: (triton.cdiv(m, meta["BM"]) * triton.cdiv(n, meta["BN"]),)
    matmul_kernel[grid](a, b, c, m, n, k, *a.stride(), *b.stride(), *c.stride())
    compare(c, (a.double() @ b.double()).half(), 1e-3)


@triton.jit
def dropout_kernel(x, out, n, p, seed, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(x + i, i < n)
    tl.store(out + i, tl.where(tl.rand(seed, i) > p, values / (1 - p), 0.0), i < n)


def dropout():
    n, p = 5000, 0.3
    x = torch.randn(n, device=DEVICE)
    outs = []
    for seed in (123, 123, 512):
        out = torch.full_like(x, float("nan"))
        dropout_kernel[(triton.cdiv(n, 1024),)](x, out, n, p, seed, BLOCK=1024)
        kept = out != 0
        assert abs(kept.float().mean().item() - (1 - p)) < 0.03
        compare(out[kept], x[kept] / (1 - p), 1e-6)
        outs.append(out)
    assert torch.equal(outs[0], outs[1]) and not torch.equal(outs[0], outs[2])


@triton.jit
def layer_norm_forward(x, y, w, b, mean, rstd, cols, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    values = tl.load(x + row * cols + i, i < cols, 0.0)
    mu = tl.sum(values, 0) / cols
    centred = tl.where(i < cols, values - mu, 0.0)
    r = 1 / tl.sqrt(tl.sum(centred * centred, 0) / cols + eps)
    tl.store(mean + row, mu)
    tl.store(rstd + row, r)
    tl.store(y + row * cols + i, centred * r * tl.load(w + i, i < cols) + tl.load(b + i, i < cols), i < cols)


@triton.jit
def layer_norm_backward(dx, dy, dw, db, x, w, mean, rstd, lock, rows, cols, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    weight = tl.load(w + i, i < cols, 0.0)
    sum_dw = tl.zeros((BLOCK,), tl.float32)
    sum_db = tl.zeros((BLOCK,), tl.float32)
    for row in range(tl.program_id(0) * ROWS, min((tl.program_id(0) + 1) * ROWS, rows)):
        hat = (tl.load(x + row * cols + i, i < cols, 0.0) - tl.load(mean + row)) * tl.load(rstd + row)
        hat = tl.where(i < cols, hat, 0.0)
        g = tl.load(dy + row * cols + i, i < cols, 0.0)
        wg = weight * g
        c1, c2 = tl.sum(hat * wg, 0) / cols, tl.sum(wg, 0) / cols
        tl.store(dx + row * cols + i, (wg - (hat * c1 + c2)) * tl.load(rstd + row), i < cols)
        sum_dw += g * hat
        sum_db += g
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    tl.store(dw + i, tl.load(dw + i, i < cols) + sum_dw, i < cols)
    tl.store(db + i, tl.load(db + i, i < cols) + sum_db, i < cols)
    tl.debug_barrier()
    tl.atomic_xchg(lock, 0)


class LayerNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w, b, eps):
        y = torch.full_like(x, float("nan"))
        mean, rstd = (torch.empty(x.shape[0], device=x.device) for _ in range(2))
        block = triton.next_power_of_2(x.shape[1])
        layer_norm_forward[(x.shape[0],)](x, y, w, b, mean, rstd, x.shape[1], eps, BLOCK=block)
        ctx.save_for_backward(x, w, mean, rstd)
        return y

    @staticmethod
    def backward(ctx, dy):
        x, w, mean, rstd = ctx.saved_tensors
        dx = torch.full_like(x, float("nan"))
        dw, db = torch.zeros_like(w), torch.zeros_like(w)
        lock = torch.zeros(1, dtype=torch.int32, device=x.device)
        rows, cols = x.shape
        layer_norm_backward[(triton.cdiv(rows, 8),)](dx, dy.contiguous(), dw, db, x, w, mean, rstd, lock, rows, cols,
                                                     ROWS=8, BLOCK=triton.next_power_of_2(cols))
        return dx, dw, db, None


def layer_norm():
    x = torch.randn(29, 301, device=DEVICE, requires_grad=True)
    w = torch.rand(301, device=DEVICE, requires_grad=True)
    b = torch.rand(301, device=DEVICE, requires_grad=True)
    dy = torch.randn(29, 301, device=DEVICE)
    y = LayerNorm.apply(x, w, b, 1e-5)
    y.backward(dy)
    got = [y, x.grad, w.grad, b.grad]
    x64, w64, b64 = (t.detach().double().requires_grad_() for t in (x, w, b))
    y64 = torch.nn.functional.layer_norm(x64, (301,), w64, b64, 1e-5)
    y64.backward(dy.double())
    for mine, wanted in zip(got, [y64, x64.grad, w64.grad, b64.grad]):
        compare(mine, wanted.float(), 1e-5)


@triton.jit
def attention_kernel(q, k, v, out, seq, scale, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    head = tl.program_id(1) * seq * D
    i = tl.program_id(0) * BM + tl.arange(0, BM)
    d = tl.arange(0, D)
    queries = tl.load(q + head + i[:, None] * D + d[None, :], i[:, None] < seq, 0.0)
    m = tl.full((BM,), -float("inf"), tl.float32)
    total = tl.zeros((BM,), tl.float32)
    acc = tl.zeros((BM, D), tl.float32)
    for start in range(0, min((tl.program_id(0) + 1) * BM, seq), BN):
        j = start + tl.arange(0, BN)
        keys = tl.load(k + head + j[None, :] * D + d[:, None], j[None, :] < seq, 0.0)
        s = tl.where(i[:, None] >= j[None, :], tl.dot(queries, keys) * scale, -float("inf"))
        m_new = tl.maximum(m, tl.max(s, 1))
        p = tl.exp(s - m_new[:, None])
        shrink = tl.exp(m - m_new)
        values = tl.load(v + head + j[:, None] * D + d[None, :], j[:, None] < seq, 0.0)
        acc = tl.dot(p.to(tl.float16), values, acc * shrink[:, None])
        total = total * shrink + tl.sum(p, 1)
        m = m_new
    tl.store(out + head + i[:, None] * D + d[None, :], (acc / total[:, None]).to(tl.float16), i[:, None] < seq)


def attention():
    heads, seq, dim = 2, 100, 64
    q, k, v = (torch.randn(1, heads, seq, dim, device=DEVICE, dtype=torch.float16) for _ in range(3))
    out = torch.full_like(q, float("nan"))
    attention_kernel[(triton.cdiv(seq, 64), heads)](q, k, v, out, seq, dim**-0.5, D=dim, BM=64, BN=32)
    wanted = torch.nn.functional.scaled_dot_product_attention(q.double(), k.double(), v.double(), is_causal=True)
    compare(out, wanted.half(), 2e-3)


# Descriptors that the host makes are parameters, whose addresses Triton 3.9 takes in 32 bits.
@triton.jit
def transposing_kernel(x, out, ROWS: tl.constexpr, COLS: tl.constexpr):
    row, column = tl.program_id(0) * ROWS, tl.program_id(1) * COLS
    out.store([column, row], tl.trans(x.load([row, column])))


def descriptors():
    from triton.tools.tensor_descriptor import TensorDescriptor
    x = torch.randn(96, 128, device=DEVICE, dtype=torch.float16)
    out = torch.full((128, 96), float("nan"), device=DEVICE, dtype=torch.float16)
    transposing_kernel[(3, 2)](TensorDescriptor.from_tensor(x, [32, 64]), TensorDescriptor.from_tensor(out, [64, 32]), 32, 64)
    compare(out, x.T, 0)


# What PyTorch would fill by a kernel of its own.
def deterministic():
    torch.use_deterministic_algorithms(True)
    vector_add()
    torch.use_deterministic_algorithms(False)


# The largest needs more shared memory than there is, and is passed over.
@triton.autotune([triton.Config({"STAGES": stages}, num_stages=stages) for stages in (64, 2, 4)], key=["n"])
@triton.jit
def tuned_kernel(a, b, out, n, STAGES: tl.constexpr):
    rows = tl.arange(0, 128)[:, None] * n
    acc = tl.zeros((128, 128), tl.float32)
    for k in range(0, n, 64):
        columns = k + tl.arange(0, 64)
        acc = tl.dot(tl.load(a + rows + columns[None, :]), tl.trans(tl.load(b + rows + columns[None, :])), acc)
    tl.store(out + tl.arange(0, 128)[:, None] * 128 + tl.arange(0, 128)[None, :], acc)


def autotuning():
    n = 64 * 65
    a, b = (torch.randn(128, n, device=DEVICE, dtype=torch.float16) for _ in range(2))
    out = torch.full((128, 128), float("nan"), device=DEVICE)
    tuned_kernel[(1,)](a, b, out, n)
    assert tuned_kernel.best_config.num_stages == 2, tuned_kernel.best_config
    compare(out, (a.double() @ b.double().T).float(), 1e-2)


torch.manual_seed(torch.seed() if "--seed" not in sys.argv else 1)
for part in (vector_add, softmax, matmul, dropout, layer_norm, attention, autotuning, descriptors, deterministic):
    part()
    print(part.__name__, "ok", flush=True)
