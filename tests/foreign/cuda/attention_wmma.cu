// SPDX-License-Identifier: Apache-2.0
// softmax(q k^T / 8) v with the WMMA interface: one warp holds 16 queries, keys come 16 at a time. Depth 64.
#include <cuda_fp16.h>
#include <mma.h>
using namespace nvcuda;

constexpr int kDepth = 64;

extern "C" __global__ void __launch_bounds__(32) attention_wmma(const __half* q, const __half* k, const __half* v,
                                                                 __half* out, int length) {
  __shared__ alignas(32) __half queries[16 * kDepth], weights[16 * 16];
  __shared__ alignas(32) float scores[16 * 16], sums[16 * kDepth];
  __shared__ alignas(32) __half keys[16 * kDepth], values[16 * kDepth];
  const int lane = threadIdx.x, row = lane / 2, first = blockIdx.x * 16;
  const long head = static_cast<long>(blockIdx.y) * length * kDepth;
  const auto fetch = [&](__half* to, const __half* from, int start) {
    for (int i = lane; i < 16 * kDepth / 8; i += 32) {
      const int at = start + i / (kDepth / 8);
      reinterpret_cast<uint4*>(to)[i] =
          at < length ? reinterpret_cast<const uint4*>(from + head + static_cast<long>(start) * kDepth)[i] : make_uint4(0, 0, 0, 0);
    }
  };
  fetch(queries, q, first);
  for (int i = lane; i < 16 * kDepth; i += 32) sums[i] = 0;
  float largest = -INFINITY, total = 0;  // of the lane's row; two lanes share one
  for (int start = 0; start < length; start += 16) {
    __syncwarp();
    fetch(keys, k, start);
    fetch(values, v, start);
    __syncwarp();
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> score;
    wmma::fill_fragment(score, 0);
    for (int d = 0; d < kDepth; d += 16) {
      wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> a;
      wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::col_major> b;
      wmma::load_matrix_sync(a, queries + d, kDepth);
      wmma::load_matrix_sync(b, keys + d, kDepth);
      wmma::mma_sync(score, a, b, score);
    }
    wmma::store_matrix_sync(scores, score, 16, wmma::mem_row_major);
    __syncwarp();
    float next = largest;
    for (int c = 0; c < 16; ++c)
      if (start + c < length) next = fmaxf(next, scores[row * 16 + c] * 0.125f);
    const float shrink = __expf(largest - next);
    __syncwarp();
    for (int c = lane % 2 * 8; c < lane % 2 * 8 + 8; ++c)
      weights[row * 16 + c] = __float2half(start + c < length ? __expf(scores[row * 16 + c] * 0.125f - next) : 0.0f);
    for (int d = lane % 2 * 32; d < lane % 2 * 32 + 32; ++d) sums[row * kDepth + d] *= shrink;
    __syncwarp();
    float added = 0;
    for (int c = 0; c < 16; ++c) added += __half2float(weights[row * 16 + c]);
    total = total * shrink + added;
    largest = next;
    wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> w;
    wmma::load_matrix_sync(w, weights, 16);
    for (int d = 0; d < kDepth; d += 16) {
      wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::row_major> b;
      wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum;
      wmma::load_matrix_sync(b, values + d, kDepth);
      wmma::load_matrix_sync(sum, sums + d, kDepth, wmma::mem_row_major);
      wmma::mma_sync(sum, w, b, sum);
      wmma::store_matrix_sync(sums + d, sum, kDepth, wmma::mem_row_major);
    }
  }
  __syncwarp();
  if (first + row < length)
    for (int d = lane % 2 * 32; d < lane % 2 * 32 + 32; ++d)
      out[head + static_cast<long>(first + row) * kDepth + d] = __float2half(sums[row * kDepth + d] / total);
}
