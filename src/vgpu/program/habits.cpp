// SPDX-License-Identifier: Apache-2.0
#include "vgpu/program/habits.h"

namespace imbrex::vgpu {

void Habits::note(const ptx::Instruction& insn) {
  using ptx::Mod;
  using ptx::Op;
  const bool is_wait = insn.op == Op::mbarrier_test_wait || insn.op == Op::mbarrier_try_wait;
  const bool is_arrival = insn.op == Op::mbarrier_arrive || insn.op == Op::mbarrier_arrive_drop;
  const bool is_strong_load =
      insn.op == Op::ld && (insn.has(Mod::volatile_) || insn.has(Mod::relaxed) || insn.has(Mod::acquire)) &&
      !insn.has(Mod::shared);
  const bool is_relaxed = (insn.has(Mod::volatile_) || insn.has(Mod::relaxed)) && !insn.has(Mod::shared);
  sets_relaxed_flags |= insn.op == Op::st && is_relaxed;
  reads_relaxed_flags |= insn.op == Op::ld && is_relaxed;
  const bool is_fence = insn.op == Op::membar || insn.op == Op::fence;
  const bool is_access = insn.op == Op::ld || insn.op == Op::st || insn.op == Op::atom || insn.op == Op::red;
  orders_clusters |=
      (is_fence && !insn.has(Mod::cta)) ||
      (is_access && (insn.has(Mod::acquire) || insn.has(Mod::release) || insn.has(Mod::acq_rel)));
  heeds_other_clusters |= is_strong_load || (insn.op == Op::atom && !insn.has(Mod::shared)) ||
                          insn.op == Op::clusterlaunchcontrol_try_cancel;
  // Without a space, an address may lie anywhere.
  const bool is_elsewhere = insn.has(Mod::global) || insn.has(Mod::local) || insn.has(Mod::const_) ||
                            insn.has(Mod::param) || insn.has(Mod::param_entry) || insn.has(Mod::param_func);
  const bool is_load = insn.op == Op::ld || insn.op == Op::atom || insn.op == Op::wmma_load_a ||
                       insn.op == Op::wmma_load_b || insn.op == Op::wmma_load_c;
  switch (insn.op) {
    case Op::mma_sync:
    case Op::mma_sp_sync:
    case Op::mma_sp_ordered_sync:
    case Op::wmma_mma:
    case Op::wgmma_mma_async:
    case Op::wgmma_mma_async_sp:
    case Op::tcgen05_mma:
    case Op::tcgen05_mma_sp:
    case Op::tcgen05_mma_ws:
    case Op::tcgen05_mma_ws_sp:
      multiplies = true;
      break;
    default:
      break;
  }
  reads_shared |= insn.op == Op::ldmatrix || (is_load && !is_elsewhere);
  note_tensor_fence(insn.op, is_wait);
  if (is_wait) ++(insn.has(Mod::relaxed) ? relaxed_waits : acquiring_waits);
  if (insn.has(Mod::relaxed) || !insn.has(Mod::cluster)) return;
  some_wait_for_cluster |= is_wait;
  some_arrive_for_cluster |= is_arrival;
}

void Habits::note_tensor_fence(ptx::Op op, bool is_wait) {
  using ptx::Op;
  if (op == Op::bar_sync || op == Op::barrier_sync || op == Op::barrier_cluster_wait) is_behind_wait_ = false;
  if (is_wait) is_behind_wait_ = true;
  some_fence_before |= op == Op::tcgen05_fence_before_thread_sync;
  if (op != Op::tcgen05_fence_after_thread_sync) return;
  some_fence_after = true;
  some_fence_after_wait |= is_behind_wait_;
}

bool Habits::is_slip(BentRule rule, bool by_wait) const {
  if (rule == BentRule::kRelaxedWait) return relaxed_waits <= acquiring_waits;
  if (rule == BentRule::kArrivalScope) return by_wait ? some_wait_for_cluster : some_arrive_for_cluster;
  return false;
}

}  // namespace imbrex::vgpu
