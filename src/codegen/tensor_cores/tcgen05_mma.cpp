// SPDX-License-Identifier: Apache-2.0
// tcgen05.mma and its completion. A product is cut into instructions of at most 128 rows, 256 columns and 32
// bytes of k.
#include <fmt/format.h>

#include <algorithm>

#include "codegen/memory/mbarrier.h"
#include "codegen/tensor_cores/matrix_descriptor.h"
#include "codegen/tensor_cores/tcgen05.h"
#include "imbrex/core/error.h"
#include "ir/tcgen05_kinds.h"
#include "layout/memory.h"

namespace imbrex::codegen {

using ir::MmaKind;
using layout::Major;
using layout::Swizzle;

namespace {

Mod kind_word(MmaKind kind) {
  constexpr Mod kWords[] = {Mod::kind_f16,      Mod::kind_tf32, Mod::kind_f8f6f4,  Mod::kind_i8,
                            Mod::kind_mxf8f6f4, Mod::kind_mxf4, Mod::kind_mxf4nvf4};
  return kWords[static_cast<size_t>(kind)];
}

/// Bits 9:7 and 12:10 of the instruction descriptor.
uint32_t operand_code(DataType type, const ir::MmaKindFacts& kind) {
  if (kind.packs_4bit) return 1;
  switch (type.code) {
    case DataType::kBFloat16:
    case DataType::kFloat8E5M2:
    case DataType::kInt8:
      return 1;
    case DataType::kTFloat32:
    case DataType::kFloat32:
      return 2;
    case DataType::kFloat6E2M3:
      return 3;
    case DataType::kFloat6E3M2:
      return 4;
    case DataType::kFloat4E2M1:
      return 5;
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

/// Scale factors in tensor memory: four of a row share a column, the next four are `set_columns` further.
struct Scales {
  const TensorMemoryView* view;
  int64_t set_columns;

  explicit Scales(const TensorMemoryView& v) : view(&v), set_columns(v.layout.shape()[0] / 32) {}
  /// Where the instruction finds its first factor, `factor`, of the rows from `row` on.
  Operand address(int64_t factor, int64_t row) const {
    return tensor_memory_address(*view, factor / 4 * set_columns + row / 32);
  }
};

class Mma {
 public:
  Mma(Generator& g, const ir::Op& op)
      : g_(g),
        op_(op),
        d_(g.get<TensorMemoryView>(op.operands[2])),
        kind_(*ir::mma_kind(op)),
        tile_(ir::mma_tile(op, kind_)),
        cta_group_(op.int_attr("cta_group", 1)),
        m_(d_.layout.shape()[0]),
        n_(d_.layout.shape()[1]),
        k_(op.operands[0]->type.shape[1]) {
    if (kind_.is_block_scaled()) factors_ = kind_.k * op.operands[4]->type.shape[1] / k_;
  }

  void run() {
    g_.require_arch(op_, 100, "tcgen05");
    expect_layout("d", d_, layout::accumulator_of_cta(m_, n_, d_.dtype.bits(), cta_group_));
    make_operands();
    const Operand enable = g_.scalar(op_.operands[3]);
    Emitter& e = g_.e();
    // One thread issues everything; the address arithmetic of all steps may move out of loops.
    const ptx::LabelId end = e.label("mma_end");
    e.branch_unless(g_.elected(), end);
    for (int64_t i = 0; i < m_ / tile_.m; ++i)
      for (int64_t j = 0; j < n_ / tile_.n; ++j)
        for (int64_t step = 0; step < k_ / kind_.k; ++step) emit(i, j, step, enable);
    e.bind(end);
  }

 private:
  void expect_layout(std::string_view name, const TensorMemoryView& view, const layout::Layout& expected) {
    if (view.layout != expected)
      g_.fail(
          op_, fmt::format("{}'s layout is not the one the tensor core uses", name),
          {fmt::format("{}         {}", name, view.layout.to_string()), "expected  " + expected.to_string()},
          "let it be inferred");
  }

  void make_operands() {
    if (op_.operands[0]->type.kind == ir::TypeKind::kShared) {
      const SharedView& a = g_.get<SharedView>(op_.operands[0]);
      a_ = describe_operand(g_, op_, "a", op_.operands[0], a.layout, tile_.m, kind_.k);
      a_base_ = descriptor_base(g_, a, *a_, tcgen05_descriptor_bits(a_->swizzle));
    } else {
      const TensorMemoryView& a = g_.get<TensorMemoryView>(op_.operands[0]);
      expect_layout("a", a, layout::operand_a_of_cta(m_, k_, kind_.element_bits(a.dtype), cta_group_));
    }
    const SharedView& b = g_.get<SharedView>(op_.operands[1]);
    b_ = describe_operand(g_, op_, "b", op_.operands[1], b.layout.transpose(), tile_.n / cta_group_, kind_.k);
    b_base_ = descriptor_base(g_, b, b_, tcgen05_descriptor_bits(b_.swizzle));
    for (size_t i = 4; i < op_.operands.size(); ++i) {
      const TensorMemoryView& scale = g_.get<TensorMemoryView>(op_.operands[i]);
      expect_layout(op_.info().operands[i].name, scale,
                    layout::scale_factors(scale.layout.shape()[0], scale.layout.shape()[1]));
      scales_.emplace_back(scale);
    }
  }

  /// Rows i, columns j of the instructions' grid, one step of k.
  void emit(int64_t i, int64_t j, int64_t step, const Operand& enable) {
    std::vector<Suffix> words{cta_group_word(op_), kind_word(kind_.kind)};
    std::vector<Operand> operands{tensor_memory_address(d_, i * n_ + j * tile_.n), operand_a(i, step),
                                  descriptor_at(g_, b_base_,
                                                g_.get<SharedView>(op_.operands[1]).offset +
                                                    at(b_.mn_offsets, j) + at(b_.k_offsets, step)),
                                  instruction_descriptor(step)};
    if (kind_.is_block_scaled()) {
      words.push_back(Mod::block_scale);
      words.push_back(factors_ == 1   ? Mod::scale_vec_1X
                      : factors_ == 2 ? Mod::scale_vec_2X
                                      : Mod::scale_vec_4X);
      operands.push_back(scales_[0].address(step * factors_, i * tile_.m));
      operands.push_back(scales_[1].address(step * factors_, j * tile_.n));
    }
    operands.push_back(step == 0 ? enable : Operand(1));
    g_.e().emit(Op::tcgen05_mma, words, operands);
  }

  static int64_t at(const std::vector<int64_t>& offsets, int64_t i) {
    return offsets[static_cast<size_t>(i)];
  }

  Operand operand_a(int64_t i, int64_t step) {
    if (!a_) {
      const TensorMemoryView& a = g_.get<TensorMemoryView>(op_.operands[0]);
      const int64_t bits = a.layout.element_bits();
      return tensor_memory_address(a, (i * k_ + step * kind_.k) * bits / 32);
    }
    return descriptor_at(
        g_, a_base_,
        g_.get<SharedView>(op_.operands[0]).offset + at(a_->mn_offsets, i) + at(a_->k_offsets, step));
  }

  Operand instruction_descriptor(int64_t step) {
    const DataType a = op_.operands[0]->type.dtype, b = op_.operands[1]->type.dtype;
    uint32_t bits = operand_code(a, kind_) << 7 | operand_code(b, kind_) << 10;
    if (op_.bool_attr("negate_a", false)) bits |= 1u << 13;
    if (op_.bool_attr("negate_b", false)) bits |= 1u << 14;
    if (a_ && a_->major == Major::kMN) bits |= 1u << 15;
    if (b_.major == Major::kMN) bits |= 1u << 16;
    bits |= static_cast<uint32_t>(tile_.n >> 3) << 17;
    bits |= static_cast<uint32_t>(tile_.m * cta_group_ >> 4) << 24;
    if (kind_.is_block_scaled()) {
      const auto first = static_cast<uint32_t>(step * factors_ % 4);  // of the factors that share a column
      bits |= first << 4 | first << 29;
      if (op_.operands[4]->type.dtype == float8_e8m0) bits |= 1u << 23;
    } else {
      bits |= accumulator_code(d_.dtype) << 4;
    }
    const auto value = static_cast<int64_t>(bits);
    return g_.e().hoisted(g_.ints().name(kInstructionLeaf, value), 0, [&] {
      return Operand(g_.e().make(ScalarType::b32, Op::mov, {ScalarType::b32}, {value}));
    });
  }

  Generator& g_;
  const ir::Op& op_;
  const TensorMemoryView& d_;
  const ir::MmaKindFacts& kind_;
  ir::MmaTile tile_;  // rows in this CTA, columns of one instruction
  int64_t cta_group_;
  int64_t m_, n_, k_;                       // of the whole product, rows in this CTA
  int64_t factors_ = 0;                     // scale factors of a row in one instruction
  std::optional<layout::MatrixOperand> a_;  // nothing: A is in tensor memory
  layout::MatrixOperand b_;
  Integer a_base_, b_base_;
  std::vector<Scales> scales_;
};

}  // namespace

uint64_t tcgen05_descriptor_bits(Swizzle swizzle) { return uint64_t{1} << 46 | swizzle_code(swizzle) << 61; }

void emit_Tcgen05Mma(Generator& g, const ir::Op& op) { Mma(g, op).run(); }
void emit_Tcgen05ScaledMma(Generator& g, const ir::Op& op) { Mma(g, op).run(); }

void emit_Tcgen05Commit(Generator& g, const ir::Op& op) {
  g.require_arch(op, 100, "tcgen05");
  Emitter& e = g.e();
  const BarrierView& barrier = g.get<BarrierView>(op.operands[0]);
  const Mod group = cta_group_word(op);
  const Operand address = barrier_operand(g, barrier);
  const Reg elected = g.elected();
  if (const auto mask = multicast_mask(g, op, op.operands.size() > 1 ? op.operands[1] : nullptr)) {
    e.emit(Op::tcgen05_commit,
           {group, Mod::mbarrier_arrive_one, Mod::shared_cluster, Mod::multicast_cluster, ScalarType::b64},
           {address, *mask})
        .when(elected);
  } else {
    e.emit(Op::tcgen05_commit, {group, Mod::mbarrier_arrive_one, Mod::shared_cluster, ScalarType::b64},
           {address})
        .when(elected);
  }
}

}  // namespace imbrex::codegen
