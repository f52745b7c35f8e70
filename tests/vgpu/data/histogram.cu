// nvcc -arch=sm_90a -ptx -lineinfo histogram.cu
// Counts bytes: shared-memory atomics first, then global ones. Also the last block to finish, found by a counter, writes the
// total.
__global__ void histogram(const unsigned char* in, unsigned* bins, unsigned* done, unsigned* total, int n) {
  __shared__ unsigned local[256];
  __shared__ bool last;
  for (int i = threadIdx.x; i < 256; i += blockDim.x) local[i] = 0;
  __syncthreads();
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) atomicAdd(&local[in[i]], 1u);
  __syncthreads();
  for (int i = threadIdx.x; i < 256; i += blockDim.x) atomicAdd(&bins[i], local[i]);
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) last = atomicAdd(done, 1u) == gridDim.x - 1;
  __syncthreads();
  if (last && threadIdx.x == 0) {
    unsigned sum = 0;
    for (int i = 0; i < 256; ++i) sum += *(volatile unsigned*)&bins[i];
    *total = sum;
  }
}
