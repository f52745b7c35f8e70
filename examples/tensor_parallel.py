#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A transformer's block, forward, on several GPUs (tensor parallelism): each rank has some of the heads and some of the hidden
columns. Rows are dealt out to the ranks between the products, gathered while the first product of each half is
computed, and added up and scattered while the second is.

    imbrex launch -n 2 -- python3 tensor_parallel.py       or torchrun, mpirun, srun: one process per GPU
    torchrun --nproc-per-node 2 tensor_parallel.py

On Hopper GPUs with PyTorch, with a process each; otherwise on virtual GPUs with NumPy, where races between ranks are found. The
result is compared with the same block on one GPU, and with float64."""
from __future__ import annotations

import sys

import imbrex
import imbrex.parallel

EPSILON = 1e-6


def block(x, w, heads, causal=True):
    """One GPU: x [tokens, width]."""
    q, k, v = split_heads(imbrex.matmul(imbrex.rms_norm(x, w["norm_1"], EPSILON), w["qkv"].T), heads)
    mixed = imbrex.attention(q, k, v, causal=causal).swapaxes(0, 1).reshape(x.shape[0], -1)
    x = x + imbrex.matmul(mixed, w["out"].T)
    up = imbrex.matmul(imbrex.rms_norm(x, w["norm_2"], EPSILON), w["up"].T, activation="gelu_tanh")
    return x + imbrex.matmul(up, w["down"].T)


def parallel_block(ranks, x, w, heads, causal=True):
    """x is this rank's rows, w its part of the weights, heads its heads."""
    rows = imbrex.rms_norm(x, w["norm_1"], EPSILON)
    q, k, v = split_heads(ranks.all_gather_matmul(rows, w["qkv"].T), heads)
    mixed = imbrex.attention(q, k, v, causal=causal).swapaxes(0, 1)
    x = x + ranks.matmul_reduce_scatter(mixed.reshape(mixed.shape[0], -1), w["out"].T)
    rows = imbrex.rms_norm(x, w["norm_2"], EPSILON)
    up = ranks.all_gather_matmul(rows, w["up"].T, activation="gelu_tanh")
    return x + ranks.matmul_reduce_scatter(up, w["down"].T)


def split_heads(qkv, heads):
    """Columns are heads, of each head q, k and v: so a rank's heads are neighbouring rows of the weight."""
    parts = qkv.reshape(qkv.shape[0], heads, 3, -1)
    return (parts[:, :, i].swapaxes(0, 1) for i in range(3))


def weights_of(width, random):
    shapes = {"qkv": (3 * width, width), "out": (width, width), "up": (4 * width, width), "down": (width, 4 * width)}
    weights = {name: random(*shape) / shape[1] ** 0.5 for name, shape in shapes.items()}
    return {**weights, "norm_1": 1 + random(width) / 10, "norm_2": 1 + random(width) / 10}


def part_of(weights, rank, ranks, dense):
    """Rows of the first weight of each pair, and the same columns of the second."""

    def rows(w):
        return w[w.shape[0] // ranks * rank : w.shape[0] // ranks * (rank + 1)]

    part = {name: rows(weights[name]) for name in ("qkv", "up")}
    part |= {name: dense(rows(weights[name].T).T) for name in ("out", "down")}
    return {**part, "norm_1": weights["norm_1"], "norm_2": weights["norm_2"]}


def reference(x, w, heads, xp):
    """By plain operations, in the type of the arguments."""

    def norm(x, weight):
        return x / xp.sqrt((x * x).mean(-1, keepdims=True) + EPSILON) * weight

    q, k, v = split_heads(norm(x, w["norm_1"]) @ w["qkv"].T, heads)
    scores = q @ k.swapaxes(-1, -2) / q.shape[-1] ** 0.5
    attention = xp.exp(scores - xp.amax(scores, axis=-1, keepdims=True)) * xp.tril(xp.ones_like(scores[0]))
    attention = attention / attention.sum(-1, keepdims=True)
    x = x + (attention @ v).swapaxes(0, 1).reshape(x.shape) @ w["out"].T
    up = norm(x, w["norm_2"]) @ w["up"].T
    up = up / 2 * (1 + xp.tanh((2 / xp.pi) ** 0.5 * (up + 0.044715 * up**3)))
    return x + up @ w["down"].T


def error(got, expected):
    """The root of the mean square of the difference, relative to that of what was expected."""
    return float((((got - expected) ** 2).mean() / (expected**2).mean()) ** 0.5)


def run(ranks, x, weights, heads, xp, dense, double):
    """Errors of this rank's rows: beside one GPU, and beside float64."""
    if heads % ranks.size != 0:
        sys.exit(f"{heads} heads cannot be dealt out to {ranks.size} ranks: start a number of ranks that divides them")
    rows = x.shape[0] // ranks.size
    mine = slice(rows * ranks.rank, rows * (ranks.rank + 1))
    part = part_of(weights, ranks.rank, ranks.size, dense)
    got = double(parallel_block(ranks, dense(x[mine]), part, heads // ranks.size))
    alone = double(block(x, weights, heads))[mine]
    exact = reference(double(x), {name: double(w) for name, w in weights.items()}, heads, xp)[mine]
    ranks.synchronize()
    return error(got, alone), error(got, exact)


def by_numpy(ranks, tokens=40, width=128, heads=8):
    import numpy

    random = numpy.random.default_rng(0).standard_normal
    half = lambda t: t.astype(numpy.float16)
    weights = {name: half(w) for name, w in weights_of(width, lambda *shape: random(shape)).items()}
    x = half(random((tokens // ranks.size * ranks.size, width)))
    return run(ranks, x, weights, heads, numpy, numpy.ascontiguousarray, lambda t: t.astype(numpy.float64))


def by_torch(ranks, tokens=2048, width=2048, heads=16):
    import torch

    torch.cuda.set_device(0 if torch.cuda.device_count() == 1 else ranks.rank)
    generator = torch.Generator(device="cuda").manual_seed(0)
    random = lambda *shape: torch.randn(*shape, device="cuda", generator=generator)
    weights = {name: w.bfloat16() for name, w in weights_of(width, random).items()}
    x = random(tokens // ranks.size * ranks.size, width).bfloat16()
    with torch.no_grad():
        return run(ranks, x, weights, heads, torch, lambda t: t.contiguous(), lambda t: t.double())


def main():
    with imbrex.parallel.join() as ranks:
        is_virtual = ranks.device.is_virtual
        beside_one, beside_exact = by_numpy(ranks) if is_virtual else by_torch(ranks)
        print(f"rank {ranks.rank} of {ranks.size} on {ranks.device.name}: error {beside_one:.1e} beside one GPU, "
              f"{beside_exact:.1e} beside float64", flush=True)
    return 0 if beside_one < (2e-3 if is_virtual else 1e-2) and beside_exact < (2e-3 if is_virtual else 1e-2) else 1


if __name__ == "__main__":
    sys.exit(main())
