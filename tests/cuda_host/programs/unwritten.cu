// SPDX-License-Identifier: Apache-2.0
// Scratch memory that a kernel counts on: zeroed or not, by the argument. `pool` takes it from cudaMallocAsync, where the block was
// in use before.
#include <cuda_runtime.h>

#include <cstring>

#include "check.h"

__global__ void count(const int* values, int n, int* counters) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) atomicAdd(&counters[values[i] & 7], 1);  // the line
}
__global__ void add_up(const float* partial, int n, float* sum) {
  __shared__ float staged[64];
  staged[threadIdx.x] = threadIdx.x < n ? partial[threadIdx.x] : 0;
  __syncthreads();
  if (threadIdx.x == 0) {
    float all = 0;
    for (int i = 0; i < 64; ++i) all += staged[i];
    *sum = all;
  }
}

int main(int argc, char** argv) {
  const auto has = [&](const char* word) {
    for (int i = 1; i < argc; ++i)
      if (std::strcmp(argv[i], word) == 0) return true;
    return false;
  };
  constexpr int kCount = 256;
  int host[kCount];
  for (int i = 0; i < kCount; ++i) host[i] = i;
  int *values = nullptr, *counters = nullptr;
  CHECK(cudaMalloc(&values, sizeof host));
  CHECK(cudaMemcpy(values, host, sizeof host, cudaMemcpyHostToDevice));
  if (has("pool")) {
    for (int round = 0; round < 2; ++round) {
      CHECK(cudaMallocAsync(&counters, 8 * sizeof(int), nullptr));
      if (round == 0) {
        CHECK(cudaMemsetAsync(counters, 0, 8 * sizeof(int), nullptr));
        CHECK(cudaFreeAsync(counters, nullptr));
      }
    }
  } else {
    CHECK(cudaMalloc(&counters, 8 * sizeof(int)));
  }
  if (!has("unwritten")) CHECK(cudaMemsetAsync(counters, 0, 8 * sizeof(int), nullptr));
  count<<<2, 128>>>(values, kCount, counters);
  CHECK(cudaDeviceSynchronize());

  float *partial = nullptr, *sum = nullptr;
  CHECK(cudaMalloc(&partial, 64 * sizeof(float)));
  CHECK(cudaMalloc(&sum, sizeof(float)));
  if (!has("unwritten")) CHECK(cudaMemset(partial, 0, 64 * sizeof(float)));
  add_up<<<1, 64>>>(partial, 48, sum);
  CHECK(cudaDeviceSynchronize());
  std::puts("ok");
}
