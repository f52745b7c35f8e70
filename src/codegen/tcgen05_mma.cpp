// SPDX-License-Identifier: Apache-2.0
// tcgen05.mma and its completion.
#include <fmt/format.h>

#include <algorithm>

#include "codegen/matrix_descriptor.h"
#include "imbrex/error.h"
#include "layout/memory.h"

namespace imbrex::codegen {

using layout::Axis;
using layout::Swizzle;

namespace {

/// What the instruction descriptor and mnemonic need to know of one kind.
struct MmaKind {
  Mod word;
  int64_t k;  // elements of K in one instruction: 32 bytes
};

MmaKind mma_kind(Generator& g, const ir::Op& op, DataType a, DataType b) {
  for (DataType t : {a, b})
    if (t.bits() < 8)
      g.fail(
          op,
          fmt::format("{} operands lie in shared memory in padded bytes, which has no layout here", t.name()),
          {}, "convert to an 8-bit type");
  if (a == float16 || a == bfloat16) return {Mod::kind_f16, 16};
  if (a == tfloat32 || a == float32) return {Mod::kind_tf32, 8};
  if (a.is_integer()) return {Mod::kind_i8, 32};
  return {Mod::kind_f8f6f4, 32};
}

/// Bits 9:7 and 12:10 of the instruction descriptor.
uint32_t operand_code(DataType type) {
  switch (type.code) {
    case DataType::kBFloat16:
    case DataType::kFloat8E5M2:
    case DataType::kInt8:
      return 1;
    case DataType::kTFloat32:
    case DataType::kFloat32:
      return 2;
    default:  // float16, float8_e4m3, uint8
      return 0;
  }
}

uint32_t accumulator_code(DataType type) { return type == float16 ? 0 : type == float32 ? 1 : 2; }

uint64_t swizzle_code(Swizzle swizzle) {
  switch (swizzle.mode) {
    case Swizzle::kNone:
      return 0;
    case Swizzle::k128BAtom32B:
      return 1;
    case Swizzle::k128B:
      return 2;
    case Swizzle::k64B:
      return 4;
    case Swizzle::k32B:
      return 6;
    default:
      throw InternalError("codegen: no descriptor has this swizzle");
  }
}

/// What every descriptor of this generation holds, and the swizzle.
uint64_t constant_bits(Swizzle swizzle) { return uint64_t{1} << 46 | swizzle_code(swizzle) << 61; }

Operand descriptor_at(Generator& g, const Integer& base, int64_t bytes) {
  return g.ints().add(base, Integers::constant(bytes >> 4)).value;
}

class Mma {
 public:
  Mma(Generator& g, const ir::Op& op)
      : g_(g),
        op_(op),
        a_(g.get<SharedView>(op.operands[0])),
        b_(g.get<SharedView>(op.operands[1])),
        d_(g.get<TensorMemoryView>(op.operands[2])),
        cta_group_(op.int_attr("cta_group", 1)),
        kind_(mma_kind(g, op, a_.dtype, b_.dtype)),
        m_(a_.layout.shape()[0]),
        n_(d_.layout.shape()[1]) {}

  void run() {
    g_.require_arch(op_, 100, "tcgen05");
    check_extents();
    const layout::MatrixOperand a = describe_operand(g_, op_, "a", op_.operands[0], a_.layout, m_, kind_.k);
    const layout::MatrixOperand b =
        describe_operand(g_, op_, "b", op_.operands[1], b_.layout.transpose(), n_ / cta_group_, kind_.k);
    check_accumulator();
    Emitter& e = g_.e();
    const Integer a_base = descriptor_base(g_, a_, a, constant_bits(a.swizzle)),
                  b_base = descriptor_base(g_, b_, b, constant_bits(b.swizzle));
    const Operand instruction = instruction_descriptor(a.major, b.major);
    const Operand enable = g_.scalar(op_.operands[3]);
    const Operand d = ptx::address(d_.base.value.reg(), d_.lane << 16 | d_.column);
    // One thread issues everything; the address arithmetic of all steps may move out of loops.
    const ptx::LabelId end = e.label("mma_end");
    e.branch_unless(g_.elected(), end);
    for (size_t k = 0; k < a.k_offsets.size(); ++k)
      e.emit(Op::tcgen05_mma, {cta_group_ == 2 ? Mod::cta_group_2 : Mod::cta_group_1, kind_.word},
             {d, descriptor_at(g_, a_base, a_.offset + a.mn_offsets[0] + a.k_offsets[k]),
              descriptor_at(g_, b_base, b_.offset + b.mn_offsets[0] + b.k_offsets[k]), instruction,
              k == 0 ? enable : Operand(1)});
    e.bind(end);
  }

