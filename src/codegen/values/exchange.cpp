// SPDX-License-Identifier: Apache-2.0
// exchange: element i takes element i xor a power of two. The bit belongs to a digit of the register number, of the
// lane, or of the warp: registers are renamed, shuffled, or go through shared memory.
#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "codegen/threads.h"
#include "codegen/tile.h"
#include "codegen/values/combine.h"
#include "codegen/values/shuffle.h"
#include "codegen/values/words.h"

namespace imbrex::codegen {

using layout::Axis;

namespace {

/// The digit that the bit of the index belongs to, and the bit in it; null where it belongs to none alone.
const Digit* digit_of_bit(const IndexDigits& digits, int axis, int64_t mask) {
  for (const auto* list : {&digits.registers, &digits.threads})
    for (const Digit& d : *list)
      if (d.dim == axis && d.weight <= mask && mask < d.weight * d.extent)
        return std::has_single_bit(static_cast<uint64_t>(d.weight)) &&
                       std::has_single_bit(static_cast<uint64_t>(d.extent))
                   ? &d
                   : nullptr;
  return nullptr;
}

int64_t word_bytes(DataType dtype) { return dtype.bits() == 64 ? 8 : 4; }

int64_t words_per_round(DataType dtype, const Group& group) {
  return std::max<int64_t>(1, kScratchBytes / (group.threads * word_bytes(dtype)));
}

/// The distance of partners in threads.
int64_t thread_distance(const Digit& d, int64_t mask) { return mask / d.weight * d.divisor; }

bool is_in_warp(const Digit& d, int64_t mask, const Group& group) {
  const int64_t distance = thread_distance(d, mask);
  return distance < 32 && std::has_single_bit(static_cast<uint64_t>(distance)) && group.begin % 32 == 0;
}

class Exchange {
 public:
  Exchange(Generator& g, const ir::Op& op)
      : g_(g),
        op_(op),
        from_(g.get<RegisterTensor>(op.operands[0])),
        mask_(op.int_attr("mask")),
        tile_(g, op, from_.layout, from_.group),
        digit_(digit_of_bit(tile_.digits(), static_cast<int>(op.int_attr("axis")), mask_)) {}

  void run() {
    if (!digit_)
      g_.fail(op_, fmt::format("bit {} of the index is in no digit of the layout alone", mask_),
              {"layout  " + from_.layout.to_string()}, "run it in a power of two of warps");
    RegisterTensor result = from_;
    if (digit_->axis == Axis::kRegister)
      result.words = gather_words(g_, from_, renamed());
    else if (is_in_warp(*digit_, mask_, from_.group))
      for (Operand& word : result.words)
        word = shuffle(g_, Mod::bfly, word_type(from_.dtype), word, thread_distance(*digit_, mask_), 31,
                       members_of(from_.group));
    else
      through_memory(result.words);
    g_.bind(op_.result(), in_layout(g_, op_, std::move(result), g_.layout_of(op_.result())));
  }

 private:
  std::vector<int64_t> renamed() const {
    std::vector<int64_t> map(from_.layout.registers(), -1);
    for (int64_t r = 0; r < from_.layout.registers(); ++r) {
      if (!tile_.register_index(r)) continue;
      const int64_t digit = digit_->of(r);
      map[r] = r + ((digit ^ (mask_ / digit_->weight)) - digit) * digit_->divisor;
    }
    return map;
  }

  /// The address of the partner's words: a bit of the digit set or cleared.
  Reg partner_address(const Integer& own, int64_t bytes) {
    Integers& ints = g_.ints();
    const int64_t bit = mask_ / digit_->weight, distance = thread_distance(*digit_, mask_) * bytes;
    Integer of = ints.div(g_.thread_index(from_.group), digit_->divisor * bit);
    const Integer is_set = ints.rem(of, 2);
    const Integer moved = ints.add(own, Integers::constant(distance));
    Reg partner = g_.e().to_register(
        ScalarType::b32, ints.sub(moved, ints.mul(is_set, Integers::constant(2 * distance))).value);
    const Operand holds = holds_elements(g_, from_.group, tile_.digits(), false);
    if (holds.is_reg())  // others read from the start, whatever is there
      partner =
          g_.e().make(ScalarType::b32, Op::selp, {ScalarType::b32}, {partner, g_.shared_base().value, holds});
    return partner;
  }

  void through_memory(std::vector<Operand>& words) {
    Integers& ints = g_.ints();
    Emitter& e = g_.e();
    const Group& group = from_.group;
    const int64_t bytes = word_bytes(from_.dtype), scratch = g_.scratch_offset(group),
                  round = words_per_round(from_.dtype, group);
    const ScalarType memory = bytes == 8 ? ScalarType::b64 : ScalarType::b32,
                     reg = from_.dtype.is_bool() ? ScalarType::b32 : word_type(from_.dtype);
    const Integer own =
        ints.add(g_.shared_base(), ints.mul(g_.thread_index(group), Integers::constant(bytes)));
    const Reg own_address = e.to_register(ScalarType::b32, own.value), partner = partner_address(own, bytes);
    const auto slot = [&](Reg base, size_t i) {
      return ptx::address(base, scratch + static_cast<int64_t>(i) * group.threads * bytes);
    };
    for (size_t begin = 0; begin < words.size(); begin += round) {
      const size_t end = std::min(words.size(), begin + round);
      g_.synchronize(group, op_);
      for (size_t i = begin; i < end; ++i) {
        Operand word = words[i];
        if (from_.dtype.is_bool() && !word.is_immediate())
          word = e.make(ScalarType::b32, Op::selp, {ScalarType::b32}, {1, 0, word});
        e.emit(Op::st, {Mod::shared, memory}, {slot(own_address, i - begin), e.to_register(reg, word)});
      }
      g_.synchronize(group, op_);
      for (size_t i = begin; i < end; ++i) {
        words[i] = e.make(reg, Op::ld, {Mod::shared, memory}, {slot(partner, i - begin)});
        if (from_.dtype.is_bool())
          words[i] = e.make(ScalarType::pred, Op::setp, {Mod::ne, ScalarType::u32}, {words[i], 0});
      }
    }
  }

  Generator& g_;
  const ir::Op& op_;
  const RegisterTensor& from_;
  int64_t mask_;
  Tile tile_;
  const Digit* digit_;
};

}  // namespace

int64_t exchange_scratch(const ir::Op& op, const Group& group) {
  const ir::Type& from = op.operands[0]->type;
  const std::optional<IndexDigits> digits = from.layout ? index_digits(*from.layout) : std::nullopt;
  if (!digits) return 0;
  const int64_t mask = op.int_attr("mask");
  const Digit* digit = digit_of_bit(*digits, static_cast<int>(op.int_attr("axis")), mask);
  if (!digit || digit->axis == Axis::kRegister || is_in_warp(*digit, mask, group)) return 0;
  const int64_t words =
      (from.layout->registers() + elements_per_word(from.dtype) - 1) / elements_per_word(from.dtype);
  return std::min(words_per_round(from.dtype, group), words) * group.threads * word_bytes(from.dtype);
}

void emit_Exchange(Generator& g, const ir::Op& op) { Exchange(g, op).run(); }

}  // namespace imbrex::codegen
