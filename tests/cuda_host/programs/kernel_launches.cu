// SPDX-License-Identifier: Apache-2.0
// A kernel that launches another one is refused, by name; the others of the program run. Compiled with -rdc=true.
#include "check.h"

__global__ void child(int* out) { out[threadIdx.x] = static_cast<int>(threadIdx.x); }
__global__ void parent(int* out) {
  if (threadIdx.x == 0) child<<<1, 32>>>(out);
}

int main() {
  int* out = nullptr;
  CHECK(cudaMallocManaged(&out, 32 * sizeof(int)));
  child<<<1, 32>>>(out);
  CHECK(cudaDeviceSynchronize());
  EXPECT(out[31] == 31);
  parent<<<1, 32>>>(out);
  EXPECT(cudaGetLastError() == cudaErrorNotSupported);
  CHECK(cudaDeviceSynchronize());
}
