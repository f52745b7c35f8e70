// SPDX-License-Identifier: Apache-2.0
// The nodes of graphs: kernels, copies, fills, host functions, memory, children; added, read, changed.
#include <fmt/format.h>

#include <algorithm>

#include "cuda_host/driver/answer.h"
#include "cuda_host/host/copies.h"

using namespace imbrex::cuda;

namespace {

GraphNode& node_of(CUgraphNode handle) {
  for (const auto& [address, graph] : Host::get().graphs.all())
    for (const auto& node : graph->nodes)
      if (node.get() == reinterpret_cast<GraphNode*>(handle)) return *node;
  refuse(CUDA_ERROR_INVALID_HANDLE, "the node is none, or its graph was destroyed");
}

CUresult add(const char* function, CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies,
             size_t count, auto&& make_work) {
  return answer(function, [&] {
    Graph& to = Host::get().graphs.get(graph);
    std::vector<GraphNode*> after;
    for (size_t i = 0; i < count; ++i) after.push_back(&to.node(dependencies[i]));
    not_null(node, "node") = reinterpret_cast<CUgraphNode>(&to.add(make_work(to), std::move(after)));
  });
}

LaunchWork work_of(const CUDA_KERNEL_NODE_PARAMS* parameters, bool is_first_version) {
  const CUDA_KERNEL_NODE_PARAMS& p = not_null(parameters, "parameters");
  const CUfunction function =
      p.function == nullptr && !is_first_version ? reinterpret_cast<CUfunction>(p.kernel) : p.function;
  const CUlaunchConfig config{p.grid_x,  p.grid_y,       p.grid_z, p.block_x, p.block_y,
                              p.block_z, p.shared_bytes, nullptr,  nullptr,   0};
  LaunchWork work = launch_work(config, function, p.parameters, p.extra);
  // Runtimes give the kernel beside its function, and want it back.
  if (!is_first_version && p.kernel != nullptr) work.kernel = Host::get().kernels.find(p.kernel);
  return work;
}

FillWork work_of(const CUDA_MEMSET_NODE_PARAMS* parameters) {
  const CUDA_MEMSET_NODE_PARAMS& p = not_null(parameters, "parameters");
  return {p.to,
          static_cast<int64_t>(p.pitch),
          p.value,
          static_cast<int>(p.element_bytes),
          static_cast<int64_t>(p.width),
          static_cast<int64_t>(p.height)};
}

template <class Kind>
Kind& expect(GraphNode& node) {
  Kind* work = std::get_if<Kind>(&node.work);
  if (work == nullptr) refuse(CUDA_ERROR_INVALID_VALUE, "the node is of another type");
  return *work;
}

/// A launch keeps its cluster and cooperation, which are attributes of the node and not among its parameters.
void replace(GraphNode& node, LaunchWork work) {
  const LaunchWork& old = expect<LaunchWork>(node);
  work.cluster = old.cluster;
  work.explicit_cluster = old.explicit_cluster;
  work.cooperative = old.cooperative;
  node.work = std::move(work);
}

void set_attribute(LaunchWork& work, int attribute, const void* value) {
  const auto& v = *static_cast<const decltype(CUlaunchAttribute::value)*>(value);
  if (attribute == kLaunchClusterDimension) {
    work.cluster = {v.cluster.x, v.cluster.y, v.cluster.z};
    work.explicit_cluster = true;
  }
  if (attribute == kLaunchCooperative) work.cooperative = v.cooperative != 0;
}

}  // namespace

