// SPDX-License-Identifier: Apache-2.0
// scan: digit by digit of the index along the axis, from the lowest up.
//
// Elements whose indices agree in all higher digits are a block. A thread knows, of each block that it has part in, the
// block's total, and for each of its elements the combination of what comes before it in the block. A digit of the
// register number joins blocks of one thread, one of the lane number those of threads of a warp by shuffles, and the
// rest those of warps through shared memory.
#include <algorithm>
#include <map>

#include "codegen/threads.h"
#include "codegen/tile.h"
#include "codegen/values/combine.h"
#include "codegen/values/scalar.h"
#include "codegen/values/shuffle.h"
#include "codegen/values/words.h"

namespace imbrex::codegen {

using ir::Opcode;
using layout::Axis;

namespace {

/// One digit of the index: of the register number, of the lane, or of what is left of the thread number.
struct Step {
  enum { kRegisters, kLanes, kAcross } where;
  Digit digit;
};

std::vector<Step> steps_along(const IndexDigits& digits, int axis, const Group& group) {
  std::vector<Step> steps;
  for (const Digit& d : digits.registers)
    if (d.dim == axis) steps.push_back({Step::kRegisters, d});
  for (const Digit& d : digits.threads) {
    if (d.dim != axis) continue;
    const auto [lanes, across] = split_by_lanes(d, group);
    if (lanes) steps.push_back({Step::kLanes, *lanes});
    if (across) steps.push_back({Step::kAcross, *across});
  }
  std::ranges::sort(steps, {}, [](const Step& s) { return s.digit.weight; });
  return steps;
}

int64_t word_bytes(DataType dtype) { return working_type(dtype).bits() == 64 ? 8 : 4; }

/// Words that each thread of the group puts into the scratch space at a time.
int64_t words_per_round(DataType dtype, const Group& group) {
  return std::max<int64_t>(1, kScratchBytes / (group.threads * word_bytes(dtype)));
}

class Scan {
 public:
  Scan(Generator& g, const ir::Op& op)
      : g_(g),
        op_(op),
        from_(g.get<RegisterTensor>(op.operands[0])),
        code_(combining_op(op.string_attr("kind"))),
        type_(working_type(from_.dtype)),
        tile_(g, op, from_.layout, from_.group),
        holds_(holds_elements(g, from_.group, tile_.digits(), false)) {}

  void run() {
    begin();
    const std::vector<Step> steps =
        steps_along(tile_.digits(), static_cast<int>(op_.int_attr("axis")), from_.group);
    for (size_t i = 0; i < steps.size(); ++i) {
      const bool is_last = i + 1 == steps.size();
      if (steps[i].where == Step::kRegisters) join_registers(steps[i].digit);
      if (steps[i].where == Step::kLanes)
        for (Block& block : blocks_) join_lanes(block, steps[i].digit, is_last);
      if (steps[i].where == Step::kAcross) join_across(steps[i].digit);
    }
    finish();
  }

 private:
  struct Block {
    std::vector<int64_t> registers;  // the first has a zero for every digit that is done
    Operand total;
  };

  Operand combine(const Operand& a, const Operand& b) {
    const Operand in[] = {a, b};
    return scalar_operation(g_, op_, code_, type_, in);
  }
  Operand pick(const Operand& condition, const Operand& a, const Operand& b) {
    const Operand in[] = {condition, a, b};
    return scalar_operation(g_, op_, Opcode::kSelect, type_, in);
  }
  Integer digit_of_thread(const Digit& d) {
    Integer digit = g_.ints().div(g_.thread_index(from_.group), d.divisor);
    return d.modulus ? g_.ints().rem(digit, d.modulus) : digit;
  }
  /// True where the thread's digit is at least n.
  Operand is_at_least(const Digit& d, int64_t n) {
    return g_.ints().less(Integers::constant(n - 1), digit_of_thread(d));
  }

  void begin() {
    const std::vector<Operand> elements = unpack(g_, from_.dtype, from_.words, from_.layout.registers());
    prefixes_.resize(elements.size());
    const bool is_exclusive = op_.bool_attr("exclusive", false);
    for (int64_t r = 0; r < from_.layout.registers(); ++r) {
      if (!tile_.register_index(r)) continue;
      Operand value = convert(g_, op_, elements[r], from_.dtype, type_);
      const Operand counts = g_.ints().both(holds_, tile_.in_shape(r), 0);
      if (!counts.is_immediate()) value = pick(counts, value, identity(code_, type_));
      blocks_.push_back({{r}, value});
      if (!is_exclusive) prefixes_[r] = value;
    }
  }

  /// What comes before the whole block comes before each of its elements.
  void prepend(const Block& block, const Operand& before) {
    for (int64_t r : block.registers) prefixes_[r] = prefixes_[r] ? combine(before, *prefixes_[r]) : before;
  }

  void join_registers(const Digit& d) {
    std::map<int64_t, std::map<int64_t, Block>> groups;  // by the other digits, then by this one
    for (Block& block : blocks_) {
      const int64_t first = block.registers.front(), digit = d.of(first);
      groups[first - digit * d.divisor].emplace(digit, std::move(block));
    }
    blocks_.clear();
    for (auto& [first, parts] : groups) {
      Block joined;
      for (auto& [digit, part] : parts) {
        if (joined.registers.empty()) {
          joined = std::move(part);
          continue;
        }
        prepend(part, joined.total);
        joined.registers.insert(joined.registers.end(), part.registers.begin(), part.registers.end());
        joined.total = combine(joined.total, part.total);
      }
      blocks_.push_back(std::move(joined));
    }
  }

