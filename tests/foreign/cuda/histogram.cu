// SPDX-License-Identifier: Apache-2.0
// A histogram per block in dynamic shared memory; lanes that meet in a bin are counted by one atomic.
extern "C" __global__ void histogram(const unsigned char* x, int n, unsigned* bins, int bin_count) {
  extern __shared__ unsigned local[];
  for (int b = threadIdx.x; b < bin_count; b += blockDim.x) local[b] = 0;
  __syncthreads();
  const int first = blockIdx.x * blockDim.x + threadIdx.x;
  for (int i = first; i < n; i += gridDim.x * blockDim.x) {
    const int bin = x[i] % bin_count;
    const unsigned peers = __match_any_sync(__activemask(), bin);
    if (__ffs(peers) - 1 == threadIdx.x % 32) atomicAdd(&local[bin], __popc(peers));
  }
  __syncthreads();
  for (int b = threadIdx.x; b < bin_count; b += blockDim.x)
    if (local[b] != 0) atomicAdd(&bins[b], local[b]);
}
