// SPDX-License-Identifier: Apache-2.0
// Sum and maximum of an array: shuffles within a warp, shared memory within a block; the block that finishes last
// adds up the others' results, which a fence and an atomic counter hand to it.
struct Summary {
  double sum;
  float largest;
  int at;
};

__device__ Summary join(Summary a, Summary b) {
  a.sum += b.sum;
  if (b.largest > a.largest || (b.largest == a.largest && b.at < a.at)) {
    a.largest = b.largest;
    a.at = b.at;
  }
  return a;
}

__device__ Summary reduce_block(Summary s) {
  __shared__ Summary of_warp[32];
  for (int distance = 16; distance > 0; distance /= 2)
    s = join(s, {__shfl_down_sync(~0u, s.sum, distance), __shfl_down_sync(~0u, s.largest, distance),
                 __shfl_down_sync(~0u, s.at, distance)});
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = s;
  __syncthreads();
  if (threadIdx.x == 0)
    for (int w = 1; w < blockDim.x / 32; ++w) s = join(s, of_warp[w]);
  __syncthreads();
  return s;
}

extern "C" __global__ void reduction(const float* x, int n, Summary* partial, unsigned* finished, Summary* result) {
  Summary s{0, -INFINITY, 0x7fffffff};
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
    s = join(s, {x[i], x[i], i});
  s = reduce_block(s);
  __shared__ bool last;
  if (threadIdx.x == 0) {
    partial[blockIdx.x] = s;
    __threadfence();
    last = atomicInc(finished, gridDim.x - 1) == gridDim.x - 1;
  }
  __syncthreads();
  if (!last) return;
  __threadfence();
  s = {0, -INFINITY, 0x7fffffff};
  for (int i = threadIdx.x; i < gridDim.x; i += blockDim.x) s = join(s, partial[i]);
  s = reduce_block(s);
  if (threadIdx.x == 0) *result = s;
}
