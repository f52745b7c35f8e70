// SPDX-License-Identifier: Apache-2.0
// Graphs as wholes: made, cloned, walked, instantiated, launched. Their nodes: graph_nodes.cpp.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "cuda_host/driver/answer.h"

using namespace imbrex::cuda;

namespace {

CUgraphNode handle(const GraphNode* node) {
  return reinterpret_cast<CUgraphNode>(const_cast<GraphNode*>(node));
}
GraphNode& any_node(CUgraphNode node) {
  for (const auto& [address, graph] : Host::get().graphs.all())
    for (const auto& one : graph->nodes)
      if (handle(one.get()) == node) return *one;
  refuse(CUDA_ERROR_INVALID_HANDLE, "the node is none, or its graph was destroyed");
}

/// Lists as CUDA gives them: without room the number, with room as many as there are, the rest null.
void give(const std::vector<const GraphNode*>& nodes, CUgraphNode* out, size_t* count) {
  size_t& n = not_null(count, "the number of nodes");
  if (out != nullptr)
    for (size_t i = 0; i < n; ++i) out[i] = i < nodes.size() ? handle(nodes[i]) : nullptr;
  n = out == nullptr ? nodes.size() : std::min(n, nodes.size());
}

void instantiate(CUgraphExec* exec, CUgraph graph, uint64_t flags) {
  Host& host = Host::get();
  GraphExec& made = host.graph_execs.make(host.graphs.get(graph));
  made.flags = flags;
  not_null(exec, "exec") = reinterpret_cast<CUgraphExec>(&made);
}

}  // namespace

