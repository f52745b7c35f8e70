# SPDX-License-Identifier: Apache-2.0
# Row kernels and one-dimensional kernels: what most Triton programs consist of besides matrix products.
import triton
import triton.language as tl


@triton.jit
def gelu_add(x, y, out, n, scale, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    v = tl.load(x + at, mask=inside) * scale + tl.load(y + at, mask=inside).to(tl.float32)
    v = 0.5 * v * (1 + tl.erf(v * 0.7071067811865476))
    tl.store(out + at, v, mask=inside)


@triton.jit
def softmax(x, out, columns, stride, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    v = tl.load(x + row * stride + at, mask=at < columns, other=-float("inf"))
    v = tl.exp(v - tl.max(v, axis=0))
    tl.store(out + row * stride + at, v / tl.sum(v, axis=0), mask=at < columns)


@triton.jit
def layer_norm(x, gain, bias, out, mean_out, columns, epsilon, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        total += tl.load(x + row * columns + at, mask=at < columns, other=0.0).to(tl.float32)
    mean = tl.sum(total, axis=0) / columns
    squares = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        v = tl.load(x + row * columns + at, mask=at < columns, other=0.0).to(tl.float32)
        v = tl.where(at < columns, v - mean, 0.0)
        squares += v * v
    scale = tl.rsqrt(tl.sum(squares, axis=0) / columns + epsilon)
    tl.store(mean_out + row, mean)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        inside = at < columns
        v = (tl.load(x + row * columns + at, mask=inside).to(tl.float32) - mean) * scale
        v = v * tl.load(gain + at, mask=inside) + tl.load(bias + at, mask=inside)
        tl.store(out + row * columns + at, v.to(tl.float16), mask=inside)


@triton.jit
def _then(a_decay, a_value, b_decay, b_value):
    return a_decay * b_decay, a_value * b_decay + b_value


@triton.jit
def linear_recurrence(decay, value, out, columns, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """out[i] = decay[i] * out[i - 1] + value[i] along each row, as an associative scan of pairs."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    at = tl.arange(0, BLOCK)[None, :]
    a = tl.load(decay + row * columns + at, mask=at < columns, other=0.0)
    v = tl.load(value + row * columns + at, mask=at < columns, other=0.0)
    _, result = tl.associative_scan((a, v), 1, _then)
    tl.store(out + row * columns + at, result, mask=at < columns)


@triton.jit
def histogram_and_extremes(x, bins, extremes, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + at, mask=at < n, other=-1)
    counts = tl.histogram(v, 64, mask=at < n)
    tl.atomic_add(bins + tl.arange(0, 64), counts)
    tl.atomic_max(extremes, tl.max(v, axis=0))
    tl.atomic_min(extremes + 1, tl.min(tl.where(at < n, v, 64), axis=0))


@triton.jit
def sort_rows(x, out, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.sort(tl.load(x + at)))
