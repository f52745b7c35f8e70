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

/// Whether a value of that origin came from bytes that may be the padding of an allocation.
bool is_padding(Warp& warp, uint32_t origin) {
  if (origin == 0) return false;
  if (const auto way = warp.undefined_ways().find(origin); way != warp.undefined_ways().end())
    return way->second.how.is_padding;
  const auto load = warp.unwritten_loads().find(origin - 1);
  return load != warp.unwritten_loads().end() && load->second.is_padding;
}

/// The finding stands where the unwritten register was first read, and tells where that comes to matter.
void report_undefined_register(Warp& warp, const Instruction& insn, Mask lanes, uint32_t reg) {
  FindingLog& log = warp.cta().cluster().log();
  const Program& program = warp.program();
  const uint32_t origin = origin_of(warp, reg);
  const Who who{&warp.cta(), warp.index(), first_lane(lanes), origin == 0 ? &insn : &program.code[origin - 1],
                ""};
  const auto load = origin == 0 ? warp.unwritten_loads().end() : warp.unwritten_loads().find(origin - 1);
  const auto way = warp.undefined_ways().find(origin);
  Finding* finding = log.open(FindingKind::kUninitializedRead, who, 0, nullptr,
                              is_padding(warp, origin) ? BentRule::kUnwrittenPadding : BentRule::kNone);
  if (finding == nullptr) return;
  if (way != warp.undefined_ways().end()) {
    finding->message = program.info[origin - 1].flow == UndefinedFlow::kLoaded
                           ? "reads memory of which not all has been written"
                           : "reads a register that was never written";
    finding->facts.push_back(fmt::format("stored at {}, loaded at {}",
                                         program.place_text(way->second.how.store - 1),
                                         program.place_text(way->second.load - 1)));
  } else if (load == warp.unwritten_loads().end()) {
    finding->message = fmt::format("reads a register that was never written in lanes 0x{:08x}", lanes);
  } else {
    const auto& [memory, bytes, addresses, padding, coming, help] = load->second;
    finding->address = addresses[static_cast<size_t>(first_lane(lanes))];
    finding->message = fmt::format("reads {} bytes of {} memory at 0x{:x} of which not all have been written",
                                   bytes, memory, finding->address);
    if (!coming.empty()) finding->facts.push_back(coming);
    finding->hint = help;
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
  FindingLog& log = warp.cta().cluster().log();
  // Compilers copy accumulators before the wait, and the assembler keeps no such copy. Nobody's habit is to compute with
  // them: there the assembler waits for all products (remark C7517), or runs them one after the other (C7514).
  const bool is_product = std::string_view(pending.instruction) == "wgmma";
  const bool is_copy = warp.program().info[insn.index].flow == UndefinedFlow::kByParts;
  const BentRule rule =
      log.is_practical() && is_product && !is_copy ? BentRule::kNone : BentRule::kRegisterWait;
  if (Finding* finding = log.open(FindingKind::kAsyncInFlight, who, 0, nullptr, rule)) {
    finding->message =
        fmt::format("reads a register of a {} that has not been waited for", pending.instruction);
    finding->hint = fmt::format("{} before it", pending.wait);
    if (is_product && !is_copy)
      finding->hint += "; without, the assembler waits for all products there, or runs them one by one";
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

/// Is it one of the registers whose values a kStored instruction stores?
bool is_stored(const InstructionInfo& info, uint32_t reg) {
  const uint32_t halves = info.element_bytes == 8 ? 2 : 1;
  return reg != info.guard && std::ranges::any_of(info.elements, [&](uint32_t of) {
           return of != 0 && reg >= of && reg < of + halves;
         });
}

}  // namespace

void Checked::follow_undefined(Warp& warp, const Instruction& insn, Mask active) {
  std::vector<Mask>& defined = warp.defined();
  const InstructionInfo& info = warp.program().info[insn.index];
  const bool passes = warp.program().uses[insn.index].passes;
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
      if (info.flow == UndefinedFlow::kStored && is_stored(info, reg)) {
        warp.stores_undefined = true;
        continue;
      }
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

void Checked::follow_undefined_guard(Warp& warp, const Instruction& insn, Mask undefined) {
  const InstructionInfo& info = warp.program().info[insn.index];
  if (!report_pending(warp, insn, undefined, info.guard)) {
    if (warp.program().uses[insn.index].passes) {
      for (const uint32_t reg : info.writes) mark_undefined(warp, insn, undefined, info.guard, reg);
      return;
    }
    report_undefined_register(warp, insn, undefined, info.guard);
  }
  warp.defined()[info.guard] |= undefined;  // one report is enough
}

void define_loaded(Warp& warp, const Instruction& insn, Mask lanes) {
  const DefinedUse& use = warp.program().uses[insn.index];
  const uint32_t* const numbers = warp.program().use_numbers.data() + use.first;
  for (uint32_t i = use.reads; i < use.all; ++i) warp.defined()[numbers[i]] |= lanes;
}

void note_loaded_unwritten(Warp& warp, const Instruction& insn, Mask lanes, uint32_t number, uint8_t bytes,
                           UndefinedStore how) {
  if (number == 0 || lanes == 0 || bytes == 0) return;
  if (how.origin != 0) warp.undefined_ways()[how.origin] = {how, insn.index + 1};
  mark_undefined_from(warp, how.origin != 0 ? how.origin : insn.index + 1, lanes, number, bytes);
}

namespace {

/// Bytes of shared memory, of whichever CTA of the cluster, or of the lane's own, as those that were not written.
void mark_undefined_bytes(Warp& warp, Space space, const std::byte* host, uint8_t bytes, UndefinedStore how) {
  const auto mark = [&](WrittenBits& written, size_t at) {
    for (size_t i = 0; i < 4; ++i)
      if ((bytes >> i & 1) != 0) written.mark_undefined(at + i, how);
  };
  const auto distance = [&](const std::byte* base) {
    return reinterpret_cast<uintptr_t>(host) - reinterpret_cast<uintptr_t>(base);
  };
  if (space == Space::kLocal) return mark(warp.local_written(), distance(warp.local(0)));
  for (const std::unique_ptr<Cta>& cta : warp.cta().cluster().ctas())
    if (const size_t at = distance(cta->shared().at(0)); at < cta->shared().end())
      mark(cta->shared().written(), at);
}

}  // namespace

void note_undefined_stored(Warp& warp, const Instruction& insn, Mask lanes, Space space,
                           std::byte* const* host) {
  warp.stores_undefined = false;
  const InstructionInfo& info = warp.program().info[insn.index];
  const std::vector<uint32_t>& elements = info.elements;
  const uint32_t element_bytes = info.element_bytes;
  const bool is_followed = space == Space::kLocal || space == Space::kSharedCta;
  const uint8_t all = element_bytes >= 4 ? kAllBytes : static_cast<uint8_t>((1u << element_bytes) - 1);
  for (uint32_t e = 0; e < elements.size(); ++e)
    for (uint32_t half = 0; elements[e] != 0 && half < std::max(1u, element_bytes / 4); ++half) {
      const uint32_t reg = elements[e] + half;
      const Mask undefined = lanes_undefined(warp, lanes, reg, all);
      if (undefined == 0) continue;
      if (!is_followed) {
        report_undefined_register(warp, insn, undefined, reg);
        warp.defined()[reg] |= undefined;  // one report is enough
        continue;
      }
      const uint32_t origin = origin_of(warp, reg);
      const UndefinedStore how{origin != 0 ? origin : insn.index + 1, insn.index + 1,
                               is_padding(warp, origin)};
      const auto partial = warp.undefined_bytes().find(reg);
      for_each_lane(undefined, [&](int lane) {
        const auto at = static_cast<size_t>(lane);
        const uint8_t bytes = partial == warp.undefined_bytes().end() ? kAllBytes : partial->second[at];
        mark_undefined_bytes(warp, space, host[at] + size_t{e} * element_bytes + half * 4,
                             static_cast<uint8_t>(bytes & all), how);
      });
    }
}

std::vector<std::string> undefined_store_facts(const Program& program, UndefinedStore how) {
  if (how.store == 0) return {};
  const bool is_loaded = program.info[how.origin - 1].flow == UndefinedFlow::kLoaded;
  return {fmt::format("what was stored there at {} has no value: it comes from {} never written, read at {}",
                      program.place_text(how.store - 1),
                      is_loaded ? "memory that was" : "a register that was",
                      program.place_text(how.origin - 1))};
}

void pass_shuffled(Warp& warp, const Instruction& insn, Mask members, const int* from) {
  std::vector<Mask>& defined = warp.defined();
  if (defined.empty()) return;
  const InstructionInfo& info = warp.program().info[insn.index];
  const auto [value, result, unused] = info.numbers;
  const Mask known = defined[value];
  for (const uint32_t reg : info.writes) defined[reg] |= members;
  if (result == 0 || known == kAllLanes) return;
  Mask undefined = 0;
  for_each_lane(members, [&](int lane) {
    if ((known & lane_bit(from[lane])) == 0) undefined |= lane_bit(lane);
  });
  if (undefined == 0) return;
  mark_undefined(warp, insn, undefined, value, result);
}

}  // namespace imbrex::vgpu
