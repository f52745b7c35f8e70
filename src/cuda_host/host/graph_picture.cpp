// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <map>

#include "cuda_host/host/graph.h"
#include "cuda_host/host/host.h"

namespace imbrex::cuda {
namespace {

/// 'H', 'D' or 'U': of the host, the device, or managed.
char side(uint64_t address) {
  if (!DeviceMemory::is_of_device(address)) return 'H';
  const Block* block = Host::get().memory.find(address);
  if (block == nullptr || block->kind == MemoryKind::kDevice) return 'D';
  return block->kind == MemoryKind::kManaged ? 'U' : 'H';
}

/// What stands in a node, below its number, and its shape.
struct Label {
  unsigned flags;
  std::string shape = "rectangle";

  std::string operator()(const EmptyWork&) const { return "EMPTY"; }
  std::string operator()(const LaunchWork& work) {
    shape = "octagon";
    const std::string& name = work.function->function.name();
    if ((flags & (kDotVerbose | kDotKernels)) == 0) return name;
    const auto extent = [](const vgpu::Dim3& d) {
      return d.y * d.z == 1 ? fmt::format("{}", d.x) : fmt::format("({},{},{})", d.x, d.y, d.z);
    };
    return fmt::format("{}\n\\<\\<\\<{},{},{}\\>\\>\\>", name, extent(work.grid), extent(work.block),
                       work.dynamic_shared_bytes);
  }
  std::string operator()(const CopyWork& work) {
    shape = "trapezium";
    return fmt::format("MEMCPY\n({}to{},{})", side(work.from.address), side(work.to.address),
                       work.width * work.height * work.depth);
  }
  std::string operator()(const FillWork& work) {
    shape = "invtrapezium";
    return fmt::format("MEMSET\n({},{})", work.value, work.width * work.height * work.element_bytes);
  }
  std::string operator()(const HostWork&) const { return "HOST"; }
  std::string operator()(const AllocateWork& work) const {
    return fmt::format("MEM_ALLOC\n({})", work.bytes);
  }
  std::string operator()(const FreeWork&) const { return "MEM_FREE"; }
  std::string operator()(const RecordWork&) const { return "EVENT_RECORD"; }
  std::string operator()(const WaitWork&) const { return "EVENT_WAIT"; }
  std::string operator()(const ChildWork&) const { return "GRAPH"; }
};

class Picture {
 public:
  explicit Picture(unsigned flags) : flags_(flags) {}

  void add(const Graph& graph) {
    const int number = ++graphs_;
    text_ += fmt::format("subgraph cluster_{0} {{\nlabel=\"graph_{0}\" graph[style=\"dashed\"];\n", number);
    std::map<const GraphNode*, std::string> names;
    for (const auto& node : graph.nodes) {
      const size_t index = names.size();
      Label label{flags_};
      const std::string words = std::visit(label, node->work);
      names[node.get()] = fmt::format("graph_{}_node_{}", number, index);
      text_ += fmt::format("\"{}\"[style=\"solid\" shape=\"{}\" label=\"{}\n{}\n\"];\n\n", names[node.get()],
                           label.shape, index, words);
      if (const auto* child = std::get_if<ChildWork>(&node->work); child != nullptr) add(*child->graph);
    }
    for (const auto& node : graph.nodes)
      for (const GraphNode* dependency : node->dependencies)
        text_ += fmt::format("\"{}\" -> \"{}\";\n", names[dependency], names[node.get()]);
    text_ += "}\n";
  }
  std::string text() const { return "digraph dot {\n" + text_ + "}\n"; }

 private:
  unsigned flags_;
  int graphs_ = 0;
  std::string text_;
};

}  // namespace

std::string dot_of(const Graph& graph, unsigned flags) {
  Picture picture(flags);
  picture.add(graph);
  return picture.text();
}

}  // namespace imbrex::cuda
