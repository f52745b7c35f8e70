// SPDX-License-Identifier: Apache-2.0
#include "cuda_host/host/graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "cuda_host/host/host.h"

namespace imbrex::cuda {

int type_of(const Work& work) {
  constexpr int kTypes[] = {kNodeEmpty,    kNodeKernel,  kNodeMemcpy,      kNodeMemset,    kNodeHost,
                            kNodeMemAlloc, kNodeMemFree, kNodeEventRecord, kNodeWaitEvent, kNodeGraph};
  static_assert(std::size(kTypes) == std::variant_size_v<Work>);
  return kTypes[work.index()];
}

void release(UserObject& object, unsigned count) {
  object.references -= std::min(object.references, count);
  if (object.references > 0) return;
  if (object.destroy != nullptr) object.destroy(object.data);
  Host::get().user_objects.destroy(&object);
}

Graph::~Graph() {
  for (const auto& [object, references] : objects)
    if (references > 0) release(*object, references);
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
  for (const auto& [object, references] : objects) {
    if (references == 0) continue;
    copy->objects.emplace_back(object, 1);
    ++object->references;
  }
  return copy;
}

GraphExec::GraphExec(const Graph& original) : launched_(Host::get().gpu.order().create_event()) {
  original.in_order();  // refuses circles
  graph = original.clone(&nodes);
}

GraphExec::~GraphExec() {
  vgpu::StreamOrder& order = Host::get().gpu.order();
  order.destroy_event(launched_);
  for (const vgpu::StreamOrder::Stream branch : branches_) order.destroy_stream(branch);
}

GraphNode& GraphExec::node(CUgraphNode of_original) const {
  host_waits_for_backlog();
  for (const auto& [original, own] : nodes)
    if (original == reinterpret_cast<const GraphNode*>(of_original)) return *own;
  refuse(CUDA_ERROR_INVALID_VALUE, "the node is none of the graph that this was instantiated from");
}

void GraphExec::launch(Stream& stream) {
  vgpu::StreamOrder& order = Host::get().gpu.order();
  carry_out(stream, [&order, on = stream.order, after = launched_] { order.wait(on, after); });
  const std::vector<GraphNode*> all = graph->in_order();
  bool is_chain = true;
  for (size_t i = 1; i < all.size(); ++i)
    is_chain = is_chain && std::ranges::find(all[i]->dependencies, all[i - 1]) != all[i]->dependencies.end();
  if (is_chain) {
    for (const GraphNode* node : all)
      if (node->is_enabled) submit(stream, node->work);
  } else {
    launch_branches(all, stream);
  }
  carry_out(stream, [&order, on = stream.order, launched = launched_] { order.record(launched, on); });
}

/// Every node goes behind one that it depends on, where that is the last of its branch, else to a branch of its own.
void GraphExec::launch_branches(const std::vector<GraphNode*>& all, Stream& stream) {
  vgpu::StreamOrder& order = Host::get().gpu.order();
  const vgpu::StreamOrder::Event begun = order.create_event();
  carry_out(stream, [&order, begun, on = stream.order] { order.record(begun, on); });
  std::vector<const GraphNode*> last;  // by branch
  std::map<const GraphNode*, vgpu::StreamOrder::Event> done;
  for (const GraphNode* node : all) {
    const auto& before = node->dependencies;
    size_t branch = 0;
    while (branch < last.size() && std::ranges::find(before, last[branch]) == before.end()) ++branch;
    if (branch == last.size()) {
      last.push_back(nullptr);
      if (branches_.size() < last.size())
        branches_.push_back(order.create_stream(fmt::format("branch {} of a graph", last.size())));
      carry_out(stream, [&order, begun, on = branches_[branch]] { order.wait(on, begun); });
    }
    const auto on = std::make_shared<Stream>(stream.context, kStreamNonBlocking);
    on->order = branches_[branch];
    const vgpu::StreamOrder::Event end = done[node] = order.create_event();
    std::vector<vgpu::StreamOrder::Event> waits;
    for (const GraphNode* dependency : before) waits.push_back(done.at(dependency));
    const auto run = [&order, on, end, waits, node] {
      for (const vgpu::StreamOrder::Event event : waits) order.wait(on->order, event);
      if (node->is_enabled) perform(node->work, *on);
      order.record(end, on->order);
    };
    if (node->is_enabled && runs_host_function(node->work))
      leave(stream, run);
    else
      carry_out(stream, run);
    last[branch] = node;
  }
  carry_out(stream, [&order, done, begun, on = stream.order] {
    for (const auto& [node, event] : done) {
      order.wait(on, event);
      order.destroy_event(event);
    }
    order.destroy_event(begun);
  });
}

}  // namespace imbrex::cuda
