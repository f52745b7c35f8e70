// SPDX-License-Identifier: Apache-2.0
// What a faulty program sees: a race, then an access past the end, then what the argument asks for.
#include <cstring>

#include "check.h"

__global__ void reverse(float* x) {
  __shared__ float staged[128];
  staged[threadIdx.x] = x[threadIdx.x];
  x[threadIdx.x] = staged[127 - threadIdx.x];  // the race
}
__global__ void past_the_end(float* x) { x[threadIdx.x + 1] = 1; }
__global__ void asserting(int value) {
  printf("value %d\n", value);
  if (value != 3) __trap();
}

/// All CTAs but the first come once; the first waits for one more than there are.
__global__ void wait_for_others(int* arrived) {
  if (blockIdx.x == 0 && threadIdx.x == 0)
    while (atomicAdd(arrived + 2, 0) != 4) {
    }
  if (blockIdx.x > 0 && threadIdx.x == 0) atomicAdd(arrived + 2, 1);
}

int main(int argc, char** argv) {
  float* x;
  CHECK(cudaMalloc(&x, 128 * sizeof(float)));
  CHECK(cudaMemset(x, 0, 128 * sizeof(float)));
  const char* what = argc > 1 ? argv[1] : "";
  if (std::strcmp(what, "race") == 0) {
    reverse<<<1, 128>>>(x);
    CHECK(cudaDeviceSynchronize());
  } else if (std::strcmp(what, "past") == 0) {
    past_the_end<<<1, 128>>>(x);
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());  // no GPU notices an access this near
  } else if (std::strcmp(what, "far") == 0) {
    past_the_end<<<1, 128>>>(x + (size_t{1} << 30));
    CHECK(cudaGetLastError());
    EXPECT(cudaDeviceSynchronize() == cudaErrorIllegalAddress);
  } else if (std::strcmp(what, "trap") == 0) {
    asserting<<<1, 1>>>(4);
    EXPECT(cudaDeviceSynchronize() != cudaSuccess);
  } else if (std::strcmp(what, "twice") == 0) {
    CHECK(cudaFree(x));
    EXPECT(cudaFree(x) == cudaErrorInvalidValue);
  } else if (std::strcmp(what, "much") == 0) {
    float* y = x;
    EXPECT(cudaMalloc(&y, size_t{1} << 50) == cudaErrorMemoryAllocation);
    past_the_end<<<1, 1>>>(x);
    CHECK(cudaDeviceSynchronize());
  } else if (std::strcmp(what, "host") == 0 || std::strcmp(what, "null") == 0) {
    float on_the_stack[2];
    past_the_end<<<1, 1>>>(std::strcmp(what, "host") == 0 ? on_the_stack : nullptr);
    EXPECT(cudaDeviceSynchronize() == cudaErrorIllegalAddress);
    EXPECT(cudaMalloc(&x, 4) == cudaErrorIllegalAddress);
    EXPECT(cudaFree(x) == cudaErrorIllegalAddress);
  } else if (std::strcmp(what, "semaphore") == 0) {
    wait_for_others<<<4, 64>>>(reinterpret_cast<int*>(x));
    EXPECT(cudaDeviceSynchronize() == cudaErrorLaunchTimeout);
  } else if (std::strcmp(what, "follow") == 0) {
    x[0] = 1;
  }
}
