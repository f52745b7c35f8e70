// SPDX-License-Identifier: Apache-2.0
#include "vgpu/copy_groups.h"

namespace imbrex::vgpu {

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
    // Finished groups at the old end cannot hold up any wait again.
    size_t done = 0;
    while (done < ends.size() && is_done_before(lane, ends[done])) ++done;
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

bool CopyGroups::is_all_done(Mask lanes) const {
  for (const Copy& copy : under_way_)
    if ((copy.lanes & lanes) != 0) return false;
  return true;
}

}  // namespace imbrex::vgpu
