// SPDX-License-Identifier: Apache-2.0
#include "cuda_host/host/graph.h"

#include <fmt/format.h>

#include <algorithm>

#include "cuda_host/host/host.h"

namespace imbrex::cuda {

int type_of(const Work& work) {
  constexpr int kTypes[] = {kNodeEmpty,    kNodeKernel,  kNodeMemcpy,      kNodeMemset,    kNodeHost,
                            kNodeMemAlloc, kNodeMemFree, kNodeEventRecord, kNodeWaitEvent, kNodeGraph};
  static_assert(std::size(kTypes) == std::variant_size_v<Work>);
  return kTypes[work.index()];
}

Graph::~Graph() {
  DeviceMemory& memory_of_host = Host::get().memory;
  for (const uint64_t address : memory)
    if (memory_of_host.find(address) != nullptr) memory_of_host.free(address, MemoryKind::kDevice);
}

GraphNode& Graph::add(Work work, std::vector<GraphNode*> dependencies) {
  for (const GraphNode* dependency : dependencies)
    if (dependency->graph != this)
      refuse(CUDA_ERROR_INVALID_VALUE, "a node depends on a node of another graph");
  nodes.push_back(
      std::make_unique<GraphNode>(GraphNode{std::move(work), std::move(dependencies), this, true}));
  return *nodes.back();
}

GraphNode& Graph::node(CUgraphNode handle) const {
  for (const auto& one : nodes)
    if (one.get() == reinterpret_cast<GraphNode*>(handle)) return *one;
  refuse(CUDA_ERROR_INVALID_HANDLE, "the node is none of this graph");
}

std::vector<GraphNode*> Graph::in_order() const {
  std::vector<GraphNode*> order, waiting;
  for (const auto& node : nodes) waiting.push_back(node.get());
  // Of what may come next the oldest: captured graphs then run as they were captured.
  while (!waiting.empty()) {
    const auto ready = std::ranges::find_if(waiting, [&](const GraphNode* node) {
      return std::ranges::none_of(node->dependencies, [&](const GraphNode* dependency) {
        return std::ranges::find(waiting, dependency) != waiting.end();
      });
    });
    if (ready == waiting.end())
      refuse(CUDA_ERROR_INVALID_VALUE, "the graph's nodes depend on each other in a circle");
    order.push_back(*ready);
    waiting.erase(ready);
  }
  return order;
}

std::unique_ptr<Graph> Graph::clone(std::vector<std::pair<const GraphNode*, GraphNode*>>* pairs) const {
  auto copy = std::make_unique<Graph>();
  std::map<const GraphNode*, GraphNode*> twins;
  for (const auto& node : nodes) {
    Work work = node->work;
    if (auto* child = std::get_if<ChildWork>(&work); child != nullptr) {
      copy->children.push_back(child->graph->clone(pairs));
      child->graph = copy->children.back().get();
    }
    GraphNode& twin = copy->add(std::move(work), {});
    twin.is_enabled = node->is_enabled;
    twins[node.get()] = &twin;
    if (pairs != nullptr) pairs->emplace_back(node.get(), &twin);
  }
  for (const auto& node : nodes)
    for (const GraphNode* dependency : node->dependencies)
      twins[node.get()]->dependencies.push_back(twins[dependency]);
  return copy;
}

GraphExec::GraphExec(const Graph& original) {
  original.in_order();  // refuses circles
  graph = original.clone(&nodes);
}

GraphNode& GraphExec::node(CUgraphNode of_original) const {
  for (const auto& [original, own] : nodes)
    if (original == reinterpret_cast<const GraphNode*>(of_original)) return *own;
  refuse(CUDA_ERROR_INVALID_VALUE, "the node is none of the graph that this was instantiated from");
}

void GraphExec::launch(Stream& stream) const {
  for (const GraphNode* node : graph->in_order())
    if (node->is_enabled) perform(node->work, stream);
}

}  // namespace imbrex::cuda