CUDA_API cuGraphAddKernelNode_v2(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies,
                                 size_t count, const CUDA_KERNEL_NODE_PARAMS* parameters) {
  return add("cuGraphAddKernelNode", node, graph, dependencies, count,
             [&](Graph&) -> Work { return work_of(parameters, false); });
}
CUDA_API cuGraphAddKernelNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies, size_t count,
                              const CUDA_KERNEL_NODE_PARAMS* parameters) {
  return add("cuGraphAddKernelNode", node, graph, dependencies, count,
             [&](Graph&) -> Work { return work_of(parameters, true); });
}
CUDA_API cuGraphAddMemcpyNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies, size_t count,
                              const CUDA_MEMCPY3D* copy, CUcontext) {
  return add("cuGraphAddMemcpyNode", node, graph, dependencies, count,
             [&](Graph&) -> Work { return copy_work(not_null(copy, "copy")); });
}
CUDA_API cuGraphAddMemsetNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies, size_t count,
                              const CUDA_MEMSET_NODE_PARAMS* parameters, CUcontext) {
  return add("cuGraphAddMemsetNode", node, graph, dependencies, count,
             [&](Graph&) -> Work { return work_of(parameters); });
}
CUDA_API cuGraphAddHostNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies, size_t count,
                            const CUDA_HOST_NODE_PARAMS* parameters) {
  return add("cuGraphAddHostNode", node, graph, dependencies, count, [&](Graph&) -> Work {
    return HostWork{not_null(parameters, "parameters").function, parameters->data};
  });
}
CUDA_API cuGraphAddEmptyNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies,
                             size_t count) {
  return add("cuGraphAddEmptyNode", node, graph, dependencies, count,
             [](Graph&) -> Work { return EmptyWork{}; });
}
CUDA_API cuGraphAddChildGraphNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies,
                                  size_t count, CUgraph child) {
  return add("cuGraphAddChildGraphNode", node, graph, dependencies, count, [&](Graph& to) -> Work {
    to.children.push_back(Host::get().graphs.get(child).clone());
    return ChildWork{to.children.back().get()};
  });
}
CUDA_API cuGraphAddEventRecordNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies,
                                   size_t count, CUevent event) {
  return add("cuGraphAddEventRecordNode", node, graph, dependencies, count,
             [&](Graph&) -> Work { return RecordWork{&Host::get().events.get(event)}; });
}
CUDA_API cuGraphAddEventWaitNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies,
                                 size_t count, CUevent event) {
  return add("cuGraphAddEventWaitNode", node, graph, dependencies, count,
             [&](Graph&) -> Work { return WaitWork{&Host::get().events.get(event)}; });
}
CUDA_API cuGraphAddMemAllocNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies,
                                size_t count, CUDA_MEM_ALLOC_NODE_PARAMS* parameters) {
  return add("cuGraphAddMemAllocNode", node, graph, dependencies, count, [&](Graph& to) -> Work {
    CUDA_MEM_ALLOC_NODE_PARAMS& p = not_null(parameters, "parameters");
    const auto bytes = static_cast<int64_t>(p.bytes);
    p.address = Host::get().memory.allocate(bytes, MemoryKind::kDevice, p.pool.location.id).address;
    to.memory.push_back(p.address);
    return AllocateWork{p.address, bytes};
  });
}
CUDA_API cuGraphAddMemFreeNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies,
                               size_t count, CUdeviceptr address) {
  return add("cuGraphAddMemFreeNode", node, graph, dependencies, count, [&](Graph& to) -> Work {
    if (std::ranges::find(to.memory, address) != to.memory.end())
      return EmptyWork{};  // the graph's, kept for the next launch
    return FreeWork{address};
  });
}

