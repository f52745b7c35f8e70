// SPDX-License-Identifier: Apache-2.0
// How each moment of a replay came about: a node says until when what took how long, and names the node that it
// followed. Walking back from the last one gives the critical path.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "imbrex/vgpu/timeline.h"

namespace imbrex::vgpu {

/// A moment; 0 is the launch's start.
using PathNode = uint32_t;

class CriticalPath {
 public:
  static constexpr uint32_t kNoInsn = ~0u;

  explicit CriticalPath(bool is_kept) : nodes_(is_kept ? 1 : 0) {}
  bool is_kept() const { return !nodes_.empty(); }

  /// What follows `before` and lasts until `end` because of `resource`; `before` itself when that is no time.
  PathNode then(PathNode before, double end, Resource resource, uint32_t insn = kNoInsn, int warp = -1) {
    if (!is_kept() || end <= nodes_[before].end) return before;
    nodes_.push_back({end, before, insn, static_cast<int16_t>(warp), resource});
    return static_cast<PathNode>(nodes_.size() - 1);
  }
  /// What the clocks from `since` to the node's end went to.
  TimelineExplanation::Shares shares(PathNode node, double since) const;
  /// The path that ends with `last` at clock `end`; `place` turns an instruction into a place of the timeline.
  void explain(PathNode last, double end, const std::function<int32_t(uint32_t)>& place,
               TimelineExplanation& why) const;

 private:
  struct Node {
    double end = 0;
    PathNode before = 0;
    uint32_t insn = kNoInsn;
    int16_t warp = -1;
    Resource resource = Resource::kStart;
  };
  std::vector<Node> nodes_;
};

}  // namespace imbrex::vgpu
