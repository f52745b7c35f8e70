// SPDX-License-Identifier: Apache-2.0
// __constant__ and __device__ variables.
#include "check.h"

__constant__ float factors[4];
__device__ int counter = 40;
__device__ float results[64];

__global__ void apply() {
  results[threadIdx.x] = factors[threadIdx.x % 4] * threadIdx.x;
  atomicAdd(&counter, 1);
}

int main() {
  const float values[4] = {1, -2, 3.5f, 0.25f};
  CHECK(cudaMemcpyToSymbol(factors, values, sizeof values));
  apply<<<1, 64>>>();
  CHECK(cudaGetLastError());
  float got[64];
  int count = 0;
  size_t bytes = 0;
  void* address = nullptr;
  CHECK(cudaMemcpyFromSymbol(got, results, sizeof got));
  CHECK(cudaMemcpyFromSymbol(&count, counter, sizeof count));
  EXPECT(count == 104);
  for (int i = 0; i < 64; ++i) EXPECT(got[i] == values[i % 4] * i);
  CHECK(cudaGetSymbolSize(&bytes, results));
  EXPECT(bytes == sizeof got);
  CHECK(cudaGetSymbolAddress(&address, results));
  CHECK(cudaMemcpy(got, static_cast<float*>(address) + 5, 4, cudaMemcpyDeviceToHost));
  EXPECT(got[0] == values[1] * 5);
  EXPECT(cudaMemcpyToSymbol(factors, values, sizeof values, 4) != cudaSuccess);
}
