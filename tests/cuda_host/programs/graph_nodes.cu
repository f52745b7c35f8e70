// SPDX-License-Identifier: Apache-2.0
// Nodes of a graph of each kind, asked about and changed: in the graph, and in what was made of it.
#include <unistd.h>

#include <cstdint>

#include "check.h"

__device__ int counters[4];
__global__ void add(int* x, int value) { x[threadIdx.x] += value; }
__global__ void multiply(int* x, int value) { x[threadIdx.x] *= value; }

struct Calls {
  int sum = 0, destroyed = 0;
};
Calls calls;
void count(void* number) { calls.sum += static_cast<int>(reinterpret_cast<intptr_t>(number)); }
void destroy(void*) { ++calls.destroyed; }

int main() {
  constexpr int kSize = 64;
  int *x, *y, got[kSize];
  CHECK(cudaMalloc(&x, sizeof got));
  CHECK(cudaMalloc(&y, sizeof got));
  cudaStream_t stream;
  CHECK(cudaStreamCreate(&stream));
  cudaGraph_t graph;
  CHECK(cudaGraphCreate(&graph, 0));

  // x = 2; host(1); x += 5; y = x as slices; got = y; counters = got[0 .. 3]
  cudaMemsetParams fill{};
  fill.dst = x, fill.elementSize = 4, fill.value = 2, fill.width = kSize, fill.height = 1;
  cudaGraphNode_t filled, called, added, copied, read, stored;
  CHECK(cudaGraphAddMemsetNode(&filled, graph, nullptr, 0, &fill));
  cudaHostNodeParams host{count, reinterpret_cast<void*>(1)};
  CHECK(cudaGraphAddHostNode(&called, graph, &filled, 1, &host));
  int value = 5;
  void* arguments[] = {&x, &value};
  cudaKernelNodeParams kernel{};
  kernel.func = reinterpret_cast<void*>(add);
  kernel.gridDim = dim3(1), kernel.blockDim = dim3(kSize), kernel.kernelParams = arguments;
  CHECK(cudaGraphAddKernelNode(&added, graph, &called, 1, &kernel));
  cudaMemcpy3DParms slices{};
  slices.srcPtr = make_cudaPitchedPtr(x, 32, 32, 4);
  slices.dstPtr = make_cudaPitchedPtr(y, 32, 32, 4);
  slices.extent = make_cudaExtent(32, 4, 2);
  slices.kind = cudaMemcpyDeviceToDevice;
  CHECK(cudaGraphAddMemcpyNode(&copied, graph, &added, 1, &slices));
  CHECK(cudaGraphAddMemcpyNode1D(&read, graph, &copied, 1, got, y, sizeof got, cudaMemcpyDeviceToHost));
  CHECK(cudaGraphAddMemcpyNodeToSymbol(&stored, graph, &copied, 1, counters, y, 8, 8, cudaMemcpyDeviceToDevice));

  // What was said comes back.
  cudaKernelNodeParams asked{};
  CHECK(cudaGraphKernelNodeGetParams(added, &asked));
  EXPECT(asked.func == reinterpret_cast<void*>(add) && asked.blockDim.x == kSize && asked.gridDim.x == 1);
  EXPECT(*static_cast<int*>(asked.kernelParams[1]) == 5);
  cudaMemsetParams asked_fill{};
  CHECK(cudaGraphMemsetNodeGetParams(filled, &asked_fill));
  EXPECT(asked_fill.dst == x && asked_fill.value == 2 && asked_fill.width == kSize);
  cudaHostNodeParams asked_host{};
  CHECK(cudaGraphHostNodeGetParams(called, &asked_host));
  EXPECT(asked_host.fn == count && asked_host.userData == host.userData);
  size_t edges = 0, before = 0, behind = 0;
#if CUDART_VERSION >= 13000
  CHECK(cudaGraphGetEdges(graph, nullptr, nullptr, nullptr, &edges));
  CHECK(cudaGraphNodeGetDependencies(copied, nullptr, nullptr, &before));
  CHECK(cudaGraphNodeGetDependentNodes(copied, nullptr, nullptr, &behind));
#else
  CHECK(cudaGraphGetEdges(graph, nullptr, nullptr, &edges));
  CHECK(cudaGraphNodeGetDependencies(copied, nullptr, &before));
  CHECK(cudaGraphNodeGetDependentNodes(copied, nullptr, &behind));
#endif
  EXPECT(edges == 5 && before == 1 && behind == 2);

  cudaUserObject_t object;
  CHECK(cudaUserObjectCreate(&object, &calls, destroy, 1, cudaUserObjectNoDestructorSync));
  CHECK(cudaGraphRetainUserObject(graph, object, 1, cudaGraphUserObjectMove));

  cudaGraphExec_t exec;
  cudaGraphInstantiateParams how{};
  CHECK(cudaGraphInstantiateWithParams(&exec, graph, &how));
  EXPECT(how.result_out == cudaGraphInstantiateSuccess);
  unsigned long long flags = 1;
  CHECK(cudaGraphExecGetFlags(exec, &flags));
  EXPECT(flags == 0);
  CHECK(cudaGraphLaunch(exec, stream));
  CHECK(cudaStreamSynchronize(stream));
  for (int v : got) EXPECT(v == 7);
  int stored_counters[4];
  CHECK(cudaMemcpyFromSymbol(stored_counters, counters, sizeof stored_counters));
  EXPECT(stored_counters[0] == 0 && stored_counters[1] == 0 && stored_counters[2] == 7 && stored_counters[3] == 7);
  EXPECT(calls.sum == 1);

  // What was made is changed: x = 3; host(10); x += 4; got = x; the rest as before.
  fill.value = 3, value = 4, host.userData = reinterpret_cast<void*>(10);
  CHECK(cudaGraphExecMemsetNodeSetParams(exec, filled, &fill));
  CHECK(cudaGraphExecHostNodeSetParams(exec, called, &host));
  CHECK(cudaGraphExecKernelNodeSetParams(exec, added, &kernel));
  CHECK(cudaGraphExecMemcpyNodeSetParams1D(exec, read, got, x, sizeof got, cudaMemcpyDeviceToHost));
  CHECK(cudaGraphExecMemcpyNodeSetParamsToSymbol(exec, stored, counters, x, 4, 0, cudaMemcpyDeviceToDevice));
  CHECK(cudaGraphLaunch(exec, stream));
  CHECK(cudaStreamSynchronize(stream));
  for (int v : got) EXPECT(v == 7);
  CHECK(cudaMemcpyFromSymbol(stored_counters, counters, sizeof stored_counters));
  EXPECT(stored_counters[0] == 7 && calls.sum == 11);

  // A node that is switched off does nothing; the host function is off, and x stays 3.
  CHECK(cudaGraphNodeSetEnabled(exec, added, 0));
  unsigned is_enabled = 1;
  CHECK(cudaGraphNodeGetEnabled(exec, added, &is_enabled));
  EXPECT(is_enabled == 0);
  CHECK(cudaGraphLaunch(exec, stream));
  CHECK(cudaStreamSynchronize(stream));
  for (int v : got) EXPECT(v == 3);
  EXPECT(calls.sum == 21);

  // The graph is changed, and made anew: x = 6; x *= 7; got = y.
  fill.value = 6, value = 7;
  kernel.func = reinterpret_cast<void*>(multiply);
  CHECK(cudaGraphMemsetNodeSetParams(filled, &fill));
  CHECK(cudaGraphKernelNodeSetParams(added, &kernel));
  CHECK(cudaGraphKernelNodeGetParams(added, &asked));
  EXPECT(asked.func == reinterpret_cast<void*>(multiply));
  CHECK(cudaGraphHostNodeSetParams(called, &host));
  CHECK(cudaGraphExecDestroy(exec));
  CHECK(cudaGraphInstantiate(&exec, graph, 0));
  CHECK(cudaGraphLaunch(exec, stream));
  CHECK(cudaStreamSynchronize(stream));
  for (int v : got) EXPECT(v == 42);

  // Events and memory of a graph.
  cudaEvent_t event;
  CHECK(cudaEventCreate(&event));
  cudaGraph_t other;
  cudaGraphNode_t taken, used, recorded, freed;
  CHECK(cudaGraphCreate(&other, 0));
  cudaMemAllocNodeParams wanted{};
  wanted.poolProps.allocType = cudaMemAllocationTypePinned;
  wanted.poolProps.location.type = cudaMemLocationTypeDevice;
  wanted.bytesize = sizeof got;
  CHECK(cudaGraphAddMemAllocNode(&taken, other, nullptr, 0, &wanted));
  fill.dst = wanted.dptr, fill.value = 9;
  CHECK(cudaGraphAddMemsetNode(&used, other, &taken, 1, &fill));
  CHECK(cudaGraphAddMemcpyNode1D(&read, other, &used, 1, got, wanted.dptr, sizeof got, cudaMemcpyDeviceToHost));
  CHECK(cudaGraphAddEventRecordNode(&recorded, other, &read, 1, event));
  CHECK(cudaGraphAddMemFreeNode(&freed, other, &recorded, 1, wanted.dptr));
  cudaGraphExec_t other_exec;
  CHECK(cudaGraphInstantiate(&other_exec, other, 0));
  CHECK(cudaGraphLaunch(other_exec, stream));
  CHECK(cudaEventSynchronize(event));
  CHECK(cudaStreamSynchronize(stream));
  for (int v : got) EXPECT(v == 9);
  CHECK(cudaGraphExecDestroy(other_exec));
  CHECK(cudaGraphDestroy(other));

  CHECK(cudaGraphExecDestroy(exec));
  CHECK(cudaGraphDestroy(graph));
  for (int i = 0; i < 5000 && static_cast<volatile Calls&>(calls).destroyed == 0; ++i) usleep(1000);  // a chip's driver does it later
  EXPECT(calls.destroyed == 1);

  // No kernel is behind the address of a function of the host.
  EXPECT(cudaLaunchKernel(reinterpret_cast<void*>(destroy), dim3(1), dim3(1), arguments, 0, stream) ==
         cudaErrorInvalidResourceHandle);
}
