// SPDX-License-Identifier: Apache-2.0
// How a program keeps rules that chips bear to be bent. Who bends one throughout relies on the chip; who bends it in
// one place and keeps it in the others has made a slip.
#pragma once

#include <cstdint>

#include "imbrex/vgpu/bent_rule.h"
#include "ptx/ptx.h"

namespace imbrex::vgpu {

struct Habits {
  int relaxed_waits = 0, acquiring_waits = 0;                           // for mbarriers
  bool some_wait_for_cluster = false, some_arrive_for_cluster = false;  // .cluster scope at mbarriers
  /// tcgen05.fence::before_thread_sync, after_thread_sync; the latter behind a wait at an mbarrier, where that is the
  /// last synchronisation before it in the order of the text.
  bool some_fence_before = false, some_fence_after = false, some_fence_after_wait = false;

  /// Of flags in global memory: relaxed or volatile ones are set, and read; something orders clusters as PTX asks for it.
  bool sets_relaxed_flags = false, reads_relaxed_flags = false, orders_clusters = false;
  /// CTAs tell each other of their work by such flags alone: what depends on a value that was loaded says that it has come.
  bool tells_by_flags() const { return sets_relaxed_flags && reads_relaxed_flags && !orders_clusters; }

  /// Reads what other clusters may be about to write (flags, tickets), or asks for their work: of such a program no
  /// cluster can be left out.
  bool heeds_other_clusters = false;
  /// Threads may read what lies in shared memory. Else what copies bring there is only multiplied or stored.
  bool reads_shared = false;
  /// Uses tensor cores: where their products are left out, what it computes is nonsense.
  bool multiplies = false;

  void note(const ptx::Instruction& insn);
  /// Is a rule that a wait, or an arrival, bends kept elsewhere in the program?
  bool is_slip(BentRule rule, bool by_wait) const;

 private:
  void note_tensor_fence(ptx::Op op, bool is_wait);

  bool is_behind_wait_ = false;
};

/// What bends a rule, for a finding: the rule, and the instruction where one is known.
struct Bend {
  static constexpr uint32_t kNowhere = ~0u;
  Bend(BentRule rule = BentRule::kNone, uint32_t by = kNowhere) : rule(rule), by(by) {}
  BentRule rule;
  uint32_t by;  // index in Program::code
};

}  // namespace imbrex::vgpu
