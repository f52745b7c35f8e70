# SPDX-License-Identifier: Apache-2.0
# Attention without the score matrix: a running maximum and sum per query row.
import triton
import triton.language as tl


@triton.jit
def attention(q, k, v, out, log_sums, length, scale, CAUSAL: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
              D: tl.constexpr):
    """out = softmax(scale * q @ k.T) @ v for each head: all [heads, length, D], any length."""
    head = tl.program_id(1).to(tl.int64) * length * D
    first = tl.program_id(0) * BM
    rows = first + tl.arange(0, BM)
    lanes = tl.arange(0, D)
    queries = tl.load(q + head + rows[:, None] * D + lanes[None, :], mask=(rows < length)[:, None], other=0.0)
    best = tl.full((BM,), -float("inf"), tl.float32)
    total = tl.zeros((BM,), tl.float32)
    acc = tl.zeros((BM, D), tl.float32)
    scale *= 1.4426950408889634
    end = tl.minimum(first + BM, length) if CAUSAL else length
    for start in range(0, end, BN):
        at = start + tl.arange(0, BN)
        keys = tl.load(k + head + at[:, None] * D + lanes[None, :], mask=(at < length)[:, None], other=0.0)
        scores = tl.dot(queries, keys.T) * scale
        seen = (at < length)[None, :]
        if CAUSAL:
            seen = seen & (at[None, :] <= rows[:, None])
        scores = tl.where(seen, scores, -float("inf"))
        new_best = tl.maximum(best, tl.max(scores, axis=1))
        weights = tl.exp2(scores - new_best[:, None])
        shrink = tl.exp2(best - new_best)
        total = total * shrink + tl.sum(weights, axis=1)
        values = tl.load(v + head + at[:, None] * D + lanes[None, :], mask=(at < length)[:, None], other=0.0)
        acc = tl.dot(weights.to(tl.float16), values, acc * shrink[:, None])
        best = new_best
    inside = (rows < length)[:, None]
    tl.store(out + head + rows[:, None] * D + lanes[None, :], (acc / total[:, None]).to(tl.float16), mask=inside)
    tl.store(log_sums + tl.program_id(1) * length + rows, best + tl.log2(total), mask=rows < length)


@triton.jit
def attention_descriptors(q, k, v, out, length, scale, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr,
                          SPECIALIZE: tl.constexpr):
    """The same through tensor descriptors over [heads * length, D]; length a multiple of BM and BN."""
    head = tl.program_id(1) * length
    first = head + tl.program_id(0) * BM
    queries = q.load([first, 0])
    best = tl.full((BM,), -float("inf"), tl.float32)
    total = tl.zeros((BM,), tl.float32)
    acc = tl.zeros((BM, D), tl.float32)
    scale *= 1.4426950408889634
    for start in tl.range(0, length, BN, warp_specialize=SPECIALIZE):
        keys = k.load([head + start, 0])
        scores = tl.dot(queries, keys.T)
        new_best = tl.maximum(best, tl.max(scores, axis=1) * scale)
        weights = tl.exp2(scores * scale - new_best[:, None])
        shrink = tl.exp2(best - new_best)
        total = total * shrink + tl.sum(weights, axis=1)
        values = v.load([head + start, 0])
        acc = tl.dot(weights.to(tl.float16), values, acc * shrink[:, None])
        best = new_best
    out.store([first, 0], (acc / total[:, None]).to(tl.float16))
