// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cuda_host/host/work.h"

namespace imbrex::cuda {

/// An object of the program that graphs keep alive.
struct UserObject {
  void* data = nullptr;
  CUhostFn destroy = nullptr;
  unsigned references = 0;
};
/// Without its last reference it is destroyed.
void release(UserObject& object, unsigned count);

struct GraphNode {
  Work work;
  std::vector<GraphNode*> dependencies;
  Graph* graph = nullptr;
  bool is_enabled = true;
};

struct Graph {
  std::vector<std::unique_ptr<GraphNode>> nodes;
  std::vector<uint64_t> memory;                           // of its allocation nodes
  std::vector<std::unique_ptr<Graph>> children;           // copies, of its child graph nodes
  std::vector<std::pair<UserObject*, unsigned>> objects;  // and references to them

  Graph() = default;
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  GraphNode& add(Work work, std::vector<GraphNode*> dependencies);
  /// A node that is alive; CUDA_ERROR_INVALID_HANDLE.
  GraphNode& node(CUgraphNode handle) const;
  /// All nodes, each behind what it depends on; CUDA_ERROR_INVALID_VALUE where they depend in a circle.
  std::vector<GraphNode*> in_order() const;
  std::unique_ptr<Graph> clone(std::vector<std::pair<const GraphNode*, GraphNode*>>* pairs = nullptr) const;
};

/// A graph as it was when instantiated; its nodes can be changed by those of the original.
struct GraphExec {
  explicit GraphExec(const Graph& original);
  ~GraphExec();
  GraphExec(const GraphExec&) = delete;
  GraphExec& operator=(const GraphExec&) = delete;
  std::unique_ptr<Graph> graph;
  std::vector<std::pair<const GraphNode*, GraphNode*>> nodes;  // of the original, of this one
  uint64_t flags = 0;
  /// To be changed: launches that are under way are waited for.
  GraphNode& node(CUgraphNode of_original) const;
  /// Behind the launches before. Of its nodes only what depends on another comes after it: branches are as unordered as
  /// streams are.
  void launch(Stream& stream);

 private:
  void launch_branches(const std::vector<GraphNode*>& in_order, Stream& stream);
  std::vector<vgpu::StreamOrder::Stream> branches_;
  vgpu::StreamOrder::Event launched_;
};

int type_of(const Work& work);
/// The graph in the language of Graphviz, laid out as CUDA's drivers do it: nodes by number, kernels by name, and with kDotVerbose or
/// kDotKernels with their grid, block and dynamic shared memory.
std::string dot_of(const Graph& graph, unsigned flags);
inline constexpr unsigned kDotVerbose = 1, kDotKernels = 4;

}  // namespace imbrex::cuda
