// SPDX-License-Identifier: Apache-2.0
#include "vgpu/machine/adversary.h"

#include "vgpu/machine/async.h"
#include "vgpu/machine/cta.h"

namespace imbrex::vgpu {

Adversary::Adversary(Random& random, uint64_t ctas, uint64_t warps, uint64_t clock)
    : warps_(warps), last_run_(clock) {
  if (random.is_plain()) return;
  // Longer than any loop over a tile takes, or just long enough for the others to come round once.
  patience_ = uint64_t{1} << (8 + random.below(8));
  switch (random.below(6)) {
    case 0:
    case 1:
      return;
    case 2:
      mode_ = Mode::kLateWarp;
      chosen_ = random.below(ctas * warps);
      return;
    case 3:
      mode_ = ctas > 1 ? Mode::kLateCta : Mode::kLateWarp;
      chosen_ = random.below(ctas > 1 ? ctas : warps);
      return;
    case 4:
      mode_ = Mode::kLateWork;
      chosen_ = random.next();
      return;
    default:
      mode_ = Mode::kEarlyWarp;
      chosen_ = random.below(ctas * warps);
      return;
  }
}

bool Adversary::is_chosen(const Warp& warp) const {
  const auto rank = static_cast<uint64_t>(warp.cta().rank());
  const bool is_the_warp = rank * warps_ + static_cast<uint64_t>(warp.index()) == chosen_;
  switch (mode_) {
    case Mode::kNone:
    case Mode::kLateWork:
      return false;
    case Mode::kLateWarp:
      return is_the_warp;
    case Mode::kEarlyWarp:
      return !is_the_warp;
    case Mode::kLateCta:
      return rank == chosen_;
  }
  return false;
}

bool Adversary::is_chosen(const AsyncOp& op) const {
  if (mode_ != Mode::kLateWork || op.who.insn == nullptr) return false;
  // A third of the instructions, whichever.
  Random draw(chosen_ | 1, op.who.insn->index);
  return draw.once_in(3);
}

}  // namespace imbrex::vgpu
