// SPDX-License-Identifier: Apache-2.0
// The wgmma instructions of warps. The four warps of a warpgroup execute the same ones in the same order,
// each in its own time; a product begins when the last of them has issued it.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "vgpu/tensor_cores/wgmma_product.h"

namespace imbrex::vgpu {

Warpgroup& warpgroup_of(Warp& warp) {
  std::vector<std::unique_ptr<Warpgroup>>& groups = warp.cta().units().warpgroups;
  const auto index = static_cast<size_t>(warp.index() / kWarpgroupWarps);
  if (groups.size() <= index) groups.resize(index + 1);
  if (groups[index] == nullptr) {
    groups[index] = std::make_unique<Warpgroup>();
    groups[index]->queue = warp.cta().cluster().async().make_queue();
  }
  return *groups[index];
}

namespace {

using ptx::Mod;
using ptx::Op;
using ptx::ScalarType;

WgmmaWarp& state_of(Warp& warp) { return wgmma_warp(warpgroup_of(warp), warp.index()); }

/// `number` belongs to a product under way and counts as written: only by a mistake that is new, unless it has
/// been read too early, which has been reported.
void check_not_overwritten(Warp& warp, const Instruction& insn, WgmmaWarp& state, uint32_t number,
                           BentRule rule) {
  const bool is_read_early = !state.read_early.empty() && state.read_early.erase(number) != 0;
  if (warp.defined()[number] != 0 && !is_read_early)
    warp.cta().cluster().report(FindingKind::kAsyncInFlight, warp.thread(insn, -1), 0,
                                "a register of a wgmma under way was written before it was waited for",
                                "wgmma.wait_group before the write", rule);
}

// Registers that a product uses are its own until the warp has waited for it: meanwhile they count as never
// written, so that any use is found.
void take_registers(Warp& warp, const Instruction& insn, WgmmaWarp& state, const WgmmaForm& form, bool add) {
  std::vector<Mask>& defined = warp.defined();
  if (defined.empty()) return;
  state.uses.resize(defined.size());
  const auto take = [&](const std::vector<uint32_t>& numbers, bool reads) {
    for (uint32_t number : numbers) {
      const bool in_flight = state.is_in_flight(number);
      if (reads && !in_flight && defined[number] != kAllLanes)
        warp.cta().cluster().report(FindingKind::kUninitializedRead,
                                    warp.thread(insn, first_lane(~defined[number])), 0,
                                    "wgmma reads a register that was never written");
      if (in_flight)
        check_not_overwritten(warp, insn, state, number,
                              state.operands.count(number) != 0 ? BentRule::kRegisterWait : BentRule::kNone);
      defined[number] = 0;
      ++state.uses[number];
      state.open_registers.push_back(number);
    }
  };
  take(form.d_numbers, add);
  take(form.a_numbers, true);
  state.operands.insert(form.a_numbers.begin(), form.a_numbers.end());
}

void note_fenced(Warp& warp, WgmmaWarp::Fenced& fenced) {
  std::copy_n(warp.reg<uint32_t>(fenced.slot), fenced.lanes.size(), fenced.lanes.begin());
}

// Between a write to a product's registers and the product stands a wgmma.fence. What products themselves have written
// needs none. A product without any fence before it has been reported.
void check_fenced(Warp& warp, const Who& who, WgmmaWarp& state, const WgmmaForm& form) {
  if (warp.defined().empty()) return;
  bool is_reported = false;
  const auto check = [&](const std::vector<Slot>& slots, const std::vector<uint32_t>& numbers) {
    if (slots.size() != numbers.size()) return;  // a result that nobody wants has a slot and no number
    for (size_t i = 0; i < slots.size(); ++i) {
      WgmmaWarp::Fenced* const fenced = state.find_fenced(numbers[i]);
      // What is under way is noted when the warp has waited for it.
      if (fenced == nullptr || state.is_in_flight(numbers[i])) continue;
      if (std::equal(fenced->lanes.begin(), fenced->lanes.end(), warp.reg<uint32_t>(slots[i]))) continue;
      note_fenced(warp, *fenced);
      if (std::exchange(is_reported, true)) continue;
      warp.cta().cluster().report(FindingKind::kIllegalInstruction, who, 0,
                                  "a register of this wgmma was written after the last wgmma.fence",
                                  "wgmma.fence between the write and the product");
    }
  };
  check(form.d, form.d_numbers);
  check(form.a, form.a_numbers);
}

void release_registers(Warp& warp, const Instruction& insn, WgmmaWarp& state,
                       const std::vector<uint32_t>& numbers) {
  std::vector<Mask>& defined = warp.defined();
  for (uint32_t number : numbers) {
    if (--state.uses[number] > 0) continue;  // another product has it
    if (!state.operands.empty()) state.operands.erase(number);
    check_not_overwritten(warp, insn, state, number, BentRule::kRegisterWait);
    defined[number] = kAllLanes;
    if (WgmmaWarp::Fenced* const fenced = state.find_fenced(number)) note_fenced(warp, *fenced);
  }
}

// Bodies ----------------------------------------------------------------------------------------------------

Step exec_mma(Warp& warp, const Instruction& insn, Mask active) {
  if (const Step step = warp.gather(active, kAllLanes); step != Step::kNext) return step;
  const WgmmaForm& form = insn.form<WgmmaForm>();
  Cta& cta = warp.cta();
  Cluster& cluster = cta.cluster();
  const Who who = warp.thread(insn, -1).as_unit("tensor core");
  const int lane = first_lane(active);
  if (warp.index() / kWarpgroupWarps * kWarpgroupWarps + kWarpgroupWarps >
      static_cast<int>(cta.warps().size())) {
    cluster.report_fatal(
        FindingKind::kIllegalInstruction, who, 0,
        fmt::format("wgmma needs four warps; the last warpgroup of the CTA has {}", cta.warps().size() % 4),
        "launch a multiple of 128 threads");
    return Step::kNext;
  }
  Warpgroup& group = warpgroup_of(warp);
  WgmmaWarp& state = wgmma_warp(group, warp.index());
  WarpgroupProduct::Operands operands{&form, 0, warp.reg<uint64_t>(form.b_descriptor)[lane], form.always_add};
  if (form.a.empty()) operands.a_descriptor = warp.reg<uint64_t>(form.a_descriptor)[lane];
  if (form.has_scale_d) operands.add = (warp.lanes_where(form.scale_d) & lane_bit(lane)) != 0;
  for (const uint64_t bits : {operands.a_descriptor, operands.b_descriptor}) {
    if (const std::string why = decode_wgmma_descriptor(bits).problem; !why.empty()) {
      cluster.report_fatal(FindingKind::kIllegalInstruction, who, 0,
                           fmt::format("matrix descriptor {:#x}: {}", bits, why));
      return Step::kNext;
    }
  }
  if (!state.has_fenced)
    cluster.report(FindingKind::kIllegalInstruction, who, 0,
                   "wgmma.mma_async without a wgmma.fence before it",
                   "wgmma.fence orders the registers' earlier accesses before the first product");
  check_fenced(warp, who, state, form);

  const auto position = static_cast<size_t>(state.issued - group.first);
  const bool is_first = position == group.pending.size();
  if (is_first) {
    auto product = std::make_unique<WarpgroupProduct>(who, group, form, state.issued);
    group.pending.push_back(product.get());
    cluster.async().submit(std::move(product), group.queue);
  }
  if (!group.pending[position]->join(warp, operands)) {
    cluster.report_fatal(
        FindingKind::kDivergentCollective, who, 0,
        "the warps of a warpgroup execute different wgmma instructions, or with different descriptors");
    return Step::kNext;
  }
  cluster.observe().issued_also(*group.pending[position], warp, who, is_first);
  ++state.issued;
  take_registers(warp, insn, state, form, operands.add);
  return Step::kNext;
}

/// All registers of products that the program has will be looked at.
void note_products(const Warp& warp, WgmmaWarp& state) {
  state.fenced_at.assign(warp.program().register_count, 0);
  for (const Instruction& insn : warp.program().code) {
    if (insn.exec[0] != exec_mma) continue;
    const auto& form = insn.form<WgmmaForm>();
    const auto note = [&](const std::vector<Slot>& slots, const std::vector<uint32_t>& numbers) {
      if (slots.size() != numbers.size()) return;  // a result that nobody wants has a slot and no number
      for (size_t i = 0; i < slots.size(); ++i) {
        if (state.find_fenced(numbers[i]) != nullptr) continue;
        state.fenced.push_back({numbers[i], slots[i], {}});
        state.fenced_at[numbers[i]] = static_cast<uint32_t>(state.fenced.size());
      }
    };
    note(form.d, form.d_numbers);
    note(form.a, form.a_numbers);
  }
}

Step exec_fence(Warp& warp, const Instruction&, Mask active) {
  if (const Step step = warp.gather(active, kAllLanes); step != Step::kNext) return step;
  WgmmaWarp& state = state_of(warp);
  if (!std::exchange(state.has_fenced, true) && !warp.defined().empty()) note_products(warp, state);
  for (WgmmaWarp::Fenced& fenced : state.fenced)
    if (!state.is_in_flight(fenced.number)) note_fenced(warp, fenced);
  return Step::kNext;
}

Step exec_commit(Warp& warp, const Instruction&, Mask active) {
  if (const Step step = warp.gather(active, kAllLanes); step != Step::kNext) return step;
  WgmmaWarp& state = state_of(warp);
  state.groups.push_back({state.issued, std::move(state.open_registers)});
  state.open_registers.clear();
  return Step::kNext;
}

// Wait::a: groups that may stay pending.
bool is_wait_over(Warp& warp, const Wait& wait) {
  const Warpgroup& group = warpgroup_of(warp);
  const WgmmaWarp& state = state_of(warp);
  if (state.groups.size() <= wait.a) return true;
  return state.groups[state.groups.size() - 1 - wait.a].end <= group.done;
}
std::string describe_wait(Warp& warp, const Wait& wait) {
  const Warpgroup& group = warpgroup_of(warp);
  return fmt::format("for all but {} of its wgmma groups ({} products done, {} issued by this warp)", wait.a,
                     group.done, state_of(warp).issued);
}

Step exec_wait(Warp& warp, const Instruction& insn, Mask active) {
  if (const Step step = warp.gather(active, kAllLanes); step != Step::kNext) return step;
  Wait wait;
  wait.ready = is_wait_over;
  wait.describe = describe_wait;
  wait.a = static_cast<uint64_t>(insn.immediate);
  if (!is_wait_over(warp, wait)) return warp.wait_and_retry(active, wait);
  // A product belongs to the warp that came to it first.
  const int first = warp.index() / kWarpgroupWarps * kWarpgroupWarps;
  const int end = std::min(first + kWarpgroupWarps, static_cast<int>(warp.cta().warps().size()));
  WgmmaWarp& state = state_of(warp);
  if (state.groups.size() > wait.a)
    for (int w = first; w < end; ++w)
      warp.cta().cluster().observe().waited_for(
          warp.threads(insn, active), CompletedBy::kWgmmaGroup, w,
          static_cast<uint64_t>(state.groups[state.groups.size() - 1 - wait.a].end));
  while (state.groups.size() > wait.a) {
    const std::vector<uint32_t> registers = std::move(state.groups.front().registers);
    state.groups.pop_front();
    if (!warp.defined().empty()) release_registers(warp, insn, state, registers);
  }
  return Step::kNext;
}

// Decoding --------------------------------------------------------------------------------------------------

DataType operand_type(const Decoder& decoder, ScalarType type) {
  if (const std::optional<DataType> known = product_type(type)) return *known;
  if (type == ScalarType::b1) return uint32;  // words of bits
  decoder.refuse("no wgmma multiplies this type");
}

std::span<const ptx::Operand> elements_of(Decoder& decoder, const ptx::Operand& operand) {
  return operand.kind == ptx::OperandKind::vector ? decoder.elements(operand) : std::span(&operand, 1);
}

void decode_registers(Decoder& decoder, const ptx::Operand& operand, std::vector<Slot>& slots,
                      std::vector<uint32_t>& numbers) {
  for (const ptx::Operand& element : elements_of(decoder, operand))
    slots.push_back(decoder.late_destination(element, numbers));
}

void check_shape(const Decoder& decoder, const WgmmaForm& form) {
  const auto [m, n, k] = form.spec.shape;
  const bool integer = form.spec.d == int32;
  const int64_t bits = form.is_bits ? 1 : form.spec.a.bits();
  const bool n_ok = n >= 8 && n <= 256 && n % 8 == 0 && (!integer || n <= 32 || n % 16 == 0);
  if (m != 64 || !n_ok || k * bits != (form.spec.sparse ? 512 : 256))
    decoder.refuse(fmt::format("shape m{}n{}k{} does not exist for these types", m, n, k));
  const size_t registers = static_cast<size_t>(form.spec.d == float16 ? n / 4 : n / 2);
  if (form.d.size() != registers || (!form.a.empty() && form.a.size() != 4))
    decoder.refuse(fmt::format("D has {} registers, this shape takes {}; A in registers takes 4",
                               form.d.size(), registers));
}

bool decode_mma(Decoder& decoder, Instruction& out) {
  WgmmaForm form;
  const ScalarType d_type = decoder.type(0), a_type = decoder.type(1), b_type = decoder.type(2);
  const ptx::Shape shape = decoder.insn().shape();
  form.is_bits = a_type == ScalarType::b1;
  form.spec.instruction = arith::TensorInstruction::kWgmma;
  form.spec.sm = 90;
  form.spec.a = operand_type(decoder, a_type);
  form.spec.b = operand_type(decoder, b_type);
  form.spec.d = d_type == ScalarType::f16 ? float16 : d_type == ScalarType::s32 ? int32 : float32;
  form.spec.shape = {shape.m, shape.n, shape.k};
  form.spec.saturate = decoder.has(Mod::satfinite);
  form.spec.sparse = decoder.op() == Op::wgmma_mma_async_sp;

  decode_registers(decoder, decoder.operand(0), form.d, form.d_numbers);
  const bool a_in_registers = decoder.operand(1).kind == ptx::OperandKind::vector;
  if (a_in_registers)
    decode_registers(decoder, decoder.operand(1), form.a, form.a_numbers);
  else
    form.a_descriptor = decoder.source(1, ScalarType::b64);
  form.b_descriptor = decoder.source(2, ScalarType::b64);
  size_t next = 3;
  if (form.spec.sparse) {
    form.metadata = decoder.source(next++, ScalarType::b32);
    form.selector = static_cast<int>(decoder.immediate(next++, "sparsity selector"));
    const int count = selectors(shape.k, ptx::bits(a_type));
    if (form.selector < 0 || form.selector >= count)
      decoder.refuse(fmt::format("sparsity selector {}: these types take 0{}", form.selector,
                                 count == 1 ? "" : " or 1"));
  }
  if (decoder.operand(next).is_immediate()) {
    form.always_add = decoder.immediate(next++, "scale-d") != 0;
  } else {
    form.has_scale_d = true;
    form.scale_d = decoder.predicate(next++);
  }
  if (form.spec.d != int32) {
    form.spec.negate_a = decoder.immediate(next++, "imm-scale-a") < 0;
    form.spec.negate_b = decoder.immediate(next++, "imm-scale-b") < 0;
  }
  if (form.spec.a.bits() == 16) {
    if (!a_in_registers && decoder.immediate(next++, "imm-trans-a") != 0) form.a_major = Major::kMn;
    if (decoder.immediate(next++, "imm-trans-b") != 0) form.b_major = Major::kMn;
  }
  if (next != decoder.operand_count()) decoder.refuse("too many operands for these types");
  check_shape(decoder, form);
  out.extra = decoder.keep(std::move(form));
  set_body(out, exec_mma);
  return true;
}

}  // namespace

bool decode_wgmma(Decoder& decoder, Instruction& out) {
  switch (decoder.op()) {
    case Op::wgmma_mma_async:
    case Op::wgmma_mma_async_sp:
      return decode_mma(decoder, out);
    case Op::wgmma_fence:
      set_body(out, exec_fence);
      return true;
    case Op::wgmma_commit_group:
      set_body(out, exec_commit);
      return true;
    case Op::wgmma_wait_group:
      out.immediate = decoder.immediate(0, "number of groups");
      set_body(out, exec_wait);
      return true;
    default:
      return false;
  }
}

}  // namespace imbrex::vgpu
