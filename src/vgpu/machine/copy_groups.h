// SPDX-License-Identifier: Apache-2.0
// Commit groups of asynchronous copies (cp.async and bulk): which copies of which lanes are under way, and
// which group each is in.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "vgpu/lanes.h"

namespace imbrex::vgpu {

/// The copies of one warp. Copies are numbered in the order of issue (one number per warp instruction); a
/// commit group of a lane is the numbers between two of its commits.
class CopyGroups {
 public:
  using Number = uint64_t;

  /// Numbers a new copy of these lanes.
  Number issue(Mask lanes) {
    under_way_.push_back({next_, lanes});
    return next_++;
  }
  void finish(Number copy);
  /// Closes the group of each of the lanes.
  void commit(Mask lanes);

  /// The number of the next copy: what has been issued so far lies below.
  Number issued() const { return next_; }
  /// True when every copy of the lane numbered below `end` has finished.
  bool is_done_before(int lane, Number end) const;
  /// True when at most the `pending` youngest groups of each lane may still be under way.
  bool is_group_done(Mask lanes, uint32_t pending) const;
  /// Copies of the lanes numbered below this one are in groups older than the `pending` youngest.
  Number end_of_groups(Mask lanes, uint32_t pending) const;
  /// True when no copy of the lanes is under way, committed or not.
  bool is_all_done(Mask lanes) const;
  size_t copies_under_way() const { return under_way_.size(); }

 private:
  struct Copy {
    Number number;
    Mask lanes;
  };
  std::vector<Copy> under_way_;
  /// Per lane the ends of its groups, without the oldest as far as those are done.
  std::array<std::vector<Number>, kWarpSize> groups_;
  Number next_ = 0;
};

struct Instruction;

/// Bulk groups: each copy passes two points, its source has been read and its result written.
struct BulkGroups {
  CopyGroups reads, writes;  // the same copies under the same numbers

  /// Copies whose lane has not waited for either point, however early they passed it.
  struct Unwaited {
    CopyGroups::Number number;
    int lane;
    const Instruction* insn;
  };
  std::vector<Unwaited> unwaited;
  bool has_stored = false;
  std::vector<const Instruction*> waits;  // that the warp has executed, each once, the last one last
  /// The lanes have waited, by `insn`, for all but their `pending` youngest groups.
  void note_wait(const Instruction& insn, Mask lanes, uint32_t pending);
};

}  // namespace imbrex::vgpu
