// SPDX-License-Identifier: Apache-2.0
// Which thread am I: thread numbers, warps, election, and sums over thread digits.
#include "codegen/threads.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "imbrex/core/error.h"

namespace imbrex::codegen {

namespace {
constexpr int kNamedBarriers = 16;

bool is_power_of_two(int64_t x) { return x > 0 && std::has_single_bit(static_cast<uint64_t>(x)); }
int log2_of(int64_t x) { return std::countr_zero(static_cast<uint64_t>(x)); }
}  // namespace

Integer Generator::thread_index(const Group& group) {
  if (group.threads == 1) return Integers::constant(0);
  const Operand tid = emitter_.hoisted(integers_.name(kThreadId, 0), 0, [&] {
    return Operand(emitter_.make(ScalarType::b32, Op::mov, {ScalarType::u32}, {ptx::SpecialReg::tid_x}));
  });
  const Integer all = integers_.leaf(kThreadId, 0, tid, false, Range::between(0, function_.threads() - 1), 0);
  Integer index = integers_.sub(all, Integers::constant(group.begin));
  index.known = Range::between(0, group.threads - 1);  // for the threads of the group
  return index;
}

Integer Generator::warp_index() {
  return integers_.leaf(kThreadId, 1, warp_index_, false, Range::between(0, function_.warps - 1), 0);
}

Operand Generator::is_warp(int64_t number) {
  return emitter_.hoisted(integers_.name(kIsWarp, number), 0, [&] {
    const Reg warp = emitter_.to_register(ScalarType::b32, warp_index().value);
    return Operand(emitter_.make(ScalarType::pred, Op::setp, {Mod::eq, ScalarType::u32}, {warp, number}));
  });
}

Reg Generator::elected() {
  const int64_t key = integers_.name(kElected, group().begin);
  return emitter_
      .hoisted(key, group().depth,
               [&] {
                 const Reg p = emitter_.reg(ScalarType::pred);
                 if (arch_ >= 90) {
                   emitter_.emit(Op::elect_sync, {}, {emitter_.builder().pair(ptx::sink(), p), -1});
                 } else {
                   const Reg lane =
                       emitter_.make(ScalarType::b32, Op::mov, {ScalarType::u32}, {ptx::SpecialReg::laneid});
                   emitter_.emit(Op::setp, {Mod::eq, ScalarType::u32}, {p, lane, 0});
                 }
                 return Operand(p);
               })
      .reg();
}

void Generator::synchronize(const Group& group, const ir::Op& op) {
  if (group.threads == 1) return;
  if (group.is_in_one_warp()) {
    const uint32_t lanes = group.threads == 32 ? ~0u : ((1u << group.threads) - 1) << (group.begin % 32);
    emitter_.emit(Op::bar_warp_sync, {}, {static_cast<int64_t>(static_cast<int32_t>(lanes))});
    return;
  }
  if (group.begin == 0 && group.threads == function_.threads()) {
    emitter_.emit(Op::bar_sync, {}, {0});
    return;
  }
  if (!group.is_whole_warps())
    fail(op,
         fmt::format("threads {} ... {} do not make up whole warps", group.begin,
                     group.begin + group.threads - 1),
         {}, "synchronise a thread group of whole warps, or one inside a single warp");
  // Numbers must be constants: a register would reserve all 16.
  const int number =
      barriers_.try_emplace({group.begin, group.threads}, static_cast<int>(barriers_.size()) + 1)
          .first->second;
  if (number >= kNamedBarriers)
    fail(op, fmt::format("more than {} different thread groups synchronise", kNamedBarriers - 1));
  emitter_.emit(Op::bar_sync, {}, {number, group.threads});
}

Integer thread_sum(Generator& g, const Group& group, std::span<const Digit> digits,
                   std::span<const int64_t> strides) {
  Integers& ints = g.ints();
  const Integer t = g.thread_index(group);
  Integer sum = Integers::constant(0);
  // Digits that are bit fields move by masking and one shift; fields that move by the same distance move
  // together.
  std::map<int, int64_t> fields;
  for (size_t i = 0; i < digits.size(); ++i) {
    const Digit& d = digits[i];
    const int64_t stride = strides[i];
    if (stride == 0) continue;
    const int64_t modulus = d.modulus ? d.modulus : std::bit_ceil(static_cast<uint64_t>(d.extent));
    if (is_power_of_two(d.divisor) && is_power_of_two(modulus) && is_power_of_two(stride)) {
      fields[log2_of(stride) - log2_of(d.divisor)] |= (modulus - 1) * d.divisor;
      continue;
    }
    Integer digit = ints.div(t, d.divisor);
    if (d.modulus) digit = ints.rem(digit, d.modulus);
    sum = ints.add(sum, ints.mul(digit, Integers::constant(stride)));
  }
  for (const auto& [shift, mask] : fields) {
    const Integer field = ints.and_mask(t, mask);
    sum = ints.add(sum, shift >= 0 ? ints.shift_left(field, shift) : ints.shift_right(field, -shift));
  }
  return sum;
}

Operand holds_elements(Generator& g, const Group& group, const IndexDigits& digits, bool first_copy) {
  Integers& ints = g.ints();
  const Integer t = g.thread_index(group);
  Operand holds = 1;
  auto require = [&](const Operand& p) { holds = ints.both(holds, p, 0); };
  if (digits.thread_extent < group.threads) require(ints.less(t, Integers::constant(digits.thread_extent)));
  for (const Digit& d : digits.threads) {
    const bool is_copy = d.dim < 0 && first_copy;
    if (!is_copy && (!d.modulus || d.modulus == d.extent)) continue;
    Integer digit = ints.div(t, d.divisor);
    if (d.modulus) digit = ints.rem(digit, d.modulus);
    require(ints.less(digit, Integers::constant(is_copy ? 1 : d.extent)));
  }
  // Threads between the strides hold nothing.
  if (!digits.threads.empty() && digits.threads.front().divisor > 1)
    require(ints.less(ints.rem(t, digits.threads.front().divisor), Integers::constant(1)));
  return holds;
}

IndexDigits digits_or_fail(Generator& g, const ir::Op& op, const layout::Layout& layout) {
  std::optional<IndexDigits> digits = index_digits(layout);
  if (!digits)
    g.fail(op, "the register layout's strides do not nest", {"layout  " + layout.to_string()},
           "annotate a layout made of spatial and local parts");
  return *std::move(digits);
}

void emit_Sync(Generator& g, const ir::Op& op) { g.synchronize(g.group(), op); }

}  // namespace imbrex::codegen
