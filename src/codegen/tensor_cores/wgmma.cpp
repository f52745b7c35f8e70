// SPDX-License-Identifier: Apache-2.0
// wgmma: one op is as many instructions as its tile has.
//
// The accumulator is a variable, whose registers never change: an instruction names its own, and nothing
// moves. Descriptors are a base, made in front of the loops, plus one constant per instruction, added where
// it is used: hoisted too, they would take more registers than there are uniform ones.
#include <fmt/format.h>

#include <algorithm>

#include "codegen/tensor_cores/matrix_descriptor.h"
#include "codegen/values/words.h"
#include "imbrex/core/error.h"
#include "layout/registers.h"

namespace imbrex::codegen {

using layout::Swizzle;

namespace {

constexpr int64_t kRows = 64, kThreads = 128, kStepBits = 256;  // of one instruction: m, warp group, k

/// Bits 63:62.
uint64_t swizzle_bits(Swizzle swizzle) {
  switch (swizzle.mode) {
    case Swizzle::kNone:
      return 0;
    case Swizzle::k128B:
      return uint64_t{1} << 62;
    case Swizzle::k64B:
      return uint64_t{2} << 62;
    case Swizzle::k32B:
      return uint64_t{3} << 62;
    default:
      throw InternalError("codegen: no descriptor has this swizzle");
  }
}

class WgmmaMma {
 public:
  WgmmaMma(Generator& g, const ir::Op& op)
      : g_(g),
        op_(op),
        d_(g.get<RegisterTensor>(op.operands[2])),
        a_type_(op.operands[0]->type.dtype),
        b_type_(op.operands[1]->type.dtype),
        groups_(g.group().threads / kThreads),
        blocks_(d_.layout.shape()[0] / kRows / groups_),
        n_(layout::wgmma_columns(d_.layout.shape()[1], a_type_.is_integer())),
        instructions_(d_.layout.shape()[1] / n_),
        k_(kStepBits / a_type_.bits()),
        steps_(op.operands[0]->type.shape[1] / k_) {}

  void run() {
    check_accumulator();
    const bool a_is_shared = op_.operands[0]->type.kind == ir::TypeKind::kShared;
    if (a_is_shared)
      describe_a();
    else
      take_a();
    describe_b();
    const Operand scale_d = g_.scalar(op_.operands[3]);
    if (a_type_.is_integer() && a_type_ != b_type_)  // came later than the others
      g_.e().module().version = std::max(g_.e().module().version, 84);
    // Instructions that share the columns of B follow one another.
    for (int64_t step = 0; step < steps_; ++step)
      for (int64_t column = 0; column < instructions_; ++column)
        for (int64_t block = 0; block < blocks_; ++block)
          emit(block, column, a_is_shared ? descriptor(a_base_, a_offset(block, step)) : a_words(block, step),
               descriptor(b_base_, b_offset(column, step)), step == 0 ? scale_d : Operand(1), a_is_shared);
  }

 private:
  void check_accumulator() {
    const layout::Layout& shape = d_.layout;
    if (shape != layout::wgmma_accumulator_tile(shape.shape()[0], shape.shape()[1], n_, groups_))
      g_.fail(op_, "d's layout is not that of an accumulator", {"d  " + shape.to_string()});
  }

  void describe_a() {
    const SharedView& view = g_.get<SharedView>(op_.operands[0]);
    a_ = describe_operand(g_, op_, "a", op_.operands[0], view.layout, kRows, k_);
    a_start_ = view.offset;
    // The part of the rows that the warp group reads: the same in all its threads, by the warp's number.
    Integer part = Integers::constant(0);
    if (groups_ > 1) {
      for (int64_t group = 0; group < groups_; ++group)
        if (a_.mn_offsets[group * blocks_] != group * a_.mn_offsets[blocks_])
          g_.fail(op_, "the rows of a that the warp groups read are not at equal distances",
                  {"a  " + op_.operands[0]->type.to_string()});
      Integers& ints = g_.ints();
      Integer warp = ints.sub(g_.warp_index(), Integers::constant(g_.group().begin / 32));
      warp.known = Range::between(0, g_.group().threads / 32 - 1);
      part = ints.mul(ints.shift_right(warp, 2), Integers::constant(a_.mn_offsets[blocks_]));
    }
    a_base_ = descriptor_base(g_, view, a_, swizzle_bits(a_.swizzle), part);
  }

  void describe_b() {
    const SharedView& view = g_.get<SharedView>(op_.operands[1]);
    b_ = describe_operand(g_, op_, "b", op_.operands[1], view.layout.transpose(), n_, k_);
    b_start_ = view.offset;
    b_base_ = descriptor_base(g_, view, b_, swizzle_bits(b_.swizzle));
  }