CUDA_API cuGraphCreate(CUgraph* graph, unsigned) {
  return answer("cuGraphCreate",
                [&] { not_null(graph, "graph") = reinterpret_cast<CUgraph>(&Host::get().graphs.make()); });
}
CUDA_API cuGraphDestroy(CUgraph graph) {
  return answer("cuGraphDestroy",
                [&] { when_nothing_is_under_way([gone = Host::get().graphs.take(graph)] {}); });
}
CUDA_API cuGraphGetNodes(CUgraph graph, CUgraphNode* nodes, size_t* count) {
  return answer("cuGraphGetNodes", [&] {
    std::vector<const GraphNode*> all;
    for (const auto& node : Host::get().graphs.get(graph).nodes) all.push_back(node.get());
    give(all, nodes, count);
  });
}
CUDA_API cuGraphGetRootNodes(CUgraph graph, CUgraphNode* nodes, size_t* count) {
  return answer("cuGraphGetRootNodes", [&] {
    std::vector<const GraphNode*> roots;
    for (const auto& node : Host::get().graphs.get(graph).nodes)
      if (node->dependencies.empty()) roots.push_back(node.get());
    give(roots, nodes, count);
  });
}
CUDA_API cuGraphGetEdges(CUgraph graph, CUgraphNode* from, CUgraphNode* to, size_t* count) {
  return answer("cuGraphGetEdges", [&] {
    std::vector<const GraphNode*> begins, ends;
    for (const auto& node : Host::get().graphs.get(graph).nodes)
      for (const GraphNode* dependency : node->dependencies) {
        begins.push_back(dependency);
        ends.push_back(node.get());
      }
    size_t room = not_null(count, "the number of edges");
    give(begins, from, count);
    give(ends, to, &room);
  });
}
CUDA_API cuGraphGetEdges_v2(CUgraph graph, CUgraphNode* from, CUgraphNode* to, void*, size_t* count) {
  return cuGraphGetEdges(graph, from, to, count);
}
CUDA_API cuGraphNodeGetDependencies(CUgraphNode node, CUgraphNode* dependencies, size_t* count) {
  return answer("cuGraphNodeGetDependencies", [&] {
    const GraphNode& of = any_node(node);
    give({of.dependencies.begin(), of.dependencies.end()}, dependencies, count);
  });
}
CUDA_API cuGraphNodeGetDependencies_v2(CUgraphNode node, CUgraphNode* dependencies, void*, size_t* count) {
  return cuGraphNodeGetDependencies(node, dependencies, count);
}
CUDA_API cuGraphNodeGetDependentNodes(CUgraphNode node, CUgraphNode* dependents, size_t* count) {
  return answer("cuGraphNodeGetDependentNodes", [&] {
    const GraphNode& of = any_node(node);
    std::vector<const GraphNode*> found;
    for (const auto& other : of.graph->nodes)
      if (std::ranges::find(other->dependencies, &of) != other->dependencies.end())
        found.push_back(other.get());
    give(found, dependents, count);
  });
}
CUDA_API cuGraphNodeGetDependentNodes_v2(CUgraphNode node, CUgraphNode* dependents, void*, size_t* count) {
  return cuGraphNodeGetDependentNodes(node, dependents, count);
}
CUDA_API cuGraphAddDependencies(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to, size_t count) {
  return answer("cuGraphAddDependencies", [&] {
    const Graph& of = Host::get().graphs.get(graph);
    for (size_t i = 0; i < count; ++i) of.node(to[i]).dependencies.push_back(&of.node(from[i]));
  });
}
CUDA_API cuGraphAddDependencies_v2(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to, const void*,
                                   size_t count) {
  return cuGraphAddDependencies(graph, from, to, count);
}
CUDA_API cuGraphRemoveDependencies(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to,
                                   size_t count) {
  return answer("cuGraphRemoveDependencies", [&] {
    const Graph& of = Host::get().graphs.get(graph);
    for (size_t i = 0; i < count; ++i) std::erase(of.node(to[i]).dependencies, &of.node(from[i]));
  });
}
CUDA_API cuGraphRemoveDependencies_v2(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to,
                                      const void*, size_t count) {
  return cuGraphRemoveDependencies(graph, from, to, count);
}
CUDA_API cuGraphNodeGetType(CUgraphNode node, int* type) {
  return answer("cuGraphNodeGetType", [&] { not_null(type, "type") = type_of(any_node(node).work); });
}
CUDA_API cuGraphDestroyNode(CUgraphNode node) {
  return answer("cuGraphDestroyNode", [&] {
    GraphNode& gone = any_node(node);
    Graph& graph = *gone.graph;
    for (const auto& other : graph.nodes) std::erase(other->dependencies, &gone);
    std::erase_if(graph.nodes, [&](const auto& one) { return one.get() == &gone; });
  });
}
CUDA_API cuGraphClone(CUgraph* clone, CUgraph original) {
  return answer("cuGraphClone", [&] {
    Host& host = Host::get();
    const std::unique_ptr<Graph> copy = host.graphs.get(original).clone();
    Graph& made = host.graphs.make();
    made.children = std::move(copy->children);
    made.nodes = std::move(copy->nodes);
    made.objects = std::move(copy->objects);
    copy->objects.clear();
    for (const auto& node : made.nodes) node->graph = &made;
    not_null(clone, "clone") = reinterpret_cast<CUgraph>(&made);
  });
}
CUDA_API cuGraphChildGraphNodeGetGraph(CUgraphNode node, CUgraph* graph) {
  return answer("cuGraphChildGraphNodeGetGraph", [&] {
    const auto* child = std::get_if<ChildWork>(&any_node(node).work);
    if (child == nullptr) refuse(CUDA_ERROR_INVALID_VALUE, "the node is no child graph");
    not_null(graph, "graph") = reinterpret_cast<CUgraph>(child->graph);
  });
}

