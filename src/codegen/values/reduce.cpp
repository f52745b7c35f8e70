// SPDX-License-Identifier: Apache-2.0
// reduce: within each thread, then by shuffles within warps, then through shared memory across them.
//
// Every step leaves the result in all threads that took part, so nothing has to be sent back. 16-bit floats
// are combined in float32 and rounded once.
#include "codegen/values/reduce.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "codegen/threads.h"
#include "codegen/tile.h"
#include "codegen/values/combine.h"
#include "codegen/values/scalar.h"
#include "codegen/values/shuffle.h"
#include "codegen/values/words.h"
#include "imbrex/core/error.h"
#include "layout/queries.h"

namespace imbrex::codegen {

using ir::Opcode;

namespace {

/// The digits of the thread number along the reduced axis, cut into what a warp's shuffles reach and the rest.
struct AxisDigits {
  int64_t lane_mask = 0;  // XOR masks to shuffle by, combined
  std::vector<Digit> across;
};

AxisDigits axis_digits(const IndexDigits& digits, int axis, const Group& group) {
  AxisDigits out;
  for (const Digit& d : digits.threads) {
    if (d.dim != axis) continue;
    const auto [lanes, across] = split_by_lanes(d, group);
    if (lanes) out.lane_mask |= (lanes->extent - 1) * lanes->divisor;
    if (across) out.across.push_back(*across);
  }
  return out;
}

class Reduction {
 public:
  Reduction(Generator& g, const ir::Op& op)
      : g_(g),
        op_(op),
        from_(g.get<RegisterTensor>(op.operands[0])),
        axis_(static_cast<int>(op.int_attr("axis"))),
        code_(combining_op(op.string_attr("kind"))),
        type_(working_type(from_.dtype)),
        tile_(g, op, from_.layout, from_.group) {}

  void run() {
    std::vector<Operand> sums = in_thread();
    const AxisDigits digits = axis_digits(tile_.digits(), axis_, from_.group);
    if (digits.lane_mask || !digits.across.empty()) leave_out_idle_threads(sums);
    for (Operand& s : sums) s = across_lanes(s, digits.lane_mask);
    if (!digits.across.empty()) across_warps(sums, digits.across);
    finish(sums);
  }

 private:
  Operand combine(const Operand& a, const Operand& b) {
    const Operand in[] = {a, b};
    return scalar_operation(g_, op_, code_, type_, in);
  }

  /// One value for every register of the result: the elements this thread holds.
  std::vector<Operand> in_thread() {
    const layout::Layout reduced = from_.layout.reduce(axis_, true);
    const std::optional<std::vector<int64_t>> map = layout::register_map(reduced, from_.layout);
    if (!map) throw InternalError("codegen: reduce: no register map to " + reduced.to_string());
    const std::vector<Operand> elements = unpack(g_, from_.dtype, from_.words, from_.layout.registers());
    std::vector<Operand> sums(reduced.registers(), ptx::sink());
    for (size_t r = 0; r < map->size(); ++r) {
      const int64_t target = (*map)[r];
      if (target < 0 || !tile_.register_index(static_cast<int64_t>(r))) continue;
      Operand value = convert(g_, op_, elements[r], from_.dtype, type_);
      const Operand inside = tile_.in_shape(static_cast<int64_t>(r));
      if (!inside.is_immediate()) {
        const Operand in[] = {inside, value, identity(code_, type_)};
        value = scalar_operation(g_, op_, Opcode::kSelect, type_, in);
      }
      sums[target] = sums[target].kind == ptx::OperandKind::sink ? value : combine(sums[target], value);
    }
    for (Operand& s : sums)
      if (s.kind == ptx::OperandKind::sink) s = identity(code_, type_);
    return sums;
  }

  void leave_out_idle_threads(std::vector<Operand>& sums) {
    const Operand holds = holds_elements(g_, from_.group, tile_.digits(), false);
    if (holds.is_immediate()) return;
    for (Operand& s : sums) {
      const Operand in[] = {holds, s, identity(code_, type_)};
      s = scalar_operation(g_, op_, Opcode::kSelect, type_, in);
    }
  }

  Operand shuffle(const Operand& value, int64_t lane_mask) {
    return codegen::shuffle(g_, Mod::bfly, register_type(type_), value, lane_mask, 31,
                            members_of(from_.group));
  }

  Operand across_lanes(Operand value, int64_t lane_mask) {
    // Integers over a whole warp take one instruction.
    if (lane_mask == 31 && from_.group.threads >= 32 && (type_ == int32 || type_ == uint32)) {
      const Mod words[] = {Mod::add, Mod::min, Mod::max, Mod::and_, Mod::or_};
      const Opcode codes[] = {Opcode::kAdd, Opcode::kMin, Opcode::kMax, Opcode::kAnd, Opcode::kOr};
      for (int i = 0; i < 5; ++i)
        if (codes[i] == code_) {
          const ScalarType type = i >= 3 ? ScalarType::b32 : arithmetic_type(type_);
          return g_.e().make(ScalarType::b32, Op::redux_sync, {words[i], type},
                             {g_.e().to_register(ScalarType::b32, value), -1});
        }
    }
    for (int64_t bit = 16; bit > 0; bit /= 2)
      if (lane_mask & bit) value = combine(value, shuffle(value, bit));
    return value;
  }

