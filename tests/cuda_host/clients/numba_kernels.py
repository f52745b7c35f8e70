# SPDX-License-Identifier: Apache-2.0
"""Numba: a matrix product by shared memory, atomics, a device function, streams, and a reduction."""
import math

import numpy as np
from numba import cuda, float32

TILE = 16


@cuda.jit
def matmul(a, b, c):
    sa = cuda.shared.array((TILE, TILE), float32)
    sb = cuda.shared.array((TILE, TILE), float32)
    x, y = cuda.grid(2)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    total = float32(0)
    for step in range((a.shape[1] + TILE - 1) // TILE):
        sa[tx, ty] = a[x, ty + step * TILE] if x < a.shape[0] and ty + step * TILE < a.shape[1] else 0
        sb[tx, ty] = b[tx + step * TILE, y] if y < b.shape[1] and tx + step * TILE < b.shape[0] else 0
        cuda.syncthreads()
        for k in range(TILE):
            total += sa[tx, k] * sb[k, ty]
        cuda.syncthreads()
    if x < c.shape[0] and y < c.shape[1]:
        c[x, y] = total


@cuda.jit(device=True)
def bin_of(value, bins):
    return min(bins - 1, max(0, int(math.floor((value + 4) / 8 * bins))))


@cuda.jit
def histogram(values, counts):
    i = cuda.grid(1)
    if i < values.size:
        cuda.atomic.add(counts, bin_of(values[i], counts.size), 1)


@cuda.reduce
def largest(a, b):
    return a if a > b else b


random = np.random.default_rng()
a, b = random.standard_normal((37, 50)).astype(np.float32), random.standard_normal((50, 29)).astype(np.float32)
c = np.full((37, 29), np.nan, np.float32)
matmul[(3, 2), (TILE, TILE)](a, b, c)
assert np.allclose(c, a.astype(np.float64) @ b, atol=1e-4)

values = random.standard_normal(3000)
stream = cuda.stream()
counts = cuda.to_device(np.zeros(20, np.int32), stream)
histogram[24, 128, stream](cuda.to_device(values, stream), counts)
got = counts.copy_to_host(stream=stream)
stream.synchronize()
wanted = np.bincount(np.clip(np.floor((values + 4) / 8 * 20), 0, 19).astype(int), minlength=20)
assert np.array_equal(got, wanted)
assert largest(values) == values.max()
print("numba ok")