CUDA_API cuGraphInstantiateWithFlags(CUgraphExec* exec, CUgraph graph, unsigned long long flags) {
  return answer("cuGraphInstantiate", [&] { instantiate(exec, graph, flags); });
}
CUDA_API cuGraphInstantiate(CUgraphExec* exec, CUgraph graph, CUgraphNode*, char*, size_t) {
  return answer("cuGraphInstantiate", [&] { instantiate(exec, graph, 0); });
}
CUDA_API cuGraphInstantiate_v2(CUgraphExec* exec, CUgraph graph, CUgraphNode*, char*, size_t) {
  return answer("cuGraphInstantiate", [&] { instantiate(exec, graph, 0); });
}
CUDA_API cuGraphInstantiateWithParams(CUgraphExec* exec, CUgraph graph,
                                      CUDA_GRAPH_INSTANTIATE_PARAMS* parameters) {
  return answer("cuGraphInstantiate", [&] {
    instantiate(exec, graph, not_null(parameters, "parameters").flags);
    parameters->error_node = nullptr;
    parameters->result = 0;
  });
}
CUDA_API cuGraphExecGetFlags(CUgraphExec exec, unsigned long long* flags) {
  return answer("cuGraphExecGetFlags",
                [&] { not_null(flags, "flags") = Host::get().graph_execs.get(exec).flags; });
}
CUDA_API cuGraphExecDestroy(CUgraphExec exec) {
  return answer("cuGraphExecDestroy",
                [&] { when_nothing_is_under_way([gone = Host::get().graph_execs.take(exec)] {}); });
}
CUDA_API cuGraphUpload(CUgraphExec exec, CUstream stream) {
  return answer("cuGraphUpload", [&] {
    expect_not_captured(Host::get().stream(stream));
    Host::get().graph_execs.get(exec);
  });
}
CUDA_API cuGraphLaunch(CUgraphExec exec, CUstream stream) {
  return answer("cuGraphLaunch", [&] {
    Host& host = Host::get();
    Stream& on = host.stream(stream);
    GraphExec& graph = host.graph_execs.get(exec);
    expect_not_captured(on);
    graph.launch(on);
  });
}
// A graph's memory goes with it; nothing of it is held in reserve.
CUDA_API cuDeviceGraphMemTrim(CUdevice device) {
  return answer("cuDeviceGraphMemTrim", [&] { Host::get().device(device); });
}
CUDA_API cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo* info) {
  return answer("cuGraphExecUpdate", [&] {
    Host& host = Host::get();
    GraphExec& old = host.graph_execs.get(exec);
    host_waits_for_backlog();
    const Graph& wanted = host.graphs.get(graph);
    constexpr int kSuccess = 0, kTopologyChanged = 2;
    const bool is_alike =
        old.graph->nodes.size() == wanted.nodes.size() &&
        std::ranges::equal(old.graph->nodes, wanted.nodes,
                           [](const auto& a, const auto& b) { return a->work.index() == b->work.index(); });
    not_null(info, "info") = {is_alike ? kSuccess : kTopologyChanged, nullptr, nullptr};
    if (!is_alike) refuse(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);  // programs then instantiate anew
    old.nodes.clear();
    old.graph = wanted.clone(&old.nodes);
  });
}
CUDA_API cuGraphDebugDotPrint(CUgraph graph, const char* path, unsigned flags) {
  return answer("cuGraphDebugDotPrint", [&] {
    const std::string picture = dot_of(Host::get().graphs.get(graph), flags);
    FILE* out = std::fopen(&not_null(path, "path"), "w");
    if (out == nullptr) refuse(CUDA_ERROR_OPERATING_SYSTEM, fmt::format("'{}' cannot be written", path));
    fmt::print(out, "{}", picture);
    std::fclose(out);
  });
}

CUDA_API cuUserObjectCreate(CUuserObject* object, void* data, CUhostFn destroy, unsigned references,
                            unsigned) {
  return answer("cuUserObjectCreate", [&] {
    UserObject& made = Host::get().user_objects.make();
    made = {data, destroy, references};
    not_null(object, "object") = reinterpret_cast<CUuserObject>(&made);
  });
}
CUDA_API cuUserObjectRetain(CUuserObject object, unsigned count) {
  return answer("cuUserObjectRetain", [&] { Host::get().user_objects.get(object).references += count; });
}
CUDA_API cuUserObjectRelease(CUuserObject object, unsigned count) {
  return answer("cuUserObjectRelease", [&] { release(Host::get().user_objects.get(object), count); });
}
CUDA_API cuGraphRetainUserObject(CUgraph graph, CUuserObject object, unsigned count, unsigned flags) {
  return answer("cuGraphRetainUserObject", [&] {
    constexpr unsigned kMove = 1;  // the program's references, which are the graph's from now on
    UserObject& of = Host::get().user_objects.get(object);
    Host::get().graphs.get(graph).objects.emplace_back(&of, count);
    if ((flags & kMove) == 0) of.references += count;
  });
}
CUDA_API cuGraphReleaseUserObject(CUgraph graph, CUuserObject object, unsigned count) {
  return answer("cuGraphReleaseUserObject", [&] {
    UserObject* const of = &Host::get().user_objects.get(object);
    for (auto& [held, references] : Host::get().graphs.get(graph).objects) {
      if (held != of) continue;
      const unsigned given_back = std::min(references, count);
      references -= given_back, count -= given_back;
      if (given_back > 0) release(*of, given_back);
      if (count == 0) return;
    }
    if (count > 0) refuse(CUDA_ERROR_INVALID_VALUE, "the graph has fewer references to the object");
  });
}