  /// Every thread writes its part, then reads those of the threads that differ in the axis' digits.
  void across_warps(std::vector<Operand>& sums, const std::vector<Digit>& digits) {
    Integers& ints = g_.ints();
    Emitter& e = g_.e();
    const Group& group = from_.group;
    const int64_t bytes = register_type(type_) == ScalarType::b64 || type_ == float64 ? 8 : 4;
    const ScalarType word = bytes == 8 ? ScalarType::b64 : ScalarType::b32;
    const int64_t scratch = g_.scratch_offset(group);
    const int64_t round = std::max<int64_t>(1, kScratchBytes / (group.threads * bytes));
    const Integer own =
        ints.add(g_.shared_base(), ints.mul(g_.thread_index(group), Integers::constant(bytes)));
    // The thread that has zeros for the axis' digits.
    std::vector<int64_t> weights;
    for (const Digit& d : digits) weights.push_back(d.divisor * bytes);
    const Integer first = ints.sub(own, thread_sum(g_, group, digits, weights));
    // Threads that hold nothing have no such partner; they read from the start, whatever is there.
    Reg partner = first.value.reg();
    const Operand holds = holds_elements(g_, group, tile_.digits(), false);
    if (holds.is_reg())
      partner =
          e.make(ScalarType::b32, Op::selp, {ScalarType::b32}, {partner, g_.shared_base().value, holds});
    const std::vector<int64_t> offsets =
        ReductionAcrossWarps{.word_bytes = bytes, .across = digits}.partner_offsets();
    for (size_t begin = 0; begin < sums.size(); begin += round) {
      const size_t end = std::min(sums.size(), begin + round);
      g_.synchronize(group, op_);  // whoever used the scratch space before is done
      for (size_t i = begin; i < end; ++i)
        e.emit(
            Op::st, {Mod::shared, word},
            {ptx::address(own.value.reg(), scratch + static_cast<int64_t>(i - begin) * group.threads * bytes),
             e.to_register(register_type(type_), sums[i])});
      g_.synchronize(group, op_);
      for (size_t i = begin; i < end; ++i) {
        std::optional<Operand> total;
        for (int64_t o : offsets) {
          const Reg part = e.make(
              register_type(type_), Op::ld, {Mod::shared, word},
              {ptx::address(partner, scratch + static_cast<int64_t>(i - begin) * group.threads * bytes + o)});
          total = total ? combine(*total, part) : Operand(part);
        }
        sums[i] = *total;
      }
    }
  }

  void finish(const std::vector<Operand>& sums) {
    const layout::Layout reduced = from_.layout.reduce(axis_, op_.bool_attr("keep", false));
    RegisterTensor result{from_.dtype, reduced, from_.group, {}};
    const int per_word = elements_per_word(from_.dtype);
    for (size_t i = 0; i < sums.size(); i += per_word) {
      std::vector<Operand> elements;
      for (size_t j = i; j < std::min(sums.size(), i + per_word); ++j)
        elements.push_back(convert(g_, op_, sums[j], type_, from_.dtype));
      result.words.push_back(pack(g_, from_.dtype, elements));
    }
    g_.bind(op_.result(), in_layout(g_, op_, std::move(result), g_.layout_of(op_.result())));
  }

  Generator& g_;
  const ir::Op& op_;
  const RegisterTensor& from_;
  int axis_;
  Opcode code_;
  DataType type_;
  Tile tile_;
};

int64_t reduce_scratch(const ir::Op& op, const Group& group) {
  const std::optional<ReductionAcrossWarps> r = reduction_across_warps(op, group);
  return r ? std::min(r->round, r->values) * group.threads * r->word_bytes : 0;
}

}  // namespace

std::vector<int64_t> ReductionAcrossWarps::partner_offsets() const {
  std::vector<int64_t> offsets = {0};
  for (const Digit& d : across) {
    std::vector<int64_t> more;
    for (int64_t o : offsets)
      for (int64_t j = 0; j < d.extent; ++j) more.push_back(o + j * d.divisor * word_bytes);
    offsets = std::move(more);
  }
  return offsets;
}

std::optional<ReductionAcrossWarps> reduction_across_warps(const ir::Op& op, const Group& group) {
  const ir::Type& from = op.operands[0]->type;
  if (!from.layout) return std::nullopt;
  const std::optional<IndexDigits> digits = index_digits(*from.layout);
  if (!digits) return std::nullopt;
  const int axis = static_cast<int>(op.int_attr("axis"));
  ReductionAcrossWarps r;
  r.across = axis_digits(*digits, axis, group).across;
  if (r.across.empty()) return std::nullopt;
  r.values = from.layout->reduce(axis, true).registers();
  r.word_bytes = working_type(from.dtype).bits() == 64 ? 8 : 4;
  r.round = std::max<int64_t>(1, kScratchBytes / (group.threads * r.word_bytes));
  return r;
}

void emit_Reduce(Generator& g, const ir::Op& op) { Reduction(g, op).run(); }

int64_t scratch_bytes(const ir::Op& op, const Group& group) {
  switch (op.code) {
    case Opcode::kReduce:
      return reduce_scratch(op, group);
    case Opcode::kRelayout:
      return relayout_scratch(op);
    case Opcode::kScan:
      return scan_scratch(op, group);
    case Opcode::kExchange:
      return exchange_scratch(op, group);
    case Opcode::kPrintTensor:
      return print_scratch(op);
    case Opcode::kItem:
    case Opcode::kAtomicItem:
      return item_scratch(op, group);
    case Opcode::kAtomic:
      return atomic_scratch(op);
    default:
      return 0;
  }
}

}  // namespace imbrex::codegen