  int64_t a_offset(int64_t block, int64_t step) const {
    return a_start_ + a_.mn_offsets[block] + a_.k_offsets[step];
  }
  int64_t b_offset(int64_t column, int64_t step) const {
    return b_start_ + b_.mn_offsets[column] + b_.k_offsets[step];
  }

  Operand descriptor(const Integer& base, int64_t bytes) {
    if (bytes == 0) return base.value;
    return g_.e().make(ScalarType::b64, Op::add, {ScalarType::s64}, {base.value, bytes >> 4});
  }

  /// A's registers, which PTX wants untyped: where they are not, copies, which a fence must follow.
  void take_a() {
    const std::vector<int64_t>& shape = op_.operands[0]->type.shape;
    words_ = words_in_layout(g_, op_, g_.get<RegisterTensor>(op_.operands[0]),
                             layout::wgmma_a_tile(shape[0], shape[1], a_type_.bits(), groups_));
    bool has_moved = false;
    for (Operand& word : words_) {
      if (word.is_reg() && word_type(a_type_) == ScalarType::b32) continue;
      const Reg copy = g_.e().reg(ScalarType::b32);
      g_.e().move(ScalarType::b32, copy, word);
      word = copy;
      has_moved = true;
    }
    if (has_moved) g_.e().emit(Op::wgmma_fence, {Mod::sync, Mod::aligned}, {});
  }

  /// The four that one instruction reads.
  Operand a_words(int64_t block, int64_t step) {
    return g_.e().builder().vec(std::span<const Operand>(words_).subspan((block * steps_ + step) * 4, 4));
  }

  void emit(int64_t block, int64_t column, const Operand& a, const Operand& b, const Operand& scale_d,
            bool a_is_shared) {
    const ptx::Suffix shape =
        ptx::Suffix::shape(static_cast<int>(kRows), static_cast<int>(n_), static_cast<int>(k_));
    std::vector<Suffix> words{Mod::sync, Mod::aligned, shape};
    if (op_.bool_attr("saturate", false)) words.push_back(Mod::satfinite);
    words.insert(words.end(), {matrix_sum_type(d_.dtype), matrix_type(a_type_), matrix_type(b_type_)});
    const int64_t registers = n_ / 2 / elements_per_word(d_.dtype);
    const int64_t first = (block * instructions_ + column) * registers;
    std::vector<Operand> operands{
        g_.e().builder().vec(std::span<const Operand>(d_.words).subspan(first, registers)), a, b, scale_d};
    if (!a_type_.is_integer()) {
      operands.push_back(op_.bool_attr("negate_a", false) ? -1 : 1);
      operands.push_back(op_.bool_attr("negate_b", false) ? -1 : 1);
    }
    if (a_type_.bits() == 16) {
      if (a_is_shared) operands.push_back(a_.major == layout::Major::kMN ? 1 : 0);
      operands.push_back(b_.major == layout::Major::kMN ? 1 : 0);
    }
    g_.e().emit(Op::wgmma_mma_async, words, operands);
  }

  Generator& g_;
  const ir::Op& op_;
  const RegisterTensor& d_;
  DataType a_type_, b_type_;
  int64_t groups_;        // warp groups that share the rows
  int64_t blocks_;        // of 64 rows, for each of them
  int64_t n_;             // columns of one instruction
  int64_t instructions_;  // side by side
  int64_t k_;             // elements of one step
  int64_t steps_;
  layout::MatrixOperand a_, b_;
  Integer a_base_, b_base_;
  int64_t a_start_ = 0, b_start_ = 0;  // constant parts of the views' offsets
  std::vector<Operand> words_;         // of A in registers
};

}  // namespace

void emit_WgmmaMma(Generator& g, const ir::Op& op) { WgmmaMma(g, op).run(); }

void emit_WgmmaFence(Generator& g, const ir::Op&) {
  g.e().emit(Op::wgmma_fence, {Mod::sync, Mod::aligned}, {});
}

void emit_WgmmaCommitGroup(Generator& g, const ir::Op&) {
  g.e().emit(Op::wgmma_commit_group, {Mod::sync, Mod::aligned}, {});
}

void emit_WgmmaWaitGroup(Generator& g, const ir::Op& op) {
  g.e().emit(Op::wgmma_wait_group, {Mod::sync, Mod::aligned}, {Operand(op.int_attr("pending"))});
}

}  // namespace imbrex::codegen
