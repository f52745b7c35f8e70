// SPDX-License-Identifier: Apache-2.0
// Compiled with a default stream per thread: what two threads give theirs is not ordered. With an argument, nothing else orders it.
#include <thread>

#include "check.h"

__global__ void add(int* p, int more) { p[threadIdx.x] += more; }

int main(int argc, char**) {
  int* p;
  CHECK(cudaMalloc(&p, 32 * sizeof(int)));
  CHECK(cudaMemset(p, 0, 32 * sizeof(int)));
  unsigned long long none = 0, of_thread = 0, legacy = 0;
  CHECK(cudaStreamGetId(nullptr, &none));
  CHECK(cudaStreamGetId(cudaStreamPerThread, &of_thread));
  CHECK(cudaStreamGetId(cudaStreamLegacy, &legacy));
  EXPECT(none == of_thread && none != legacy);

  add<<<1, 32>>>(p, 1);
  CHECK(cudaGetLastError());
  if (argc == 1) CHECK(cudaStreamSynchronize(nullptr));
  std::thread([p] {
    add<<<1, 32>>>(p, 2);
    CHECK(cudaStreamSynchronize(nullptr));
  }).join();
  // The legacy stream comes behind those of all threads, and what they are given later behind it.
  add<<<1, 32, 0, cudaStreamLegacy>>>(p, 4);
  std::thread([p] {
    add<<<1, 32>>>(p, 8);
    CHECK(cudaStreamSynchronize(nullptr));
  }).join();
  int host[32];
  CHECK(cudaMemcpy(host, p, sizeof host, cudaMemcpyDeviceToHost));
  for (const int one : host) EXPECT(one == 15);

  // It can be captured, which the legacy stream cannot.
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  CHECK(cudaStreamBeginCapture(nullptr, cudaStreamCaptureModeThreadLocal));
  add<<<1, 32>>>(p, 16);
  CHECK(cudaStreamEndCapture(nullptr, &graph));
  CHECK(cudaGraphInstantiate(&exec, graph, 0));
  CHECK(cudaGraphLaunch(exec, nullptr));
  CHECK(cudaMemcpy(host, p, sizeof host, cudaMemcpyDeviceToHost));
  for (const int one : host) EXPECT(one == 31);
}
