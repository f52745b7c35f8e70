#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Layers of a transformer, forward, by Imbrex's kernels: attention and products with fused GELU and residual from the
kernel library, the norm a kernel of one's own (rms_norm.cpp).

    python3 transformer_block.py

On a Hopper GPU with PyTorch it is verified against float64 and timed beside PyTorch, eager and compiled. Without one it runs
on NumPy's arrays: a small size, on the virtual GPU, with every checker, and the same verification."""
from __future__ import annotations

import argparse
import importlib.util
import sys
from pathlib import Path

import imbrex

EPSILON = 1e-6
rms_norm = imbrex.Kernel(Path(__file__).with_name("rms_norm.cpp"), "RmsNorm")


def norms(empty_like):
    """y = x / sqrt(mean(x^2)) * weight for each row, into an array that `empty_like` makes."""

    def norm(x, weight):
        y = empty_like(x)
        rms_norm(x.shape[0], x.shape[1], EPSILON, str(x.dtype).removeprefix("torch."), x, weight, y)
        return y

    return norm


def forward(x, layers, heads, norm):
    """x [batch, tokens, width]. Views are passed as they lie: nothing is copied."""
    batch, tokens, width = x.shape
    rows = x.reshape(batch * tokens, width)
    for w in layers:
        qkv = imbrex.matmul(norm(rows, w["norm_1"]), w["qkv"].T).reshape(batch, tokens, 3, heads, -1)
        q, k, v = (qkv[:, :, i].swapaxes(1, 2) for i in range(3))
        mixed = imbrex.attention(q, k, v, causal=True).swapaxes(1, 2).reshape(rows.shape)
        rows = imbrex.matmul(mixed, w["out"].T, residual=rows, beta=1)
        up = imbrex.matmul(norm(rows, w["norm_2"]), w["up"].T, activation="gelu_tanh")
        rows = imbrex.matmul(up, w["down"].T, residual=rows, beta=1)
    return rows.reshape(x.shape)


def reference(x, layers, heads, xp):
    """The same in the type of its arguments, by plain operations: float64 is what the others are compared with."""

    def norm(x, weight):
        return x / xp.sqrt((x * x).mean(-1, keepdims=True) + EPSILON) * weight

    batch, tokens, width = x.shape
    for w in layers:
        qkv = (norm(x, w["norm_1"]) @ w["qkv"].T).reshape(batch, tokens, 3, heads, -1)
        q, k, v = (qkv[:, :, i].swapaxes(1, 2) for i in range(3))
        scores = q @ k.swapaxes(-1, -2) / q.shape[-1] ** 0.5
        weights = xp.exp(scores - xp.amax(scores, axis=-1, keepdims=True)) * xp.tril(xp.ones_like(scores[0, 0]))
        weights = weights / weights.sum(-1, keepdims=True)
        x = x + (weights @ v).swapaxes(1, 2).reshape(x.shape) @ w["out"].T
        up = norm(x, w["norm_2"]) @ w["up"].T
        up = up / 2 * (1 + xp.tanh((2 / xp.pi) ** 0.5 * (up + 0.044715 * up**3)))
        x = x + up @ w["down"].T
    return x


def model(width, count, random):
    """Weights as they are initialised in practice, so that values stay of the order of 1."""
    layers = []
    for _ in range(count):
        matrices = {"qkv": (3 * width, width), "out": (width, width), "up": (4 * width, width), "down": (width, 4 * width)}
        weights = {name: random(*shape) / shape[1] ** 0.5 for name, shape in matrices.items()}
        layers.append({**weights, "norm_1": 1 + random(width) / 10, "norm_2": 1 + random(width) / 10})
    return layers


def error(got, expected):
    """The root of the mean square of the difference, relative to that of what was expected."""
    difference = (got - expected) ** 2
    return float((difference.mean() / (expected**2).mean()) ** 0.5)