CUDA_API cuGraphKernelNodeGetParams_v2(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS* parameters) {
  return answer("cuGraphKernelNodeGetParams", [&] {
    const LaunchWork& work = expect<LaunchWork>(node_of(node));
    CUDA_KERNEL_NODE_PARAMS& p = not_null(parameters, "parameters");
    p = {};
    p.function = reinterpret_cast<CUfunction>(work.function);
    p.kernel = reinterpret_cast<CUkernel>(work.kernel);
    p.grid_x = static_cast<unsigned>(work.grid.x);
    p.grid_y = static_cast<unsigned>(work.grid.y);
    p.grid_z = static_cast<unsigned>(work.grid.z);
    p.block_x = static_cast<unsigned>(work.block.x);
    p.block_y = static_cast<unsigned>(work.block.y);
    p.block_z = static_cast<unsigned>(work.block.z);
    p.shared_bytes = static_cast<unsigned>(work.dynamic_shared_bytes);
    // The pointers live as long as the node does.
    static auto* pointers = new std::map<const LaunchWork*, std::vector<void*>>;
    std::vector<void*>& list = (*pointers)[&work];
    list.clear();
    for (const auto& parameter : work.function->function.parameters())
      list.push_back(const_cast<std::byte*>(work.parameters.data()) + parameter.offset);
    p.parameters = list.data();
  });
}
CUDA_API cuGraphKernelNodeSetParams_v2(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS* parameters) {
  return answer("cuGraphKernelNodeSetParams", [&] { replace(node_of(node), work_of(parameters, false)); });
}
CUDA_API cuGraphExecKernelNodeSetParams_v2(CUgraphExec exec, CUgraphNode node,
                                           const CUDA_KERNEL_NODE_PARAMS* parameters) {
  return answer("cuGraphExecKernelNodeSetParams",
                [&] { replace(Host::get().graph_execs.get(exec).node(node), work_of(parameters, false)); });
}
CUDA_API cuGraphMemcpyNodeSetParams(CUgraphNode node, const CUDA_MEMCPY3D* copy) {
  return answer("cuGraphMemcpyNodeSetParams",
                [&] { expect<CopyWork>(node_of(node)) = copy_work(not_null(copy, "copy")); });
}
CUDA_API cuGraphExecMemcpyNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_MEMCPY3D* copy,
                                        CUcontext) {
  return answer("cuGraphExecMemcpyNodeSetParams", [&] {
    expect<CopyWork>(Host::get().graph_execs.get(exec).node(node)) = copy_work(not_null(copy, "copy"));
  });
}
CUDA_API cuGraphMemsetNodeGetParams(CUgraphNode node, CUDA_MEMSET_NODE_PARAMS* parameters) {
  return answer("cuGraphMemsetNodeGetParams", [&] {
    const FillWork& work = expect<FillWork>(node_of(node));
    not_null(parameters, "parameters") = {work.to,
                                          static_cast<size_t>(work.pitch),
                                          work.value,
                                          static_cast<unsigned>(work.element_bytes),
                                          static_cast<size_t>(work.width),
                                          static_cast<size_t>(work.height)};
  });
}
CUDA_API cuGraphMemsetNodeSetParams(CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS* parameters) {
  return answer("cuGraphMemsetNodeSetParams", [&] { expect<FillWork>(node_of(node)) = work_of(parameters); });
}
CUDA_API cuGraphExecMemsetNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                        const CUDA_MEMSET_NODE_PARAMS* parameters, CUcontext) {
  return answer("cuGraphExecMemsetNodeSetParams", [&] {
    expect<FillWork>(Host::get().graph_execs.get(exec).node(node)) = work_of(parameters);
  });
}
CUDA_API cuGraphHostNodeGetParams(CUgraphNode node, CUDA_HOST_NODE_PARAMS* parameters) {
  return answer("cuGraphHostNodeGetParams", [&] {
    const HostWork& work = expect<HostWork>(node_of(node));
    not_null(parameters, "parameters") = {work.function, work.data};
  });
}
CUDA_API cuGraphHostNodeSetParams(CUgraphNode node, const CUDA_HOST_NODE_PARAMS* parameters) {
  return answer("cuGraphHostNodeSetParams", [&] {
    expect<HostWork>(node_of(node)) = {not_null(parameters, "parameters").function, parameters->data};
  });
}
CUDA_API cuGraphExecHostNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                      const CUDA_HOST_NODE_PARAMS* parameters) {
  return answer("cuGraphExecHostNodeSetParams", [&] {
    expect<HostWork>(Host::get().graph_execs.get(exec).node(node)) = {
        not_null(parameters, "parameters").function, parameters->data};
  });
}
CUDA_API cuGraphExecChildGraphNodeSetParams(CUgraphExec exec, CUgraphNode node, CUgraph child) {
  return answer("cuGraphExecChildGraphNodeSetParams", [&] {
    GraphNode& of = Host::get().graph_execs.get(exec).node(node);
    of.graph->children.push_back(Host::get().graphs.get(child).clone());
    expect<ChildWork>(of).graph = of.graph->children.back().get();
  });
}
CUDA_API cuGraphKernelNodeSetAttribute(CUgraphNode node, int attribute, const void* value) {
  return answer("cuGraphKernelNodeSetAttribute",
                [&] { set_attribute(expect<LaunchWork>(node_of(node)), attribute, value); });
}
CUDA_API cuGraphKernelNodeCopyAttributes(CUgraphNode to, CUgraphNode from) {
  return answer("cuGraphKernelNodeCopyAttributes", [&] {
    const LaunchWork& source = expect<LaunchWork>(node_of(from));
    LaunchWork& target = expect<LaunchWork>(node_of(to));
    target.cluster = source.cluster;
    target.explicit_cluster = source.explicit_cluster;
    target.cooperative = source.cooperative;
  });
}
CUDA_API cuGraphNodeSetEnabled(CUgraphExec exec, CUgraphNode node, unsigned is_enabled) {
  return answer("cuGraphNodeSetEnabled",
                [&] { Host::get().graph_execs.get(exec).node(node).is_enabled = is_enabled != 0; });
}
CUDA_API cuGraphNodeGetEnabled(CUgraphExec exec, CUgraphNode node, unsigned* is_enabled) {
  return answer("cuGraphNodeGetEnabled", [&] {
    not_null(is_enabled, "is_enabled") = Host::get().graph_execs.get(exec).node(node).is_enabled ? 1 : 0;
  });
}
