// SPDX-License-Identifier: Apache-2.0
// A captured graph, and one built node by node.
#include "check.h"

__global__ void add(int* x, int value) { x[threadIdx.x] += value; }

int main() {
  int* x;
  CHECK(cudaMalloc(&x, 64 * sizeof(int)));
  CHECK(cudaMemset(x, 0, 64 * sizeof(int)));
  cudaStream_t stream;
  CHECK(cudaStreamCreate(&stream));
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  add<<<1, 64, 0, stream>>>(x, 1);
  add<<<1, 64, 0, stream>>>(x, 10);
  CHECK(cudaStreamEndCapture(stream, &graph));
  size_t nodes = 0;
  CHECK(cudaGraphGetNodes(graph, nullptr, &nodes));
  EXPECT(nodes == 2);
  CHECK(cudaGraphInstantiate(&exec, graph, 0));
  for (int i = 0; i < 3; ++i) CHECK(cudaGraphLaunch(exec, stream));
  int got[64];
  CHECK(cudaMemcpyAsync(got, x, sizeof got, cudaMemcpyDeviceToHost, stream));
  CHECK(cudaStreamSynchronize(stream));
  for (int value : got) EXPECT(value == 33);
  // A launch that was captured is asked about and changed as one that was added.
  cudaGraphNode_t captured[2];
  CHECK(cudaGraphGetNodes(graph, captured, &nodes));
  cudaKernelNodeParams asked{};
  CHECK(cudaGraphKernelNodeGetParams(captured[1], &asked));
  EXPECT(asked.func == reinterpret_cast<void*>(add) && *static_cast<int*>(asked.kernelParams[1]) == 10);
  int changed = 20;
  void* others[] = {&x, &changed};
  asked.kernelParams = others;
  CHECK(cudaGraphExecKernelNodeSetParams(exec, captured[1], &asked));
  CHECK(cudaGraphLaunch(exec, stream));
  CHECK(cudaMemcpyAsync(got, x, sizeof got, cudaMemcpyDeviceToHost, stream));
  CHECK(cudaStreamSynchronize(stream));
  for (int value : got) EXPECT(value == 54);

  cudaGraph_t built;
  cudaGraphNode_t clear, first, second, read;
  CHECK(cudaGraphCreate(&built, 0));
  cudaMemsetParams fill{};
  fill.dst = x;
  fill.elementSize = 4;
  fill.value = 5;
  fill.width = 64;
  fill.height = 1;
  CHECK(cudaGraphAddMemsetNode(&clear, built, nullptr, 0, &fill));
  int value = 100;
  void* arguments[] = {&x, &value};
  cudaKernelNodeParams kernel{};
  kernel.func = reinterpret_cast<void*>(add);
  kernel.gridDim = dim3(1);
  kernel.blockDim = dim3(64);
  kernel.kernelParams = arguments;
  CHECK(cudaGraphAddKernelNode(&first, built, &clear, 1, &kernel));
  value = 1000;
  CHECK(cudaGraphAddKernelNode(&second, built, &first, 1, &kernel));
  CHECK(cudaGraphAddMemcpyNode1D(&read, built, &second, 1, got, x, sizeof got, cudaMemcpyDeviceToHost));
  cudaGraphExec_t built_exec;
  CHECK(cudaGraphInstantiate(&built_exec, built, 0));
  CHECK(cudaGraphLaunch(built_exec, stream));
  CHECK(cudaStreamSynchronize(stream));
  for (int v : got) EXPECT(v == 1105);
  value = 2000;
  CHECK(cudaGraphExecKernelNodeSetParams(built_exec, second, &kernel));
  CHECK(cudaGraphLaunch(built_exec, stream));
  CHECK(cudaStreamSynchronize(stream));
  for (int v : got) EXPECT(v == 2105);
  CHECK(cudaGraphExecDestroy(built_exec));
  CHECK(cudaGraphDestroy(built));
}
