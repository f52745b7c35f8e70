#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What bench_rows competes with, for some of the same cases: PyTorch as it is, what torch.compile makes of the same lines (Triton
kernels of Inductor), and kernels of the Triton tutorials' kind.

    python3 bench/row_rivals.py [SECONDS]

Device time per call in microseconds: calls queued behind a spinning kernel, operands in rotation so that each call finds its own
in memory and not in the L2 cache; contenders take turns, medians of 5 turns. Behind each: its share of the speed of a device copy
of as many bytes, in the same turns. A contender that fails is told with its error; after SECONDS no new case begins.
"""
import sys
import time

import torch
import torch.nn.functional as F

START, LIMIT = time.time(), float(sys.argv[1]) if len(sys.argv) > 1 else 1e9
TURNS, ROTATED = 5, 256 << 20


def microseconds_of(calls):
    """Of each call(i), in turns."""
    times = [[] for _ in calls]
    lengths = []
    for call in calls:
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        call(0)
        torch.cuda.synchronize()
        begin.record()
        call(1)
        end.record()
        torch.cuda.synchronize()
        lengths.append(max(3, min(60, int(3 / max(begin.elapsed_time(end), 1e-3)))))
    for _ in range(TURNS):
        for call, length, found in zip(calls, lengths, times):
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            torch.cuda._sleep(2_000_000)
            begin.record()
            for i in range(length):
                call(i)
            end.record()
            torch.cuda.synchronize()
            found.append(1000 * begin.elapsed_time(end) / length)
    return [sorted(found)[TURNS // 2] for found in times]


def case(name, size, make, contenders, bytes_moved=None):
    """`make` returns the operands of one call, inputs and results; `contenders` are functions of them by name."""
    if time.time() - START > LIMIT:
        return
    first = make()
    moved = bytes_moved or sum(t.numel() * t.element_size() for t in first)
    operands = [first] + [make() for _ in range(ROTATED // moved)]
    sources = [torch.empty(moved // 2, dtype=torch.uint8, device="cuda") for _ in operands]
    targets = [torch.empty_like(s) for s in sources]
    n, calls, names = len(operands), [], []
    for who, function in contenders.items():
        try:
            function(*operands[0])
            torch.cuda.synchronize()
        except Exception as error:
            print(f"{name:24} {size:26} {who:14} fails: {str(error).strip().splitlines()[0][:120]}", flush=True)
            continue
        calls.append(lambda i, function=function: function(*operands[i % n]))
        names.append(who)
    calls.append(lambda i: targets[i % n].copy_(sources[i % n]))
    *found, copy = microseconds_of(calls)
    for who, microseconds in zip(names, found):
        print(f"{name:24} {size:26} {who:14} {microseconds:9.2f} us   copy {copy:9.2f} us  {copy / microseconds:.3f}", flush=True)


def random(*shape, dtype=torch.bfloat16):
    return torch.randn(*shape, device="cuda", dtype=dtype)


def compiled(function):
    return torch.compile(function, dynamic=False)


# Triton kernels: a program per row, which is held whole, as the tutorials have them.
try:
    import triton
    import triton.language as tl

    @triton.jit
    def softmax_kernel(x, y, n, BLOCK: tl.constexpr):
        row, at = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
        values = tl.load(x + row * n + at, mask=at < n, other=-float("inf")).to(tl.float32)
        values = tl.exp(values - tl.max(values, 0))
        tl.store(y + row * n + at, values / tl.sum(values, 0), mask=at < n)

    @triton.jit
    def rms_norm_kernel(x, w, y, n, epsilon, BLOCK: tl.constexpr):
        row, at = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
        values = tl.load(x + row * n + at, mask=at < n, other=0).to(tl.float32)
        factor = tl.rsqrt(tl.sum(values * values, 0) / n + epsilon)
        tl.store(y + row * n + at, values * factor * tl.load(w + at, mask=at < n, other=0).to(tl.float32), mask=at < n)

    @triton.jit
    def layer_norm_backward_kernel(dy, x, w, dx, dw, db, rows, n, epsilon, BLOCK: tl.constexpr):
        """A program takes every so many rows; its parts of dw and db are added up by torch.sum."""
        at = tl.arange(0, BLOCK)
        inside = at < n
        weight = tl.load(w + at, mask=inside, other=0).to(tl.float32)
        weight_part, bias_part = tl.zeros([BLOCK], tl.float32), tl.zeros([BLOCK], tl.float32)
        for row in range(tl.program_id(0), rows, tl.num_programs(0)):
            begin = row.to(tl.int64) * n
            values = tl.load(x + begin + at, mask=inside, other=0).to(tl.float32)
            gradient = tl.load(dy + begin + at, mask=inside, other=0).to(tl.float32)
            centred = tl.where(inside, values - tl.sum(values, 0) / n, 0)
            factor = tl.rsqrt(tl.sum(centred * centred, 0) / n + epsilon)
            normal, weighted = centred * factor, gradient * weight
            along, shift = tl.sum(weighted * normal, 0) / n, tl.sum(weighted, 0) / n
            tl.store(dx + begin + at, (weighted - shift - normal * along) * factor, mask=inside)
            weight_part += gradient * normal
            bias_part += gradient
        tl.store(dw + tl.program_id(0) * n + at, weight_part, mask=inside)
        tl.store(db + tl.program_id(0) * n + at, bias_part, mask=inside)

    @triton.jit
    def transpose_kernel(x, y, m, n, BM: tl.constexpr, BN: tl.constexpr):
        i, j = tl.program_id(1) * BM + tl.arange(0, BM), tl.program_id(0) * BN + tl.arange(0, BN)
        inside = (i[:, None] < m) & (j[None, :] < n)
        values = tl.load(x + i[:, None].to(tl.int64) * n + j[None, :], mask=inside)
        tl.store(y + j[:, None].to(tl.int64) * m + i[None, :], tl.trans(values), mask=tl.trans(inside))
except Exception as error:
    triton = None
    print("no Triton:", error)


def warps_of(n):
    return 4 if n <= 2048 else 8 if n <= 8192 else 16


def triton_softmax(x, y):
    softmax_kernel[(x.shape[0],)](x, y, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]), num_warps=warps_of(x.shape[1]))


def triton_rms_norm(w):
    def run(x, y):
        n = x.shape[1]
        rms_norm_kernel[(x.shape[0],)](x, w, y, n, 1e-6, BLOCK=triton.next_power_of_2(n), num_warps=warps_of(n))
    return run


def triton_layer_norm_backward(w):
    programs = 2 * torch.cuda.get_device_properties(0).multi_processor_count
    dw, db = (torch.empty(programs, w.numel(), device="cuda") for _ in range(2))

    def run(dy, x, dx):
        m, n = x.shape
        layer_norm_backward_kernel[(programs,)](dy, x, w, dx, dw, db, m, n, 1e-5, BLOCK=triton.next_power_of_2(n), num_warps=8)
        dw.sum(0), db.sum(0)
    return run


def triton_transpose(block_m, block_n):
    def run(x, y):
        m, n = x.shape
        grid = (triton.cdiv(n, block_n), triton.cdiv(m, block_m))
        transpose_kernel[grid](x, y, m, n, BM=block_m, BN=block_n, num_warps=8)
    return run


def norm_backward(function, w, bias=None):
    """The gradient alone, from the graph that one forward pass left."""
    made = {}

    def run(dy, x, dx):
        key = x.data_ptr()
        if key not in made:
            leaf = x.detach().requires_grad_()
            made[key] = leaf, function(leaf)
        leaf, y = made[key]
        torch.autograd.grad(y, [t for t in (leaf, w, bias) if t is not None], dy, retain_graph=True)
    return run


def quantise(x):
    scale = x.abs().amax(1, keepdim=True).float() / 448
    return (x / scale).to(torch.float8_e4m3fn), scale


def rotate(x, cos, sin):
    a, b = x.float().chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1).to(x.dtype)


def main():
    torch.manual_seed(1)
    print(torch.cuda.get_device_name(), "PyTorch", torch.__version__, "Triton", triton and triton.__version__, flush=True)
    f32 = torch.float32

    def top(x, values, indices):
        torch.topk(x, values.shape[1], out=(values, indices))
    for m, n, k in ((8192, 8192, 50), (16384, 4096, 8), (262144, 256, 8), (1024, 128000, 50)):
        case(f"top_k {k}", f"{m}x{n} float32",
             lambda: (random(m, n, dtype=f32), random(m, k, dtype=f32), torch.empty(m, k, dtype=torch.int64, device="cuda")),
             {"torch": top}, 4 * m * n + 8 * m * k)
    for table in (20000, 200):
        index = torch.randint(table, (65536,), device="cuda")
        case("scatter_add_rows", f"65536x2048 to {table} float32", lambda: (random(65536, 2048, dtype=f32), random(table, 2048, dtype=f32)),
             {"torch": lambda x, t: t.index_add_(0, index, x)}, 4 * 2048 * (65536 + 2 * table))
    for m, n in ((16384, 4096), (8192, 5120), (8192, 8192), (65536, 1023)):
        size, w, b = f"{m}x{n} bfloat16", random(n).requires_grad_(), random(n).requires_grad_()
        two, three = lambda: (random(m, n), random(m, n)), lambda: (random(m, n), random(m, n), random(m, n))
        layer, rms = (lambda x: F.layer_norm(x, (n,), w, b, 1e-5)), (lambda x: F.rms_norm(x, (n,), w, 1e-6))
        case("layer_norm_backward", size, three,
             {"torch": norm_backward(layer, w, b), "torch.compile": norm_backward(compiled(layer), w, b),
              "Triton": triton_layer_norm_backward(w.detach())})
        case("rms_norm_backward", size, three,
             {"torch": norm_backward(rms, w), "torch.compile": norm_backward(compiled(rms), w)})
        with torch.no_grad():
            case("rms_norm", size, two, {"torch": lambda x, y: rms(x), "torch.compile": lambda x, y, f=compiled(rms): f(x),
                                         "Triton": triton_rms_norm(w)})
            case("softmax", size, two, {"torch": lambda x, y: torch.softmax(x, 1), "Triton": triton_softmax})
        case("transpose", size, lambda: (random(m, n), random(n, m)),
             {"torch": lambda x, y: y.copy_(x.t()), "torch.compile": lambda x, y, f=compiled(lambda x: x.t().contiguous()): f(x),
              "Triton 64x64": triton_transpose(64, 64), "Triton 128x64": triton_transpose(128, 64)})
    for m, n in ((8192, 8192), (65536, 1023)):
        gated = lambda g, u: F.silu(g) * u
        case("gated", f"{m}x{n} bfloat16", lambda: (random(m, n), random(m, n), random(m, n)),
             {"torch": lambda g, u, y: gated(g, u), "torch.compile": lambda g, u, y, f=compiled(gated): f(g, u)})
        case("quantise_float8 rows", f"{m}x{n} bfloat16",
             lambda: (random(m, n), torch.empty(m, n, dtype=torch.float8_e4m3fn, device="cuda")),
             {"torch": lambda x, q: quantise(x), "torch.compile": lambda x, q, f=compiled(quantise): f(x)})
    for m, n in ((4096, 32000), (8192, 50257), (2048, 151936)):
        target = torch.randint(n, (m,), device="cuda")

        def loss_and_gradient(x):
            leaf = x.detach().requires_grad_()
            return torch.autograd.grad(F.cross_entropy(leaf.float(), target, reduction="sum"), leaf)
        case("cross_entropy gradient", f"{m}x{n} bfloat16", lambda: (random(m, n), random(m, n)),
             {"torch": lambda x, d: loss_and_gradient(x), "torch.compile": lambda x, d, f=compiled(loss_and_gradient): f(x)})
    angles = torch.rand(16384, 64, device="cuda")
    cos, sin = angles.cos()[:, None], angles.sin()[:, None]
    case("rope", "16384x64x128 bfloat16", lambda: (random(16384, 64, 128), random(16384, 64, 128)),
         {"torch": lambda x, y: rotate(x, cos, sin), "torch.compile": lambda x, y, f=compiled(rotate): f(x, cos, sin)})


main()
