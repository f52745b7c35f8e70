// SPDX-License-Identifier: Apache-2.0
#include "vgpu/machine/copy_groups.h"

#include <algorithm>

namespace imbrex::vgpu {

namespace {

/// More than any wait leaves pending.
constexpr size_t kGroupsKept = 64;

}  // namespace

void CopyGroups::finish(Number copy) {
  for (size_t i = 0; i < under_way_.size(); ++i) {
    if (under_way_[i].number != copy) continue;
    under_way_[i] = under_way_.back();
    under_way_.pop_back();
    return;
  }
}

bool CopyGroups::is_done_before(int lane, Number end) const {
  for (const Copy& copy : under_way_)
    if (copy.number < end && (copy.lanes & lane_bit(lane)) != 0) return false;
  return true;
}

void CopyGroups::commit(Mask lanes) {
  for_each_lane(lanes, [&](int lane) {
    std::vector<Number>& ends = groups_[static_cast<size_t>(lane)];
    // Finished groups at the old end cannot hold up any wait again; waits that leave some pending are told
    // which groups they cover all the same.
    size_t done = 0;
    while (ends.size() - done >= kGroupsKept && is_done_before(lane, ends[done])) ++done;
    ends.erase(ends.begin(), ends.begin() + static_cast<int64_t>(done));
    ends.push_back(next_);
  });
}

bool CopyGroups::is_group_done(Mask lanes, uint32_t pending) const {
  bool done = true;
  for_each_lane(lanes, [&](int lane) {
    const std::vector<Number>& ends = groups_[static_cast<size_t>(lane)];
    // Only the oldest are ever dropped, so counting from the young end stays right.
    if (ends.size() > pending) done = done && is_done_before(lane, ends[ends.size() - 1 - pending]);
  });
  return done;
}

CopyGroups::Number CopyGroups::end_of_groups(Mask lanes, uint32_t pending) const {
  Number end = 0;
  for_each_lane(lanes, [&](int lane) {
    const std::vector<Number>& ends = groups_[static_cast<size_t>(lane)];
    if (ends.size() > pending) end = std::max(end, ends[ends.size() - 1 - pending]);
  });
  return end;
}

bool CopyGroups::is_all_done(Mask lanes) const {
  for (const Copy& copy : under_way_)
    if ((copy.lanes & lanes) != 0) return false;
  return true;
}

void BulkGroups::note_wait(const Instruction& insn, Mask lanes, uint32_t pending) {
  std::erase(waits, &insn);
  waits.push_back(&insn);
  std::erase_if(unwaited, [&](const Unwaited& copy) {
    const Mask lane = lanes & lane_bit(copy.lane);
    return lane != 0 && copy.number < reads.end_of_groups(lane, pending);
  });
}

}  // namespace imbrex::vgpu
