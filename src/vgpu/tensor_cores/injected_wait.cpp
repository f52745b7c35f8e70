// SPDX-License-Identifier: Apache-2.0
// The wait that the assembler puts before an instruction that uses registers in flight (ptxas remark C7517).
#include "vgpu/machine/cluster.h"
#include "vgpu/program/control.h"
#include "vgpu/program/registers_in_flight.h"

namespace imbrex::vgpu {
namespace {

// Wait::a: the RegisterWriters.
bool are_written(Warp& warp, const Wait& wait) {
  CtaUnits& units = warp.cta().units();
  if ((wait.a & kLoadWrites) != 0 && units.tensor != nullptr &&
      units.tensor->transfers_of(warp.index()).loads > 0)
    return false;
  const auto index = static_cast<size_t>(warp.index() / kWarpgroupWarps);
  if ((wait.a & kProductWrites) == 0 || index >= units.warpgroups.size() ||
      units.warpgroups[index] == nullptr)
    return true;
  Warpgroup& group = *units.warpgroups[index];
  return group.done >= wgmma_warp(group, warp.index()).issued;
}

std::string describe(Warp&, const Wait& wait) {
  return (wait.a & kLoadWrites) != 0 ? "for registers that a tcgen05.ld is loading"
                                     : "for registers that a wgmma is writing";
}

Step exec(Warp& warp, const Instruction& insn, Mask active) {
  Wait wait;
  wait.ready = are_written;
  wait.describe = describe;
  wait.a = static_cast<uint64_t>(insn.immediate);
  return are_written(warp, wait) ? Step::kNext : warp.wait_and_retry(active, wait);
}

}  // namespace

Instruction registers_written_instruction(uint8_t writers) {
  Instruction out;
  out.exec[0] = out.exec[1] = exec;
  out.immediate = writers;
  return out;
}

}  // namespace imbrex::vgpu
