// SPDX-License-Identifier: Apache-2.0
// The checking policy. Bodies that touch memory are templates over it and are compiled twice; what Unchecked
// leaves empty costs nothing. Bodies that only compute are compiled once: the run loop asks the policy around
// them.
//
// Addresses are checked under both policies (the host's memory depends on it); see access.h.
#pragma once

#include "vgpu/machine/cluster.h"
#include "vgpu/machine/place.h"

namespace imbrex::vgpu {

struct Unchecked {
  static constexpr int kIndex = 0;
  static void before(Warp&, const Instruction&, Mask) {}
  static void after(Warp&, const Instruction&, Mask) {}
  static void guard_read(Warp&, const Instruction&, Mask) {}
  static void touched(Cluster&, const Who&, const Place&, uint32_t /*bytes*/, AccessKind, int = 7) {}
};

struct Checked {
  static constexpr int kIndex = 1;
  /// Undefined lanes of the registers read: reported or passed on, as InstructionInfo::flow says.
  static void before(Warp& warp, const Instruction& insn, Mask active) {
    if (warp.defined().empty()) return;
    Mask* const defined = warp.defined().data();
    const DefinedUse& use = warp.program().uses[insn.index];
    const uint32_t* const numbers = warp.program().use_numbers.data() + use.first;
    Mask everywhere = kAllLanes;
    for (uint32_t i = 0; i < use.reads; ++i) everywhere &= defined[numbers[i]];
    if ((~everywhere & active) != 0) [[unlikely]]
      return follow_undefined(warp, insn, active);
    if (use.passes)
      for (uint32_t i = use.reads; i < use.all; ++i) defined[numbers[i]] |= active;
  }
  /// Registers written are defined from now on, where before() or the body has not settled it.
  static void after(Warp& warp, const Instruction& insn, Mask active) {
    if (warp.defined().empty()) return;
    Mask* const defined = warp.defined().data();
    const DefinedUse& use = warp.program().uses[insn.index];
    if (!use.is_reported) return;
    const uint32_t* const numbers = warp.program().use_numbers.data() + use.first;
    for (uint32_t i = use.reads; i < use.all; ++i) defined[numbers[i]] |= active;
  }
  /// Where the guard reads false in some of the `evaluating` lanes: if it is undefined, that they do nothing is chance.
  static void guard_read(Warp& warp, const Instruction& insn, Mask evaluating) {
    if (warp.defined().empty()) return;
    const Mask undefined = evaluating & ~warp.defined()[warp.program().info[insn.index].guard];
    if (undefined != 0) [[unlikely]]
      follow_undefined_guard(warp, insn, undefined);
  }
  /// before(), where a register read is undefined in some of the lanes.
  static void follow_undefined(Warp& warp, const Instruction& insn, Mask active);
  static void follow_undefined_guard(Warp& warp, const Instruction& insn, Mask undefined);
  /// Every byte that a thread or a unit reads or writes passes here once, after its address was found good.
  /// `lane_shift`: the lanes from who.lane on touch 1 << lane_shift bytes each; 7: one does it all.
  static void touched(Cluster& cluster, const Who& who, const Place& place, uint32_t bytes, AccessKind kind,
                      int lane_shift = 7);
  /// The same for what the lanes of a warp touch by one weak access of global memory, or of the CTA's own shared
  /// memory. `who.lanes`: all of them.
  static void lanes_touched(Cta& cta, Who who, Space space, const LaneTouches& touches, AccessKind kind,
                            const WritesTheSame& same = {});
};

}  // namespace imbrex::vgpu
