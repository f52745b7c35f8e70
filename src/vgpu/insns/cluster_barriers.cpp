// SPDX-License-Identifier: Apache-2.0
// barrier.cluster.arrive and wait.
#include <fmt/format.h>

#include "vgpu/machine/cluster.h"
#include "vgpu/program/decode.h"

namespace imbrex::vgpu {

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
  cluster.observe().arrived(warp.thread(insn, -1), kBarrier, barrier_of(warp).phase());
  const Mask twice = barrier_of(warp).arrive(warp, active);
  for_each_phase(warp, active, [&](Mask lanes, SyncKey key) {
    Who who = warp.threads(insn, lanes);
    if (kRelaxedOrder) who.order = kRelaxed;
    cluster.observe().released(who, key);
  });
  if (twice != 0)
    cluster.report_fatal(FindingKind::kInvalidBarrier, warp.thread(insn, first_lane(twice)), 0,
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
    warp.cta().cluster().report_fatal(FindingKind::kInvalidBarrier, warp.thread(insn, first_lane(lanes)), 0,
                                      "waits at the cluster barrier without having arrived");
    return Step::kNext;
  }
  Wait wait;
  wait.ready = is_wait_over;
  wait.describe = describe_wait;
  wait.a = active;
  if (!is_wait_over(warp, wait)) return warp.wait_and_retry(active, wait);
  barrier.pass(warp, active);
  Cluster& cluster = warp.cta().cluster();
  for_each_phase(warp, active, [&](Mask lanes, SyncKey key) {
    cluster.observe().acquired(warp.threads(insn, lanes), key);
  });
  cluster.observe().waited(warp.thread(insn, -1), kBarrier, barrier.phase() - 1);
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
