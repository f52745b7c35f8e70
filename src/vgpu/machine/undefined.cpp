// SPDX-License-Identifier: Apache-2.0
#include "vgpu/machine/undefined.h"

#include <fmt/format.h>

#include <algorithm>

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
  const auto load = origin == 0 ? warp.unwritten_loads().end() : warp.unwritten_loads().find(origin - 1);
  if (load == warp.unwritten_loads().end()) {
    finding->message = fmt::format("reads a register that was never written in lanes 0x{:08x}", lanes);
  } else {
    const auto& [memory, bytes, addresses] = load->second;
    finding->address = addresses[static_cast<size_t>(first_lane(lanes))];
    finding->message = fmt::format("reads {} bytes of {} memory at 0x{:x} of which not all have been written",
                                   bytes, memory, finding->address);
  }
  if (origin != 0)
    finding->facts.push_back(
        fmt::format("what is computed from it is used at {}", program.place_text(insn.index)));
}

/// A register that belongs to an asynchronous instruction counts as undefined; reading it is another mistake.
bool report_pending(Warp& warp, const Instruction& insn, Mask lanes, uint32_t reg) {
  const PendingResult pending = pending_result(warp, reg);
  if (pending.instruction == nullptr) return false;
  const Who who{&warp.cta(), warp.index(), first_lane(lanes), &insn, ""};
  if (Finding* finding = warp.cta().cluster().log().open(FindingKind::kAsyncInFlight, who, 0, nullptr,
                                                         BentRule::kRegisterWait)) {
    finding->message =
        fmt::format("reads a register of a {} that has not been waited for", pending.instruction);
    finding->hint = fmt::format("{} before it", pending.wait);
  }
  note_read_early(warp, reg);  // one report is enough
  return true;
}

constexpr uint8_t kAllBytes = 0xF;

/// `bytes` of register `to` are undefined in `lanes`, because of register `from`.
void mark_undefined_from(Warp& warp, uint32_t origin, Mask lanes, uint32_t to, uint8_t bytes) {
  std::vector<uint32_t>& origins = warp.undefined_origin();
  if (origins.empty()) origins.resize(warp.defined().size());
  origins[to] = origin;
  auto& partial = warp.undefined_bytes();
  auto at = partial.find(to);
  if (at == partial.end() && bytes != kAllBytes) {
    at = partial.try_emplace(to).first;
    at->second.fill(kAllBytes);
  }
  if (at != partial.end())
    for_each_lane(lanes, [&](int lane) {
      uint8_t& of_lane = at->second[static_cast<size_t>(lane)];
      const bool is_first = (warp.defined()[to] & lane_bit(lane)) != 0;
      of_lane = static_cast<uint8_t>(is_first ? bytes : of_lane | bytes);
    });
  warp.defined()[to] &= ~lanes;
}
void mark_undefined(Warp& warp, const Instruction& insn, Mask lanes, uint32_t from, uint32_t to,
                    uint8_t bytes = kAllBytes) {
  const uint32_t origin = origin_of(warp, from);
  mark_undefined_from(warp, origin != 0 ? origin : insn.index + 1, lanes, to, bytes);
}

/// Those of `lanes` in which one of the register's `bytes` is undefined.
Mask lanes_undefined(Warp& warp, Mask lanes, uint32_t reg, uint8_t bytes) {
  lanes &= ~warp.defined()[reg];
  const auto& partial = warp.undefined_bytes();
  if (lanes == 0 || bytes == kAllBytes || partial.empty()) return lanes;
  const auto at = partial.find(reg);
  if (at == partial.end()) return lanes;
  Mask some = 0;
  for_each_lane(lanes, [&](int lane) {
    if ((at->second[static_cast<size_t>(lane)] & bytes) != 0) some |= lane_bit(lane);
  });
  return some;
}

/// What becomes undefined of a result.
struct UndefinedPart {
  Mask lanes;
  uint32_t from, to;
  uint8_t bytes;
};
std::vector<UndefinedPart> undefined_parts(Warp& warp, const InstructionInfo& info, Mask active) {
  std::vector<UndefinedPart> out;
  const auto add = [&](const BytePart& part, uint8_t from_bytes, uint8_t to_bytes) {
    if (const Mask lanes = lanes_undefined(warp, active, part.from, from_bytes); lanes != 0)
      out.push_back({lanes, part.from, part.to, to_bytes});
  };
  for (const BytePart& part : info.parts) {
    if (!part.bytewise) add(part, part.from_bytes, part.to_bytes);
    for (uint8_t byte = 1; part.bytewise && byte < kAllBytes; byte = static_cast<uint8_t>(byte << 1))
      if ((part.from_bytes & byte) != 0) add(part, byte, byte);
  }
  if (const Mask lanes = active & ~warp.defined()[info.guard]; info.guard != 0 && lanes != 0)
    for (const uint32_t to : info.writes) out.push_back({lanes, info.guard, to, kAllBytes});
  return out;
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

void Checked::follow_undefined(Warp& warp, const Instruction& insn, Mask active) {
  std::vector<Mask>& defined = warp.defined();
  const InstructionInfo& info = warp.program().info[insn.index];
  const bool passes = info.flow != UndefinedFlow::kReported && info.flow != UndefinedFlow::kShuffled &&
                      info.flow != UndefinedFlow::kLoaded;
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
      if (std::find(info.narrow.begin(), info.narrow.end(), reg) != info.narrow.end() &&
          lanes_undefined(warp, undefined, reg, info.narrow_bytes) == 0)
        continue;
      report_undefined_register(warp, insn, undefined, reg);
      defined[reg] |= undefined;  // one report is enough; what follows from it is not news
    }
  }
  if (!passes) return;
  if (any == 0 || info.flow == UndefinedFlow::kByParts) {
    const std::vector<UndefinedPart> parts =
        any == 0 ? std::vector<UndefinedPart>() : undefined_parts(warp, info, active);
    for (const uint32_t reg : info.writes) defined[reg] |= active;
    for (const UndefinedPart& part : parts)
      mark_undefined(warp, insn, part.lanes, part.from, part.to, part.bytes);
    return;
  }
  const Mask undefined = undefined_results(warp, insn, info, any);
  for (const uint32_t reg : info.writes) {
    defined[reg] |= active;
    if (undefined != 0) mark_undefined(warp, insn, undefined, from, reg);
  }
}

void define_loaded(Warp& warp, const Instruction& insn, Mask lanes) {
  const DefinedUse& use = warp.program().uses[insn.index];
  const uint32_t* const numbers = warp.program().use_numbers.data() + use.first;
  for (uint32_t i = use.reads; i < use.all; ++i) warp.defined()[numbers[i]] |= lanes;
}

void note_loaded_unwritten(Warp& warp, const Instruction& insn, Mask lanes, uint32_t number, uint8_t bytes) {
  if (number != 0 && lanes != 0 && bytes != 0)
    mark_undefined_from(warp, insn.index + 1, lanes, number, bytes);
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
