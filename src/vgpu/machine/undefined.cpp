// SPDX-License-Identifier: Apache-2.0
#include "vgpu/machine/undefined.h"

#include <fmt/format.h>

#include "vgpu/machine/checks.h"

namespace imbrex::vgpu {

namespace {

uint32_t origin_of(Warp& warp, uint32_t reg) {
  return warp.undefined_origin().empty() ? 0 : warp.undefined_origin()[reg];
}

/// The finding stands where the unwritten register was first read, and tells where that comes to matter.
void report_undefined_register(Warp& warp, const Instruction& insn, Mask lanes, uint32_t reg) {
  FindingLog& log = warp.cta().cluster().log();
  const Program& program = warp.program();
  const uint32_t origin = origin_of(warp, reg);
  const Who who{&warp.cta(), warp.index(), first_lane(lanes), origin == 0 ? &insn : &program.code[origin - 1],
                ""};
  Finding* finding = log.open(FindingKind::kUninitializedRead, who);
  if (finding == nullptr) return;
  finding->message = fmt::format("reads a register that was never written in lanes 0x{:08x}", lanes);
  if (origin != 0)
    finding->facts.push_back(
        fmt::format("what is computed from it is used at {}", program.place_text(insn.index)));
}

/// A register that belongs to an asynchronous instruction counts as undefined; reading it is another mistake.
bool report_pending(Warp& warp, const Instruction& insn, Mask lanes, uint32_t reg) {
  const PendingResult pending = pending_result(warp, reg);
  if (pending.instruction == nullptr) return false;
  const Who who{&warp.cta(), warp.index(), first_lane(lanes), &insn, ""};
  if (Finding* finding = warp.cta().cluster().log().open(FindingKind::kAsyncInFlight, who)) {
    finding->message =
        fmt::format("reads a register of a {} that has not been waited for", pending.instruction);
    finding->hint = fmt::format("{} before it", pending.wait);
  }
  note_read_early(warp, reg);  // one report is enough
  return true;
}

/// `lanes` of register `to` are undefined, because of register `from`.
void mark_undefined(Warp& warp, const Instruction& insn, Mask lanes, uint32_t from, uint32_t to) {
  std::vector<uint32_t>& origins = warp.undefined_origin();
  if (origins.empty()) origins.resize(warp.defined().size());
  origins[to] = origins[from] != 0 ? origins[from] : insn.index + 1;
  warp.defined()[to] &= ~lanes;
}

/// Of each of the instruction's parts, the lanes in which its operand is undefined.
std::vector<Mask> undefined_parts(Warp& warp, const InstructionInfo& info, Mask active) {
  std::vector<Mask> lanes;
  for (const auto& [from, to] : info.parts) lanes.push_back(active & ~warp.defined()[from]);
  return lanes;
}

/// Lanes in which the result of an instruction is undefined that has some undefined operand; `any` are the
/// lanes where it has one.
Mask undefined_results(Warp& warp, const Instruction& insn, const InstructionInfo& info, Mask any) {
  const auto undefined = [&](int i) { return ~warp.defined()[info.numbers[i]]; };
  const auto value = [&](Slot slot, bool inverted) {
    return warp.predicate(slot) ^ (inverted ? kAllLanes : 0);
  };
  switch (info.flow) {
    case UndefinedFlow::kSelected: {
      const Mask p = value(insn.c, insn.small[PredicateSmall::kInvertSelector] != 0);
      return any & (undefined(2) | (p & undefined(0)) | (~p & undefined(1)));
    }
    case UndefinedFlow::kAnd:
    case UndefinedFlow::kOr: {
      const Mask decisive = info.flow == UndefinedFlow::kOr ? kAllLanes : 0;
      const Mask a_decides =
          ~(value(insn.a, insn.small[PredicateSmall::kInvertA] != 0) ^ decisive) & ~undefined(0);
      const Mask b_decides =
          ~(value(insn.b, insn.small[PredicateSmall::kInvertB] != 0) ^ decisive) & ~undefined(1);
      return any & ~a_decides & ~b_decides;
    }
    default:
      return any;
  }
}

}  // namespace

void Checked::before(Warp& warp, const Instruction& insn, Mask active) {
  std::vector<Mask>& defined = warp.defined();
  if (defined.empty()) return;
  const InstructionInfo& info = warp.program().info[insn.index];
  const bool passes = info.flow != UndefinedFlow::kReported && info.flow != UndefinedFlow::kShuffled;
  Mask any = 0;
  uint32_t from = 0;
  for (const uint32_t reg : info.reads) {
    const Mask undefined = active & ~defined[reg];
    if (undefined == 0) continue;
    if (!report_pending(warp, insn, undefined, reg)) {
      if (passes) {
        if (any == 0) from = reg;
        any |= undefined;
        continue;
      }
      if (info.flow == UndefinedFlow::kShuffled && reg == info.numbers[0]) continue;
      report_undefined_register(warp, insn, undefined, reg);
      defined[reg] |= undefined;  // one report is enough; what follows from it is not news
    }
  }
  if (!passes) return;
  if (any == 0 || info.flow == UndefinedFlow::kByParts) {
    const std::vector<Mask> before = any == 0 ? std::vector<Mask>() : undefined_parts(warp, info, active);
    for (const uint32_t reg : info.writes) defined[reg] |= active;
    for (size_t i = 0; i < before.size(); ++i)
      if (before[i] != 0) mark_undefined(warp, insn, before[i], info.parts[i].first, info.parts[i].second);
    return;
  }
  const Mask undefined = undefined_results(warp, insn, info, any);
  for (const uint32_t reg : info.writes) {
    defined[reg] |= active;
    if (undefined != 0) mark_undefined(warp, insn, undefined, from, reg);
  }
}

void Checked::after(Warp& warp, const Instruction& insn, Mask active) {
  std::vector<Mask>& defined = warp.defined();
  if (defined.empty()) return;
  const InstructionInfo& info = warp.program().info[insn.index];
  if (info.flow != UndefinedFlow::kReported) return;
  for (const uint32_t reg : info.writes) defined[reg] |= active;
}

void pass_shuffled(Warp& warp, const Instruction& insn, Mask members, const int* from) {
  std::vector<Mask>& defined = warp.defined();
  if (defined.empty()) return;
  const InstructionInfo& info = warp.program().info[insn.index];
  const auto [value, result, unused] = info.numbers;
  const Mask known = defined[value];
  for (const uint32_t reg : info.writes) defined[reg] |= members;
  if (result == 0) return;
  Mask undefined = 0;
  for_each_lane(members, [&](int lane) {
    if ((known & lane_bit(from[lane])) == 0) undefined |= lane_bit(lane);
  });
  if (undefined == 0) return;
  mark_undefined(warp, insn, undefined, value, result);
}

}  // namespace imbrex::vgpu
