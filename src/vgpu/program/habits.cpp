// SPDX-License-Identifier: Apache-2.0
#include "vgpu/program/habits.h"

namespace imbrex::vgpu {

void Habits::note(const ptx::Instruction& insn) {
  using ptx::Mod;
  using ptx::Op;
  const bool is_wait = insn.op == Op::mbarrier_test_wait || insn.op == Op::mbarrier_try_wait;
  const bool is_arrival = insn.op == Op::mbarrier_arrive || insn.op == Op::mbarrier_arrive_drop;
  if (is_wait) ++(insn.has(Mod::relaxed) ? relaxed_waits : acquiring_waits);
  if (insn.has(Mod::relaxed) || !insn.has(Mod::cluster)) return;
  some_wait_for_cluster |= is_wait;
  some_arrive_for_cluster |= is_arrival;
}

bool Habits::is_slip(BentRule rule, bool by_wait) const {
  if (rule == BentRule::kRelaxedWait) return relaxed_waits <= acquiring_waits;
  if (rule == BentRule::kArrivalScope) return by_wait ? some_wait_for_cluster : some_arrive_for_cluster;
  return false;
}

}  // namespace imbrex::vgpu
