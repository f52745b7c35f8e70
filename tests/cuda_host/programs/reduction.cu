// SPDX-License-Identifier: Apache-2.0
// Static and dynamic shared memory, shuffles, atomics, and a template kernel.
#include <vector>

#include "check.h"

template <int kThreads>
__global__ void sum(const int* x, int n, unsigned long long* total) {
  __shared__ long long part[kThreads / 32];
  extern __shared__ int staged[];
  long long mine = 0;
  for (int i = blockIdx.x * kThreads + threadIdx.x; i < n; i += gridDim.x * kThreads) {
    staged[threadIdx.x] = x[i];
    mine += staged[threadIdx.x];
  }
  for (int d = 16; d > 0; d /= 2) mine += __shfl_xor_sync(~0u, mine, d);
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = mine;
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int w = 1; w < kThreads / 32; ++w) mine += part[w];
    atomicAdd(total, static_cast<unsigned long long>(mine));
  }
}

int main() {
  const int n = 50000;
  std::vector<int> x(n);
  long long expected = 0;
  for (int i = 0; i < n; ++i) expected += x[i] = (i * 7919) % 1000 - 500;
  int* in;
  unsigned long long* out;
  CHECK(cudaMalloc(&in, n * sizeof(int)));
  CHECK(cudaMalloc(&out, 8));
  CHECK(cudaMemcpy(in, x.data(), n * sizeof(int), cudaMemcpyDefault));
  CHECK(cudaMemset(out, 0, 8));
  const int bytes = 100 << 10;
  sum<128><<<5, 128, bytes>>>(in, n, out);
  EXPECT(cudaGetLastError() != cudaSuccess);  // more than a kernel gets unasked
  CHECK(cudaFuncSetAttribute(sum<128>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
  sum<128><<<5, 128, bytes>>>(in, n, out);
  CHECK(cudaGetLastError());
  long long total = 0;
  CHECK(cudaMemcpy(&total, out, 8, cudaMemcpyDeviceToHost));
  EXPECT(total == expected);
}
