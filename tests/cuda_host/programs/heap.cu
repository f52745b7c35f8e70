// SPDX-License-Identifier: Apache-2.0
// Kernels that allocate, and a grid that meets: a tree built by new, malloc and free, and the sum over a grid by
// cooperative groups. With an argument it does something wrong.
#include <cooperative_groups.h>

#include <cassert>
#include <cstring>

#include "check.h"

struct Node {
  int value;
  Node* next;
  __device__ Node(int v, Node* n) : value(v), next(n) {}
};

__device__ Node* lists[64];

__global__ void build(int length) {
  Node* list = nullptr;
  for (int i = 0; i < length; ++i) list = new Node(i + (int)threadIdx.x, list);
  lists[threadIdx.x] = list;
}
__global__ void add_up(int* sums) {
  int sum = 0;
  for (Node* node = lists[threadIdx.x]; node != nullptr;) {
    Node* next = node->next;
    sum += node->value;
    delete node;
    node = next;
  }
  sums[threadIdx.x] = sum;
}
__global__ void fill_heap(size_t bytes, int* given) {
  void* block = malloc(bytes);
  if (block == nullptr) return;
  atomicAdd(given, 1);
  free(block);
}
__global__ void grid_sum(int* values, int* result) {
  cooperative_groups::grid_group grid = cooperative_groups::this_grid();
  const int at = (int)grid.thread_rank(), all = (int)grid.size();
  values[at] = at;
  grid.sync();
  if (at == 0)
    for (int i = 0; i < all; ++i) *result += values[i];
}
__global__ void free_twice() {
  int* block = static_cast<int*>(malloc(64));
  free(block);
  free(block);
}
__global__ void use_freed(int* out) {
  volatile int* block = static_cast<int*>(malloc(64));
  block[3] = 1;
  free((void*)block);
  *out = block[3];
}
__global__ void asserting(int value) { assert(value == 3); }

int main(int argc, char** argv) {
  int *out, sums[64];
  CHECK(cudaMalloc(&out, 64 * 128 * sizeof(int)));
  CHECK(cudaMemset(out, 0, 64 * 128 * sizeof(int)));
  const char* what = argc > 1 ? argv[1] : "";
  if (std::strcmp(what, "twice") == 0) {
    free_twice<<<1, 1>>>();
    cudaDeviceSynchronize();
    return 0;
  }
  if (std::strcmp(what, "freed") == 0) {
    use_freed<<<1, 1>>>(out);
    cudaDeviceSynchronize();
    return 0;
  }
  if (std::strcmp(what, "assert") == 0) {
    asserting<<<1, 1>>>(4);
    EXPECT(cudaDeviceSynchronize() == cudaErrorAssert);
    return 0;
  }
  size_t limit = 0;
  CHECK(cudaDeviceGetLimit(&limit, cudaLimitMallocHeapSize));
  EXPECT(limit == 8 << 20);
  CHECK(cudaDeviceSetLimit(cudaLimitMallocHeapSize, 1 << 20));
  CHECK(cudaDeviceGetLimit(&limit, cudaLimitMallocHeapSize));
  EXPECT(limit == 1 << 20);

  build<<<1, 64>>>(10);
  add_up<<<1, 64>>>(out);
  CHECK(cudaMemcpy(sums, out, sizeof sums, cudaMemcpyDeviceToHost));
  for (int t = 0; t < 64; ++t) EXPECT(sums[t] == 45 + 10 * t);
  EXPECT(cudaDeviceSetLimit(cudaLimitMallocHeapSize, 2 << 20) == cudaErrorInvalidValue);
  EXPECT(cudaGetLastError() == cudaErrorInvalidValue);

  CHECK(cudaMemset(out, 0, sizeof(int)));
  fill_heap<<<4, 32>>>(2 << 20, out);
  CHECK(cudaMemcpy(sums, out, sizeof(int), cudaMemcpyDeviceToHost));
  EXPECT(sums[0] == 0);

  int* result = out + 4096;
  void* arguments[] = {&out, &result};
  CHECK(cudaMemset(out, 0, 64 * 128 * sizeof(int)));
  CHECK(cudaLaunchCooperativeKernel((const void*)grid_sum, dim3(16), dim3(64), arguments, 0, nullptr));
  CHECK(cudaMemcpy(sums, result, sizeof(int), cudaMemcpyDeviceToHost));
  EXPECT(sums[0] == 1023 * 512);
  std::printf("fine\n");
}
