// SPDX-License-Identifier: Apache-2.0
// Inclusive prefix sums in one pass: each block publishes its total, then looks back over its predecessors until one
// has published a whole prefix. Blocks take their numbers from a counter, so that predecessors are always running.
constexpr int kThreads = 128;
enum : unsigned { kNothing, kTotal, kPrefix };

__device__ long long publish_word(unsigned state, int value) {
  return static_cast<long long>(state) << 32 | static_cast<unsigned>(value);
}

extern "C" __global__ void scan(const int* in, int* out, int n, unsigned* next_block, volatile long long* published) {
  __shared__ unsigned block;
  __shared__ int of_warp[kThreads / 32];
  __shared__ int before_block;
  if (threadIdx.x == 0) block = atomicAdd(next_block, 1);
  __syncthreads();
  const int i = block * kThreads + threadIdx.x, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  int sum = i < n ? in[i] : 0;
  for (int distance = 1; distance < 32; distance *= 2) {
    const int left = __shfl_up_sync(~0u, sum, distance);
    if (lane >= distance) sum += left;
  }
  if (lane == 31) of_warp[warp] = sum;
  __syncthreads();
  int total = 0;
  for (int w = 0; w < kThreads / 32; ++w) {
    if (w < warp) sum += of_warp[w];
    total += of_warp[w];
  }
  if (threadIdx.x == 0) {
    if (block > 0) published[block] = publish_word(kTotal, total);
    int before = 0;
    for (int other = static_cast<int>(block) - 1; other >= 0; --other) {
      long long word;
      do word = published[other];
      while (word >> 32 == kNothing);
      before += static_cast<int>(word);
      if (word >> 32 == kPrefix) break;
    }
    published[block] = publish_word(kPrefix, before + total);
    before_block = before;
  }
  __syncthreads();
  if (i < n) out[i] = before_block + sum;
}
