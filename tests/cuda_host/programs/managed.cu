// SPDX-License-Identifier: Apache-2.0
// __managed__ variables: read and written by host code before and after kernels, by name and by pointer, on every device.
#include "check.h"

struct Node {
  int value;
  Node* next;
};
__managed__ int total = 5;
__managed__ float table[8];
__managed__ Node* list;

__global__ void walk(int factor) {
  if (threadIdx.x == 0)
    for (Node* node = list; node != nullptr; node = node->next) {
      total += node->value;
      node->value *= factor;
    }
  table[threadIdx.x] += static_cast<float>(threadIdx.x);
}

int main() {
  EXPECT(total == 5 && table[7] == 0 && list == nullptr);
  table[3] = 100;
  for (int i = 0; i < 4; ++i) {
    Node* node = nullptr;
    CHECK(cudaMallocManaged(&node, sizeof(Node)));
    *node = {i, list};
    list = node;
  }
  walk<<<1, 8>>>(10);
  CHECK(cudaDeviceSynchronize());
  EXPECT(total == 5 + 6);
  EXPECT(list->value == 30 && list->next->value == 20);
  for (int i = 0; i < 8; ++i) EXPECT(table[i] == (i == 3 ? 100 : 0) + static_cast<float>(i));

  int copy = 0;
  CHECK(cudaMemcpyFromSymbol(&copy, total, sizeof copy));
  EXPECT(copy == 11);
  void* address = nullptr;
  CHECK(cudaGetSymbolAddress(&address, total));
  EXPECT(address == &total);
  size_t bytes = 0;
  CHECK(cudaGetSymbolSize(&bytes, table));
  EXPECT(bytes == sizeof table);
  cudaPointerAttributes attributes;
  CHECK(cudaPointerGetAttributes(&attributes, &total));
  EXPECT(attributes.type == cudaMemoryTypeManaged && attributes.hostPointer == &total);

  CHECK(cudaSetDevice(1));
  walk<<<1, 8>>>(1);
  CHECK(cudaDeviceSynchronize());
  EXPECT(total == 11 + 60);
  std::puts("ok");
}
