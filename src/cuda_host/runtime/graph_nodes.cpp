// SPDX-License-Identifier: Apache-2.0
// The nodes of graphs: the driver's, from the runtime's structures.
#include <cstring>

#include "cuda_host/runtime/copies.h"
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

CUDA_MEMSET_NODE_PARAMS fill(const cudaMemsetParams& wanted) {
  return {address_of(wanted.to), wanted.pitch, wanted.value,
          wanted.element_bytes,  wanted.width, wanted.height};
}

/// Calls `body` with the copy of `bytes` bytes between `other` and a variable's, `offset` bytes behind its beginning.
template <class Body>
cudaError_t with_copy_of(const void* variable, size_t offset, size_t bytes, const void* other,
                         bool to_variable, Body&& body) {
  return call([&] {
    CUdeviceptr address = 0;
    size_t size = 0;
    if (const CUresult error = find_variable(variable, &address, &size); error != CUDA_SUCCESS) return error;
    if (offset > size || bytes > size - offset) return CUDA_ERROR_INVALID_VALUE;
    auto* const at = reinterpret_cast<void*>(address + offset);
    const CUDA_MEMCPY3D copy =
        to_variable ? line(at, other, bytes) : line(const_cast<void*>(other), at, bytes);
    return body(copy);
  });
}

}  // namespace

// Added to a graph.
CUDART_API cudaGraphAddKernelNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies,
                                  size_t count, const cudaKernelNodeParams* wanted) {
  return call([&] {
    CUDA_KERNEL_NODE_PARAMS parameters;
    const CUresult error = kernel_node(*wanted, &parameters);
    return error == CUDA_SUCCESS ? cuGraphAddKernelNode_v2(node, graph, dependencies, count, &parameters)
                                 : error;
  });
}
CUDART_API cudaGraphAddMemcpyNode1D(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies,
                                    size_t count, void* to, const void* from, size_t bytes, int) {
  const CUDA_MEMCPY3D copy = line(to, from, bytes);
  return call([&] { return cuGraphAddMemcpyNode(node, graph, dependencies, count, &copy, nullptr); });
}
CUDART_API cudaGraphAddMemsetNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies,
                                  size_t count, const cudaMemsetParams* wanted) {
  const CUDA_MEMSET_NODE_PARAMS parameters = fill(*wanted);
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
CUDART_API cudaGraphAddMemcpyNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies,
                                  size_t count, const cudaMemcpy3DParms* wanted) {
  const CUDA_MEMCPY3D copy = slices(*wanted);
  return call([&] { return cuGraphAddMemcpyNode(node, graph, dependencies, count, &copy, nullptr); });
}
CUDART_API cudaGraphAddMemcpyNodeToSymbol(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies,
                                          size_t count, const void* variable, const void* from, size_t bytes,
                                          size_t offset, int) {
  return with_copy_of(variable, offset, bytes, from, true, [&](const CUDA_MEMCPY3D& copy) {
    return cuGraphAddMemcpyNode(node, graph, dependencies, count, &copy, nullptr);
  });
}
CUDART_API cudaGraphAddMemcpyNodeFromSymbol(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies,
                                            size_t count, void* to, const void* variable, size_t bytes,
                                            size_t offset, int) {
  return with_copy_of(variable, offset, bytes, to, false, [&](const CUDA_MEMCPY3D& copy) {
    return cuGraphAddMemcpyNode(node, graph, dependencies, count, &copy, nullptr);
  });
}
CUDART_API cudaGraphAddEventRecordNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies,
                                       size_t count, CUevent event) {
  return call([&] { return cuGraphAddEventRecordNode(node, graph, dependencies, count, event); });
}
CUDART_API cudaGraphAddEventWaitNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies,
                                     size_t count, CUevent event) {
  return call([&] { return cuGraphAddEventWaitNode(node, graph, dependencies, count, event); });
}
CUDART_API cudaGraphAddMemAllocNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies,
                                    size_t count, CUDA_MEM_ALLOC_NODE_PARAMS* parameters) {
  return call([&] { return cuGraphAddMemAllocNode(node, graph, dependencies, count, parameters); });
}
CUDART_API cudaGraphAddMemFreeNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies,
                                   size_t count, void* address) {
  return call([&] { return cuGraphAddMemFreeNode(node, graph, dependencies, count, address_of(address)); });
}

