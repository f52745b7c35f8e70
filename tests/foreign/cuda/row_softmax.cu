// SPDX-License-Identifier: Apache-2.0
// A row per warp: running maximum and sum in one sweep, joined across lanes by shuffles; bfloat16 in and out.
#include <cuda_bf16.h>

extern "C" __global__ void row_softmax(const __nv_bfloat16* x, __nv_bfloat16* out, int rows, int columns) {
  const int row = blockIdx.x * blockDim.y + threadIdx.y;
  if (row >= rows) return;
  x += static_cast<long>(row) * columns;
  out += static_cast<long>(row) * columns;
  float largest = -INFINITY, sum = 0;
  for (int c = threadIdx.x; c < columns; c += 32) {
    const float v = __bfloat162float(x[c]);
    const float next = fmaxf(largest, v);
    sum = sum * __expf(largest - next) + __expf(v - next);
    largest = next;
  }
  for (int distance = 16; distance > 0; distance /= 2) {
    const float other = __shfl_xor_sync(~0u, largest, distance), other_sum = __shfl_xor_sync(~0u, sum, distance);
    const float next = fmaxf(largest, other);
    if (next == -INFINITY) continue;
    sum = sum * __expf(largest - next) + other_sum * __expf(other - next);
    largest = next;
  }
  for (int c = threadIdx.x; c < columns; c += 32)
    out[c] = __float2bfloat16(__expf(__bfloat162float(x[c]) - largest) / sum);
}
