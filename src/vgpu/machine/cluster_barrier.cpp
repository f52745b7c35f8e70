// SPDX-License-Identifier: Apache-2.0
#include "vgpu/machine/cluster_barrier.h"

#include "vgpu/machine/cluster.h"

namespace imbrex::vgpu {

ClusterBarrier::WarpState& ClusterBarrier::state(Warp& warp) {
  const auto rank = static_cast<size_t>(warp.cta().rank()), index = static_cast<size_t>(warp.index());
  if (states_.size() <= rank) states_.resize(rank + 1);
  if (states_[rank].size() <= index) states_[rank].resize(index + 1);
  return states_[rank][index];
}

const ClusterBarrier::WarpState* ClusterBarrier::find(const Warp& warp) const {
  const auto rank = static_cast<size_t>(warp.cta().rank()), index = static_cast<size_t>(warp.index());
  return rank < states_.size() && index < states_[rank].size() ? &states_[rank][index] : nullptr;
}

int ClusterBarrier::missing(Warp& any_warp) const {
  int missing = 0;
  for (const std::unique_ptr<Cta>& cta : any_warp.cta().cluster().ctas())
    for (const std::unique_ptr<Warp>& warp : cta->warps()) {
      const WarpState* s = find(*warp);
      missing += count_lanes(warp->live() & ~(s == nullptr ? 0 : s->arrived));
    }
  return missing;
}

Mask ClusterBarrier::arrive(Warp& warp, Mask lanes) {
  complete_if_all_came(warp);  // threads that exited meanwhile may have been the last ones missing
  WarpState& s = state(warp);
  const Mask twice = lanes & s.waiting & s.arrived;
  const Mask fresh = lanes & ~twice;
  s.arrived |= fresh;
  s.waiting |= fresh;
  for_each_lane(fresh, [&](int lane) { s.phase[static_cast<size_t>(lane)] = phase_; });
  complete_if_all_came(warp);
  return twice;
}

void ClusterBarrier::complete_if_all_came(Warp& any_warp) {
  bool anybody = false;
  for (const std::vector<WarpState>& cta : states_)
    for (const WarpState& w : cta) anybody = anybody || w.arrived != 0;
  if (!anybody || missing(any_warp) != 0) return;
  ++phase_;
  for (std::vector<WarpState>& cta : states_)
    for (WarpState& w : cta) w.arrived = 0;
}

Mask ClusterBarrier::without_arrival(Warp& warp, Mask lanes) { return lanes & ~state(warp).waiting; }

bool ClusterBarrier::is_over(Warp& warp, Mask lanes) const {
  const WarpState* s = find(warp);
  bool over = true;
  for_each_lane(lanes, [&](int lane) { over = over && s->phase[static_cast<size_t>(lane)] < phase_; });
  return over || missing(warp) == 0;
}

Mask ClusterBarrier::in_odd_phase(Warp& warp, Mask lanes) {
  Mask odd = 0;
  for_each_lane(lanes, [&](int lane) {
    if (state(warp).phase[static_cast<size_t>(lane)] % 2 != 0) odd |= Mask{1} << lane;
  });
  return odd;
}

void ClusterBarrier::pass(Warp& warp, Mask lanes) {
  complete_if_all_came(warp);
  state(warp).waiting &= ~lanes;
}

}  // namespace imbrex::vgpu
