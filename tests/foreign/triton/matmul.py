# SPDX-License-Identifier: Apache-2.0
# Matrix products: by pointers, by tensor descriptors, persistent with warp specialisation, and block-scaled.
import triton
import triton.language as tl


@triton.jit
def matmul_pointers(a, b, c, m, n, k, stride_a, stride_b, stride_c,
                    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """c = a @ b, a row-major [m, k], b row-major [k, n], ragged in every dimension."""
    tiles_n = tl.cdiv(n, BN)
    rows = tl.program_id(0) // tiles_n * BM + tl.arange(0, BM)
    columns = tl.program_id(0) % tiles_n * BN + tl.arange(0, BN)
    inner = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, k, BK):
        at = start + inner
        x = tl.load(a + rows[:, None] * stride_a + at[None, :], mask=(rows < m)[:, None] & (at < k)[None, :], other=0.0)
        y = tl.load(b + at[:, None] * stride_b + columns[None, :], mask=(at < k)[:, None] & (columns < n)[None, :],
                    other=0.0)
        acc = tl.dot(x, y, acc)
    tl.store(c + rows[:, None] * stride_c + columns[None, :], acc, mask=(rows < m)[:, None] & (columns < n)[None, :])


@triton.jit
def matmul_descriptors(a, b, c, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, SPECIALIZE: tl.constexpr):
    """c = a @ b.T through tensor descriptors made by the host: a [m, k], b [n, k], c [m, n]."""
    row = tl.program_id(0) * BM
    column = tl.program_id(1) * BN
    acc = tl.zeros((BM, BN), tl.float32)
    for start in tl.range(0, k, BK, warp_specialize=SPECIALIZE):
        x = a.load([row, start])
        y = b.load([column, start])
        acc = tl.dot(x, y.T, acc)
    c.store([row, column], acc.to(tl.float16))


@triton.jit
def matmul_persistent(a, b, c, m, n, k, programs, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
                      SPECIALIZE: tl.constexpr):
    """matmul_descriptors over several tiles a program, with the roles of warps left to the compiler."""
    tiles_n = tl.cdiv(n, BN)
    tiles = tl.cdiv(m, BM) * tiles_n
    steps = tl.cdiv(k, BK)
    for tile in tl.range(tl.program_id(0), tiles, programs, flatten=True, warp_specialize=SPECIALIZE):
        row = tile // tiles_n * BM
        column = tile % tiles_n * BN
        acc = tl.zeros((BM, BN), tl.float32)
        for step in range(steps):
            x = a.load([row, step * BK])
            y = b.load([column, step * BK])
            acc = tl.dot(x, y.T, acc)
        c.store([row, column], acc.to(tl.float16))


@triton.jit
def matmul_block_scaled(a, a_scale, b, b_scale, c, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
                        A_TYPE: tl.constexpr, B_TYPE: tl.constexpr, A_PACK: tl.constexpr, B_PACK: tl.constexpr,
                        GROUP: tl.constexpr):
    """c = (a * a_scale) @ (b * b_scale).T, one scale for GROUP elements along k, PACK elements a byte; whole tiles."""
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, k, BK):
        x = a.load([tl.program_id(0) * BM, start // A_PACK])
        y = b.load([tl.program_id(1) * BN, start // B_PACK])
        at = start // GROUP + tl.arange(0, BK // GROUP)
        xs = tl.load(a_scale + rows[:, None] * (k // GROUP) + at[None, :])
        ys = tl.load(b_scale + columns[:, None] * (k // GROUP) + at[None, :])
        acc = tl.dot_scaled(x, xs, A_TYPE, y.T, ys, B_TYPE, acc)
    tl.store(c + rows[:, None] * n + columns[None, :], acc)