  void join_lanes(Block& block, const Digit& d, bool is_last) {
    const int64_t members = members_of(from_.group);
    const ScalarType reg = register_type(type_);
    const auto from_below = [&](const Operand& value, int64_t distance) {
      return shuffle(g_, Mod::up, reg, value, distance * d.divisor, 0, members);
    };
    Operand sum = block.total;  // of the lanes up to this one
    for (int64_t distance = 1; distance < d.extent; distance *= 2)
      sum = pick(is_at_least(d, distance), combine(from_below(sum, distance), sum), sum);
    prepend(block, pick(is_at_least(d, 1), from_below(sum, 1), identity(code_, type_)));
    if (is_last) return;
    const Reg lane = g_.e().make(ScalarType::b32, Op::mov, {ScalarType::u32}, {ptx::SpecialReg::laneid});
    const Reg last =
        g_.e().make(ScalarType::b32, Op::or_, {ScalarType::b32}, {lane, (d.extent - 1) * d.divisor});
    block.total = shuffle(g_, Mod::idx, reg, sum, last, 31, members);
  }

  /// Every thread writes its totals, then reads those of the threads that differ in the digit, in order.
  void join_across(const Digit& d) {
    Integers& ints = g_.ints();
    Emitter& e = g_.e();
    const Group& group = from_.group;
    const int64_t bytes = word_bytes(from_.dtype), scratch = g_.scratch_offset(group),
                  round = words_per_round(from_.dtype, group);
    const ScalarType word = bytes == 8 ? ScalarType::b64 : ScalarType::b32, reg = register_type(type_);
    const Integer own =
        ints.add(g_.shared_base(), ints.mul(g_.thread_index(group), Integers::constant(bytes)));
    const Integer first = ints.sub(own, ints.mul(digit_of_thread(d), Integers::constant(d.divisor * bytes)));
    // Threads that hold nothing may have no such partners; they read from the start, whatever is there.
    Reg partner = e.to_register(ScalarType::b32, first.value);
    if (holds_.is_reg())
      partner =
          e.make(ScalarType::b32, Op::selp, {ScalarType::b32}, {partner, g_.shared_base().value, holds_});
    const auto slot = [&](Reg base, size_t i, int64_t digit) {
      return ptx::address(base,
                          scratch + (static_cast<int64_t>(i) * group.threads + digit * d.divisor) * bytes);
    };
    const Reg own_address = e.to_register(ScalarType::b32, own.value);
    for (size_t begin = 0; begin < blocks_.size(); begin += round) {
      const size_t end = std::min(blocks_.size(), begin + round);
      g_.synchronize(group, op_);  // whoever used the scratch space before is done
      for (size_t i = begin; i < end; ++i)
        e.emit(Op::st, {Mod::shared, word},
               {slot(own_address, i - begin, 0), e.to_register(reg, blocks_[i].total)});
      g_.synchronize(group, op_);
      for (size_t i = begin; i < end; ++i) {
        Operand sum, before = identity(code_, type_);
        for (int64_t digit = 0; digit < d.extent; ++digit) {
          const Reg part = e.make(reg, Op::ld, {Mod::shared, word}, {slot(partner, i - begin, digit)});
          if (digit > 0) before = pick(is_at_least(d, digit), sum, before);
          sum = digit == 0 ? Operand(part) : combine(sum, part);
        }
        prepend(blocks_[i], before);
        blocks_[i].total = sum;
      }
    }
  }

  void finish() {
    const int64_t count = from_.layout.registers();
    std::vector<Operand> elements(count, ptx::sink());
    for (const Block& block : blocks_)
      for (int64_t r : block.registers)
        elements[r] = convert(g_, op_, prefixes_[r].value_or(identity(code_, type_)), type_, from_.dtype);
    for (Operand& e : elements)
      if (e.kind == ptx::OperandKind::sink) e = Operand(0);
    RegisterTensor result{from_.dtype, from_.layout, from_.group, {}};
    const int per_word = elements_per_word(from_.dtype);
    for (int64_t r = 0; r < count; r += per_word)
      result.words.push_back(
          pack(g_, from_.dtype, std::span(elements).subspan(r, std::min<int64_t>(per_word, count - r))));
    g_.bind(op_.result(), in_layout(g_, op_, std::move(result), g_.layout_of(op_.result())));
  }

  Generator& g_;
  const ir::Op& op_;
  const RegisterTensor& from_;
  Opcode code_;
  DataType type_;
  Tile tile_;
  Operand holds_;
  std::vector<Block> blocks_;
  std::vector<std::optional<Operand>> prefixes_;  // by register
};

}  // namespace

int64_t scan_scratch(const ir::Op& op, const Group& group) {
  const ir::Type& from = op.operands[0]->type;
  const std::optional<IndexDigits> digits = from.layout ? index_digits(*from.layout) : std::nullopt;
  if (!digits) return 0;
  for (const Step& step : steps_along(*digits, static_cast<int>(op.int_attr("axis")), group))
    if (step.where == Step::kAcross)
      return std::min(words_per_round(from.dtype, group), from.layout->registers()) * group.threads *
             word_bytes(from.dtype);
  return 0;
}

void emit_Scan(Generator& g, const ir::Op& op) { Scan(g, op).run(); }

}  // namespace imbrex::codegen
