// SPDX-License-Identifier: Apache-2.0
// Host functions run beside the program, one at a time, and hold up their streams and whoever waits for those, but no others. An H200
// answers every call here alike.
#include <atomic>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>

#include "check.h"

std::atomic<bool> g_open{false};
void wait_until_open(void*) {
  while (!g_open) std::this_thread::yield();
}
void count(void* counter) { ++*static_cast<std::atomic<int>*>(counter); }
void called_back(cudaStream_t, cudaError_t status, void* seen) { *static_cast<cudaError_t*>(seen) = status; }
void call_cuda(void* codes) {
  void* memory;
  int devices;
  static_cast<cudaError_t*>(codes)[0] = cudaMalloc(&memory, 4);
  static_cast<cudaError_t*>(codes)[1] = cudaGetDeviceCount(&devices);
}
__global__ void add_to(int* p, int value) { *p += value; }

int main(int argc, char** argv) {
  cudaStream_t held, behind, free_one, unused;
  cudaEvent_t event, legacy;
  CHECK(cudaStreamCreate(&held));
  CHECK(cudaStreamCreate(&behind));
  CHECK(cudaStreamCreateWithFlags(&free_one, cudaStreamNonBlocking));
  CHECK(cudaStreamCreate(&unused));
  CHECK(cudaEventCreate(&event));
  CHECK(cudaEventCreate(&legacy));
  int *values, *pinned;
  CHECK(cudaMalloc(&values, 64));
  CHECK(cudaMallocHost(&pinned, 64));
  CHECK(cudaMemset(values, 0, 64));
  CHECK(cudaDeviceSynchronize());

  // One stream is held up, with an event behind it, and another that waits for the event.
  std::atomic<int> calls{0};
  CHECK(cudaLaunchHostFunc(held, wait_until_open, nullptr));
  add_to<<<1, 1, 0, held>>>(values, 1);
  CHECK(cudaEventRecord(event, held));
  EXPECT(cudaStreamQuery(held) == cudaErrorNotReady);
  EXPECT(cudaEventQuery(event) == cudaErrorNotReady);
  CHECK(cudaStreamQuery(behind));
  CHECK(cudaStreamWaitEvent(behind, event));
  add_to<<<1, 1, 0, behind>>>(values, 10);
  EXPECT(cudaStreamQuery(behind) == cudaErrorNotReady);
  // A third is not, until it has a host function: those run one after the other.
  add_to<<<1, 1, 0, free_one>>>(values + 1, 7);
  CHECK(cudaMemcpyAsync(pinned, values + 1, 4, cudaMemcpyDeviceToHost, free_one));
  CHECK(cudaStreamSynchronize(free_one));
  EXPECT(pinned[0] == 7);
  CHECK(cudaLaunchHostFunc(free_one, count, &calls));
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT(calls == 0);
  EXPECT(cudaStreamQuery(free_one) == cudaErrorNotReady);
  // The legacy stream waits for all that block. What is copied is what there is when the call is made.
  int value = 100;
  CHECK(cudaMemcpyAsync(values + 2, &value, sizeof value, cudaMemcpyHostToDevice, held));
  value = 200;
  EXPECT(cudaStreamQuery(0) == cudaErrorNotReady);
  CHECK(cudaEventRecord(legacy, 0));
  EXPECT(cudaEventQuery(legacy) == cudaErrorNotReady);
  float milliseconds;
  EXPECT(cudaEventElapsedTime(&milliseconds, event, legacy) == cudaErrorNotReady);
  cudaError_t status = cudaErrorUnknown;
  CHECK(cudaStreamAddCallback(behind, called_back, &status, 0));
  CHECK(cudaStreamDestroy(unused));
  CHECK(cudaStreamDestroy(behind));
  CHECK(cudaEventDestroy(event));
  g_open = true;
  CHECK(cudaDeviceSynchronize());
  CHECK(cudaStreamQuery(held));
  CHECK(cudaEventQuery(legacy));
  EXPECT(calls == 1);
  EXPECT(status == cudaSuccess);
  int got[3];
  CHECK(cudaMemcpy(got, values, sizeof got, cudaMemcpyDeviceToHost));
  EXPECT(got[0] == 11 && got[1] == 7 && got[2] == 100);

  cudaError_t codes[2] = {cudaErrorUnknown, cudaErrorUnknown};
  CHECK(cudaLaunchHostFunc(held, call_cuda, codes));
  CHECK(cudaStreamSynchronize(held));
  EXPECT(codes[0] == cudaErrorNotPermitted);
  EXPECT(codes[1] == cudaSuccess);

  // In a graph, which goes before it has run; and its picture.
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  CHECK(cudaStreamBeginCapture(held, cudaStreamCaptureModeGlobal));
  add_to<<<1, 1, 0, held>>>(values, 1000);
  CHECK(cudaLaunchHostFunc(held, count, &calls));
  CHECK(cudaMemsetAsync(values + 1, 0, 4, held));
  CHECK(cudaStreamEndCapture(held, &graph));
  const std::string picture = argc > 1 ? argv[1] : "graph.dot";
  CHECK(cudaGraphDebugDotPrint(graph, picture.c_str(), cudaGraphDebugDotFlagsKernelNodeParams));
  std::ifstream file(picture);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  EXPECT(text.find("_Z6add_toPii\n\\<\\<\\<1,1,0\\>\\>\\>") != std::string::npos);
  EXPECT(text.find("MEMSET\n(0,4)") != std::string::npos);
  EXPECT(text.find("\"graph_1_node_0\" -> \"graph_1_node_1\"") != std::string::npos);
  std::remove(picture.c_str());
  CHECK(cudaGraphInstantiate(&exec, graph, 0));
  g_open = false;
  CHECK(cudaLaunchHostFunc(held, wait_until_open, nullptr));
  CHECK(cudaGraphLaunch(exec, held));
  CHECK(cudaGraphLaunch(exec, held));
  EXPECT(cudaStreamQuery(held) == cudaErrorNotReady);
  CHECK(cudaGraphExecDestroy(exec));
  CHECK(cudaGraphDestroy(graph));
  g_open = true;
  CHECK(cudaStreamSynchronize(held));
  CHECK(cudaMemcpy(got, values, sizeof got, cudaMemcpyDeviceToHost));
  EXPECT(got[0] == 2011 && got[1] == 0 && calls == 3);
  CHECK(cudaFree(values));
  CHECK(cudaFreeHost(pinned));
}