 private:
  /// What the verifier has not seen to: 8-bit integers have fewer widths.
  void check_extents() {
    const bool is_narrow = n_ == 8 || n_ == 24;
    if (kind_.word == Mod::kind_i8 && n_ % 16 != 0 && !(is_narrow && cta_group_ == 1))
      g_.fail(op_, fmt::format("n is {}, 8-bit integers take 8, 24 and multiples of 16", n_));
  }

  void check_accumulator() {
    using layout::AccumulatorLayout;
    const layout::Layout expected =
        layout::accumulator(m_ == 64 ? AccumulatorLayout::kF : AccumulatorLayout::kD, n_, d_.dtype.bits());
    if (d_.layout != expected)
      g_.fail(op_, "d's layout is not that of an accumulator",
              {"d         " + d_.layout.to_string(), "expected  " + expected.to_string()});
  }

  Operand instruction_descriptor(layout::Major a, layout::Major b) {
    uint32_t bits =
        accumulator_code(d_.dtype) << 4 | operand_code(a_.dtype) << 7 | operand_code(b_.dtype) << 10;
    if (op_.bool_attr("negate_a", false)) bits |= 1u << 13;
    if (op_.bool_attr("negate_b", false)) bits |= 1u << 14;
    if (a == layout::Major::kMN) bits |= 1u << 15;
    if (b == layout::Major::kMN) bits |= 1u << 16;
    bits |= static_cast<uint32_t>(n_ >> 3) << 17;
    bits |= static_cast<uint32_t>(m_ * cta_group_ >> 4) << 24;
    const auto value = static_cast<int64_t>(bits);
    return g_.e().hoisted(g_.ints().name(kInstructionLeaf, value), 0, [&] {
      return Operand(g_.e().make(ScalarType::b32, Op::mov, {ScalarType::b32}, {value}));
    });
  }

  Generator& g_;
  const ir::Op& op_;
  const SharedView& a_;
  const SharedView& b_;
  const TensorMemoryView& d_;
  int64_t cta_group_;
  MmaKind kind_;
  int64_t m_, n_;  // rows of this CTA, columns of the instruction
};

}  // namespace

void emit_Tcgen05Mma(Generator& g, const ir::Op& op) {
  if (op.operands[0]->type.kind != ir::TypeKind::kShared)
    g.fail(op, "a in tensor memory is not available", {}, "keep a in shared memory");
  Mma(g, op).run();
}

void emit_Tcgen05Commit(Generator& g, const ir::Op& op) {
  g.require_arch(op, 100, "tcgen05");
  Emitter& e = g.e();
  const BarrierView& barrier = g.get<BarrierView>(op.operands[0]);
  const Mod group = op.int_attr("cta_group", 1) == 2 ? Mod::cta_group_2 : Mod::cta_group_1;
  const Operand address = barrier_operand(g, barrier);
  const Reg elected = g.elected();
  if (op.attr("multicast_mask")) {
    const Operand mask = e.to_register(ScalarType::b16, op.int_attr("multicast_mask"));
    e.emit(Op::tcgen05_commit,
           {group, Mod::mbarrier_arrive_one, Mod::shared_cluster, Mod::multicast_cluster, ScalarType::b64},
           {address, mask})
        .when(elected);
  } else {
    e.emit(Op::tcgen05_commit, {group, Mod::mbarrier_arrive_one, Mod::shared_cluster, ScalarType::b64},
           {address})
        .when(elected);
  }
}

}  // namespace imbrex::codegen
