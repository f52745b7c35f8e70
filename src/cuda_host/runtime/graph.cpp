// SPDX-License-Identifier: Apache-2.0
// Graphs: the driver's, with the runtime's structures for their nodes.
#include "cuda_host/runtime/state.h"

using namespace imbrex::cudart;
using namespace imbrex::cuda;

namespace {

/// The driver's parameters of a kernel node; the kernel by its host address.
CUresult kernel_node(const cudaKernelNodeParams& wanted, CUDA_KERNEL_NODE_PARAMS* out) {
  CUfunction function = nullptr;
  if (const CUresult error = find_function(wanted.function, &function); error != CUDA_SUCCESS) return error;
  *out = {function,          wanted.grid.x,  wanted.grid.y,  wanted.grid.z,
          wanted.block.x,    wanted.block.y, wanted.block.z, wanted.shared_bytes,
          wanted.parameters, wanted.extra,   nullptr,        nullptr};
  return CUDA_SUCCESS;
}
CUDA_MEMCPY3D line(void* to, const void* from, size_t bytes) {
  CUDA_MEMCPY3D copy{};
  copy.source.memory_type = copy.destination.memory_type = kMemoryTypeUnified;
  copy.source.device = address_of(from);
  copy.destination.device = address_of(to);
  copy.width_bytes = bytes;
  copy.height = copy.depth = 1;
  return copy;
}

}  // namespace

CUDART_API cudaGraphCreate(CUgraph* graph, unsigned flags) {
  return call([&] { return cuGraphCreate(graph, flags); });
}
CUDART_API cudaGraphDestroy(CUgraph graph) {
  return call([&] { return cuGraphDestroy(graph); });
}
CUDART_API cudaGraphClone(CUgraph* clone, CUgraph original) {
  return call([&] { return cuGraphClone(clone, original); });
}
CUDART_API cudaGraphGetNodes(CUgraph graph, CUgraphNode* nodes, size_t* count) {
  return call([&] { return cuGraphGetNodes(graph, nodes, count); });
}
CUDART_API cudaGraphGetRootNodes(CUgraph graph, CUgraphNode* nodes, size_t* count) {
  return call([&] { return cuGraphGetRootNodes(graph, nodes, count); });
}
CUDART_API cudaGraphNodeGetType(CUgraphNode node, int* type) {
  return call([&] { return cuGraphNodeGetType(node, type); });
}
CUDART_API cudaGraphDestroyNode(CUgraphNode node) {
  return call([&] { return cuGraphDestroyNode(node); });
}
CUDART_API cudaGraphAddKernelNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies,
                                  size_t count, const cudaKernelNodeParams* wanted) {
  return call([&] {
    CUDA_KERNEL_NODE_PARAMS parameters;
    const CUresult error = kernel_node(*wanted, &parameters);
    return error == CUDA_SUCCESS ? cuGraphAddKernelNode_v2(node, graph, dependencies, count, &parameters)
                                 : error;
  });
}
CUDART_API cudaGraphExecKernelNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                            const cudaKernelNodeParams* wanted) {
  return call([&] {
    CUDA_KERNEL_NODE_PARAMS parameters;
    const CUresult error = kernel_node(*wanted, &parameters);
    return error == CUDA_SUCCESS ? cuGraphExecKernelNodeSetParams_v2(exec, node, &parameters) : error;
  });
}
CUDART_API cudaGraphAddMemcpyNode1D(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies,
                                    size_t count, void* to, const void* from, size_t bytes, int) {
  const CUDA_MEMCPY3D copy = line(to, from, bytes);
  return call([&] { return cuGraphAddMemcpyNode(node, graph, dependencies, count, &copy, nullptr); });
}
CUDART_API cudaGraphAddMemsetNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies,
                                  size_t count, const cudaMemsetParams* wanted) {
  const CUDA_MEMSET_NODE_PARAMS parameters{address_of(wanted->to), wanted->pitch, wanted->value,
                                           wanted->element_bytes,  wanted->width, wanted->height};
  return call([&] { return cuGraphAddMemsetNode(node, graph, dependencies, count, &parameters, nullptr); });
}
CUDART_API cudaGraphAddHostNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies,
                                size_t count, const CUDA_HOST_NODE_PARAMS* parameters) {
  return call([&] { return cuGraphAddHostNode(node, graph, dependencies, count, parameters); });
}
CUDART_API cudaGraphAddEmptyNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies,
                                 size_t count) {
  return call([&] { return cuGraphAddEmptyNode(node, graph, dependencies, count); });
}
CUDART_API cudaGraphAddChildGraphNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies,
                                      size_t count, CUgraph child) {
  return call([&] { return cuGraphAddChildGraphNode(node, graph, dependencies, count, child); });
}
#if IMBREX_CUDART_MAJOR >= 13
CUDART_API cudaGraphAddDependencies(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to,
                                    const void*, size_t count) {
  return call([&] { return cuGraphAddDependencies(graph, from, to, count); });
}
CUDART_API cudaGraphInstantiate(CUgraphExec* exec, CUgraph graph, unsigned long long flags) {
  return call([&] { return cuGraphInstantiateWithFlags(exec, graph, flags); });
}
#else
CUDART_API cudaGraphAddDependencies(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to,
                                    size_t count) {
  return call([&] { return cuGraphAddDependencies(graph, from, to, count); });
}
// In CUDA 12 as in 13; the five-parameter form of CUDA 11 went with that version.
CUDART_API cudaGraphInstantiate(CUgraphExec* exec, CUgraph graph, unsigned long long flags) {
  return call([&] { return cuGraphInstantiateWithFlags(exec, graph, flags); });
}
#endif
CUDART_API cudaGraphInstantiateWithFlags(CUgraphExec* exec, CUgraph graph, unsigned long long flags) {
  return call([&] { return cuGraphInstantiateWithFlags(exec, graph, flags); });
}
CUDART_API cudaGraphExecUpdate(CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo* info) {
  return call([&] { return cuGraphExecUpdate_v2(exec, graph, info); });
}
CUDART_API cudaGraphExecDestroy(CUgraphExec exec) {
  return call([&] { return cuGraphExecDestroy(exec); });
}
CUDART_API cudaGraphUpload(CUgraphExec exec, CUstream stream) {
  return call([&] { return cuGraphUpload(exec, stream); });
}
CUDART_API cudaGraphLaunch(CUgraphExec exec, CUstream stream) {
  return call([&] { return cuGraphLaunch(exec, stream); });
}
CUDART_API cudaGraphDebugDotPrint(CUgraph graph, const char* path, unsigned flags) {
  return call([&] { return cuGraphDebugDotPrint(graph, path, flags); });
}
