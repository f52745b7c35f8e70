// SPDX-License-Identifier: Apache-2.0
#include "vgpu/machine/cluster_barrier.h"

#include <fmt/format.h>

#include "vgpu/timeline/timeline_recorder.h"
#include "vgpu/units/unit_support.h"

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

namespace {

using ptx::Mod;
using ptx::Op;

constexpr SyncKey kBarrier = sync_key(SyncKind::kClusterBarrier, 0, 0);

ClusterBarrier& barrier_of(Warp& warp) { return warp.cta().cluster().units().barrier; }

/// order(lanes, key) for the lanes that arrived in each phase. Phases have keys of their own, two in turn:
/// who passes one late has not waited for those who arrived in the next already.
template <class Order>
void for_each_phase(Warp& warp, Mask lanes, const Order& order) {
  const Mask odd = barrier_of(warp).in_odd_phase(warp, lanes);
  if (lanes & ~odd) order(lanes & ~odd, sync_key(SyncKind::kClusterBarrier, 0, 0));
  if (odd) order(odd, sync_key(SyncKind::kClusterBarrier, 0, 1));
}

template <bool kAligned, bool kRelaxedOrder>
Step exec_arrive(Warp& warp, const Instruction& insn, Mask active) {
  if (kAligned)
    if (const Step step = warp.gather(active, kAllLanes); step != Step::kNext) return step;
  Cluster& cluster = warp.cta().cluster();
  cluster.note_progress();
  if (cluster.timeline() != nullptr)
    cluster.timeline()->arrived(thread_of(warp, insn, -1), kBarrier, barrier_of(warp).phase());
  const Mask twice = barrier_of(warp).arrive(warp, active);
  for_each_phase(warp, active, [&](Mask lanes, SyncKey key) {
    Who who = threads_of(warp, insn, lanes);
    if (kRelaxedOrder) who.order = kRelaxed;
    cluster.released(who, key);
  });
  if (twice != 0)
    report_fatal(cluster, FindingKind::kInvalidBarrier, thread_of(warp, insn, first_lane(twice)), 0,
                 "arrives at the cluster barrier twice in one phase",
                 "barrier.cluster.wait between two arrives");
  return Step::kNext;
}

bool is_wait_over(Warp& warp, const Wait& wait) {
  return barrier_of(warp).is_over(warp, static_cast<Mask>(wait.a));
}
std::string describe_wait(Warp& warp, const Wait&) {
  return fmt::format("for the cluster barrier, phase {} ({} threads have not arrived)",
                     barrier_of(warp).phase(), barrier_of(warp).missing(warp));
}

template <bool kAligned>
Step exec_wait(Warp& warp, const Instruction& insn, Mask active) {
  if (kAligned)
    if (const Step step = warp.gather(active, kAllLanes); step != Step::kNext) return step;
  ClusterBarrier& barrier = barrier_of(warp);
  if (const Mask lanes = barrier.without_arrival(warp, active); lanes != 0) {
    report_fatal(warp.cta().cluster(), FindingKind::kInvalidBarrier, thread_of(warp, insn, first_lane(lanes)),
                 0, "waits at the cluster barrier without having arrived");
    return Step::kNext;
  }
  Wait wait;
  wait.ready = is_wait_over;
  wait.describe = describe_wait;
  wait.a = active;
  if (!is_wait_over(warp, wait)) return warp.wait_and_retry(active, wait);
  barrier.pass(warp, active);
  Cluster& cluster = warp.cta().cluster();
  for_each_phase(warp, active,
                 [&](Mask lanes, SyncKey key) { cluster.acquired(threads_of(warp, insn, lanes), key); });
  if (cluster.timeline() != nullptr)
    cluster.timeline()->waited(thread_of(warp, insn, -1), kBarrier, barrier.phase() - 1);
  return Step::kNext;
}

}  // namespace

bool decode_cluster_barrier(Decoder& decoder, Instruction& out) {
  const bool aligned = decoder.has(Mod::aligned);
  switch (decoder.op()) {
    case Op::barrier_cluster_arrive:
      if (decoder.has(Mod::relaxed))
        set_body(out, aligned ? exec_arrive<true, true> : exec_arrive<false, true>);
      else
        set_body(out, aligned ? exec_arrive<true, false> : exec_arrive<false, false>);
      return true;
    case Op::barrier_cluster_wait:
      set_body(out, aligned ? exec_wait<true> : exec_wait<false>);
      return true;
    default:
      return false;
  }
}

}  // namespace imbrex::vgpu