def on_the_virtual_gpu(batch=2, tokens=40, width=64, heads=2, layers=2):
    """Returns the error of NumPy's float16 on the virtual GPU."""
    import numpy

    random = numpy.random.default_rng(0).standard_normal
    half = lambda t: t.astype(numpy.float16)
    weights = [{name: half(t) for name, t in w.items()} for w in model(width, layers, lambda *shape: random(shape))]
    x = half(random((batch, tokens, width)))
    got = forward(x, weights, heads, norms(numpy.empty_like))
    double = lambda t: t.astype(numpy.float64)
    expected = reference(double(x), [{n: double(t) for n, t in w.items()} for w in weights], heads, numpy)
    found = error(double(got), expected)
    print(f"{layers} layers of width {width} on the virtual GPU: error {found:.1e} beside float64")
    return found


def by_torch(x, layers, heads):
    """As PyTorch's users write it."""
    from torch.nn import functional as F

    batch, tokens, width = x.shape
    for w in layers:
        qkv = F.linear(F.rms_norm(x, (width,), w["norm_1"], EPSILON), w["qkv"]).view(batch, tokens, 3, heads, -1)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(x.shape)
        x = x + F.linear(mixed, w["out"])
        up = F.gelu(F.linear(F.rms_norm(x, (width,), w["norm_2"], EPSILON), w["up"]), approximate="tanh")
        x = x + F.linear(up, w["down"])
    return x


def median_microseconds(call, count=30):
    """Of the device: the call as a CUDA graph, so that the host's time is not in it. Of host and device: one call after
    the other, each waited for."""
    import statistics
    import time

    import torch

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            call()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    device, wall = [], []
    for _ in range(count):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        device.append(1000 * begin.elapsed_time(end))
        start = time.perf_counter()
        call()
        torch.cuda.synchronize()
        wall.append(1e6 * (time.perf_counter() - start))
    return statistics.median(device), statistics.median(wall)


def on_a_gpu(batch, tokens, width, heads, layers):
    import torch

    torch.manual_seed(0)
    half = lambda t: t.to(torch.bfloat16)
    random = lambda *shape: torch.randn(*shape, device="cuda")
    weights = [{name: half(t) for name, t in w.items()} for w in model(width, layers, random)]
    x = half(random(batch, tokens, width))
    norm = norms(torch.empty_like)
    torch_norm = lambda x, weight: torch.nn.functional.rms_norm(x, x.shape[-1:], weight, EPSILON)
    calls = {
        "PyTorch, eager": lambda: by_torch(x, weights, heads),
        "PyTorch, compiled": lambda: compiled(x, weights, heads),
        "Imbrex": lambda: forward(x, weights, heads, norm),
        "Imbrex, compiled": lambda: imbrex_compiled(x, weights, heads, torch_norm),
    }
    compiled = torch.compile(by_torch, fullgraph=True)
    imbrex_compiled = torch.compile(forward, fullgraph=True)
    with torch.no_grad():
        double = [{name: t.double() for name, t in w.items()} for w in weights]
        expected = torch.cat([reference(part.double(), double, heads, torch) for part in x.split(1)])
        errors = {name: error(call().double(), expected) for name, call in calls.items()}
        del expected, double
        times = {name: median_microseconds(call) for name, call in calls.items()}
    print(f"{layers} layers, batch {batch}, {tokens} tokens, width {width}, {heads} heads, bfloat16, {torch.cuda.get_device_name()}")
    print(f"{'':20}{'device us':>12}{'wall us':>12}{'error':>12}")
    for name, (device, wall) in times.items():
        print(f"{name:20}{device:12.1f}{wall:12.1f}{errors[name]:12.2e}")
    allowed = 1.25 * errors["PyTorch, eager"]
    return all(errors[name] <= allowed for name in calls)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in [("batch", 4), ("tokens", 2048), ("width", 2048), ("heads", 16), ("layers", 2)]:
        parser.add_argument(f"--{name}", type=int, default=default)
    options = vars(parser.parse_args())
    if imbrex.has_cuda() and importlib.util.find_spec("torch") is not None:
        return 0 if on_a_gpu(**options) else 1
    return 0 if on_the_virtual_gpu() < 2e-3 else 1


if __name__ == "__main__":
    sys.exit(main())