#if IMBREX_CUDART_MAJOR >= 13
CUDART_API cudaGraphAddNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies,
                            const void* edges, size_t count, cudaGraphNodeParams* wanted) {
#else
CUDART_API cudaGraphAddNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies, size_t count,
                            cudaGraphNodeParams* wanted) {
  const void* const edges = nullptr;
#endif
  enum { kKernel, kCopy, kFill };
  return call([&] {
    CUgraphNodeParams p{};
    // But for these three, what the driver is given is what the runtime is given.
    static_assert(sizeof p == sizeof *wanted);
    std::memcpy(&p, wanted, sizeof p);
    if (wanted->type == kKernel)
      if (const CUresult error = kernel_node(wanted->kernel, &p.kernel); error != CUDA_SUCCESS) return error;
    if (wanted->type == kCopy) p.memcpy = {0, 0, nullptr, slices(wanted->memcpy.copy)};
    if (wanted->type == kFill) p.memset = fill(wanted->memset);
    const CUresult error = cuGraphAddNode_v2(node, graph, dependencies, edges, count, &p);
    std::memcpy(wanted->words, p.words, wanted->type > kFill ? sizeof p.words : 0);  // an address, for one
    return error;
  });
}

// Kernels.
CUDART_API cudaGraphKernelNodeGetParams(CUgraphNode node, cudaKernelNodeParams* parameters) {
  return call([&] {
    CUDA_KERNEL_NODE_PARAMS p;
    if (const CUresult error = cuGraphKernelNodeGetParams_v2(node, &p); error != CUDA_SUCCESS) return error;
    *parameters = {host_address(p.function),
                   {p.grid_x, p.grid_y, p.grid_z},
                   {p.block_x, p.block_y, p.block_z},
                   p.shared_bytes,
                   p.parameters,
                   p.extra};
    return CUDA_SUCCESS;
  });
}
CUDART_API cudaGraphKernelNodeSetParams(CUgraphNode node, const cudaKernelNodeParams* wanted) {
  return call([&] {
    CUDA_KERNEL_NODE_PARAMS parameters;
    const CUresult error = kernel_node(*wanted, &parameters);
    return error == CUDA_SUCCESS ? cuGraphKernelNodeSetParams_v2(node, &parameters) : error;
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
CUDART_API cudaGraphKernelNodeSetAttribute(CUgraphNode node, int attribute, const void* value) {
  return call([&] { return cuGraphKernelNodeSetAttribute(node, attribute, value); });
}
CUDART_API cudaGraphKernelNodeCopyAttributes(CUgraphNode from, CUgraphNode to) {
  return call([&] { return cuGraphKernelNodeCopyAttributes(to, from); });
}

// Copies.
CUDART_API cudaGraphMemcpyNodeSetParams(CUgraphNode node, const cudaMemcpy3DParms* wanted) {
  const CUDA_MEMCPY3D copy = slices(*wanted);
  return call([&] { return cuGraphMemcpyNodeSetParams(node, &copy); });
}
CUDART_API cudaGraphMemcpyNodeSetParams1D(CUgraphNode node, void* to, const void* from, size_t bytes, int) {
  const CUDA_MEMCPY3D copy = line(to, from, bytes);
  return call([&] { return cuGraphMemcpyNodeSetParams(node, &copy); });
}
CUDART_API cudaGraphMemcpyNodeSetParamsToSymbol(CUgraphNode node, const void* variable, const void* from,
                                                size_t bytes, size_t offset, int) {
  return with_copy_of(variable, offset, bytes, from, true,
                      [&](const CUDA_MEMCPY3D& copy) { return cuGraphMemcpyNodeSetParams(node, &copy); });
}
CUDART_API cudaGraphMemcpyNodeSetParamsFromSymbol(CUgraphNode node, void* to, const void* variable,
                                                  size_t bytes, size_t offset, int) {
  return with_copy_of(variable, offset, bytes, to, false,
                      [&](const CUDA_MEMCPY3D& copy) { return cuGraphMemcpyNodeSetParams(node, &copy); });
}
CUDART_API cudaGraphExecMemcpyNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                            const cudaMemcpy3DParms* wanted) {
  const CUDA_MEMCPY3D copy = slices(*wanted);
  return call([&] { return cuGraphExecMemcpyNodeSetParams(exec, node, &copy, nullptr); });
}
CUDART_API cudaGraphExecMemcpyNodeSetParams1D(CUgraphExec exec, CUgraphNode node, void* to, const void* from,
                                              size_t bytes, int) {
  const CUDA_MEMCPY3D copy = line(to, from, bytes);
  return call([&] { return cuGraphExecMemcpyNodeSetParams(exec, node, &copy, nullptr); });
}
CUDART_API cudaGraphExecMemcpyNodeSetParamsToSymbol(CUgraphExec exec, CUgraphNode node, const void* variable,
                                                    const void* from, size_t bytes, size_t offset, int) {
  return with_copy_of(variable, offset, bytes, from, true, [&](const CUDA_MEMCPY3D& copy) {
    return cuGraphExecMemcpyNodeSetParams(exec, node, &copy, nullptr);
  });
}
CUDART_API cudaGraphExecMemcpyNodeSetParamsFromSymbol(CUgraphExec exec, CUgraphNode node, void* to,
                                                      const void* variable, size_t bytes, size_t offset,
                                                      int) {
  return with_copy_of(variable, offset, bytes, to, false, [&](const CUDA_MEMCPY3D& copy) {
    return cuGraphExecMemcpyNodeSetParams(exec, node, &copy, nullptr);
  });
}

// Fills, host functions, graphs in graphs.
CUDART_API cudaGraphMemsetNodeGetParams(CUgraphNode node, cudaMemsetParams* parameters) {
  return call([&] {
    CUDA_MEMSET_NODE_PARAMS p;
    if (const CUresult error = cuGraphMemsetNodeGetParams(node, &p); error != CUDA_SUCCESS) return error;
    *parameters = {reinterpret_cast<void*>(p.to), p.pitch, p.value, p.element_bytes, p.width, p.height};
    return CUDA_SUCCESS;
  });
}
CUDART_API cudaGraphMemsetNodeSetParams(CUgraphNode node, const cudaMemsetParams* wanted) {
  const CUDA_MEMSET_NODE_PARAMS parameters = fill(*wanted);
  return call([&] { return cuGraphMemsetNodeSetParams(node, &parameters); });
}
CUDART_API cudaGraphExecMemsetNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                            const cudaMemsetParams* wanted) {
  const CUDA_MEMSET_NODE_PARAMS parameters = fill(*wanted);
  return call([&] { return cuGraphExecMemsetNodeSetParams(exec, node, &parameters, nullptr); });
}
CUDART_API cudaGraphHostNodeGetParams(CUgraphNode node, CUDA_HOST_NODE_PARAMS* parameters) {
  return call([&] { return cuGraphHostNodeGetParams(node, parameters); });
}
CUDART_API cudaGraphHostNodeSetParams(CUgraphNode node, const CUDA_HOST_NODE_PARAMS* parameters) {
  return call([&] { return cuGraphHostNodeSetParams(node, parameters); });
}
CUDART_API cudaGraphExecHostNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                          const CUDA_HOST_NODE_PARAMS* parameters) {
  return call([&] { return cuGraphExecHostNodeSetParams(exec, node, parameters); });
}
CUDART_API cudaGraphChildGraphNodeGetGraph(CUgraphNode node, CUgraph* graph) {
  return call([&] { return cuGraphChildGraphNodeGetGraph(node, graph); });
}
CUDART_API cudaGraphExecChildGraphNodeSetParams(CUgraphExec exec, CUgraphNode node, CUgraph child) {
  return call([&] { return cuGraphExecChildGraphNodeSetParams(exec, node, child); });
}

// Any node.
CUDART_API cudaGraphNodeSetEnabled(CUgraphExec exec, CUgraphNode node, unsigned is_enabled) {
  return call([&] { return cuGraphNodeSetEnabled(exec, node, is_enabled); });
}
CUDART_API cudaGraphNodeGetEnabled(CUgraphExec exec, CUgraphNode node, unsigned* is_enabled) {
  return call([&] { return cuGraphNodeGetEnabled(exec, node, is_enabled); });
}
