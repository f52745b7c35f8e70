// SPDX-License-Identifier: Apache-2.0
// Whole matrices of the tensor core's sum, exact to the definition in tensor_dot.cpp but vectorised over
// columns. A product of two significands of up to 11 bits, scaled so that nothing above the grid is lost,
// fits 32-bit lanes; the sum of a block fits a double. What that leaves out (infinities and NaN, subnormal
// results, groups of products under one scale) goes through the definition.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/tensor_tile.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "core/tensor_operand.h"

#ifndef IMBREX_TENSOR_TILE_ONCE
#define IMBREX_TENSOR_TILE_ONCE

namespace imbrex::arith {

/// Fraction bits to which both significands are brought: the widest operand format has ten.
inline constexpr int kFraction = 10;
/// Lanes to which columns are padded: a whole vector on any machine.
inline constexpr int64_t kLanes = 16;

/// One row of a block: its `length` operands against `columns` (padded) columns.
struct RowTask {
  int length;
  int64_t columns;
  const int32_t* a_significand;  ///< [length], shifted left so that products have 25 fraction bits
  const int32_t* a_exponent;
  const int32_t* b_significand;  ///< [length][columns]
  const int32_t* b_exponent;
  const int32_t* scale_exponent;  ///< [columns], both scales' exponents, or null
  const int32_t* c_significand;   ///< [columns], 25 fraction bits
  const int32_t* c_exponent;
  int kept_bits, exponent_floor;
  uint64_t kept_double_bits;  ///< mask of the bits of a double sum that an f32 result keeps
  double* sums;               ///< [columns], exact
  uint32_t* results;          ///< [columns], f32 patterns; only right where nothing is subnormal
};

}  // namespace imbrex::arith

#endif

HWY_BEFORE_NAMESPACE();
namespace imbrex::arith::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// Computes a row. True when some result is subnormal, and so not right in `results`.
HWY_ATTR bool accumulate_row(const RowTask& task) {
  const hn::CappedTag<int32_t, kLanes> di;
  const hn::RebindToUnsigned<decltype(di)> du;
  // Sums are carried on in doubles, a part of a vector of columns at a time.
  const hn::CappedTag<double, kLanes> dd;
  const hn::RebindToSigned<decltype(dd)> dl;
  const hn::Rebind<int32_t, decltype(dd)> dpi;
  const hn::Rebind<float, decltype(dd)> dpf;
  const auto lanes = static_cast<int64_t>(hn::Lanes(di));
  const auto part = static_cast<int64_t>(hn::Lanes(dd));
  HWY_ALIGN int32_t terms[kLanes];
  HWY_ALIGN int32_t exponents[kLanes];

  const auto shift_limit = hn::Set(di, 31);
  const auto extra_shift = hn::Set(di, 25 - task.kept_bits);
  const auto smallest_normal = hn::Set(dd, 0x1p-126);
  const auto kept = hn::BitCast(dd, hn::Set(hn::RebindToUnsigned<decltype(dd)>(), task.kept_double_bits));
  bool any_subnormal = false;

  for (int64_t n = 0; n < task.columns; n += lanes) {
    auto largest = hn::Set(di, kZeroExponent * 2);
    for (int k = 0; k < task.length; ++k) {
      const auto b = hn::LoadU(di, task.b_exponent + k * task.columns + n);
      largest = hn::Max(largest, hn::Add(hn::Set(di, task.a_exponent[k]), b));
    }
    const auto scale = task.scale_exponent != nullptr ? hn::LoadU(di, task.scale_exponent + n) : hn::Zero(di);
    const auto c_exponent = hn::LoadU(di, task.c_exponent + n);
    const auto top = hn::Max(hn::Max(hn::Add(largest, scale), c_exponent), hn::Set(di, task.exponent_floor));
    const auto product_top = hn::Add(hn::Sub(top, scale), extra_shift);

    // |x| >> min(distance, 31) with x's sign.
    auto cut = [&](auto x, auto distance) HWY_ATTR {
      const auto sign = hn::BroadcastSignBit(x);
      const auto shift = hn::BitCast(du, hn::Min(distance, shift_limit));
      const auto magnitude = hn::BitCast(di, hn::Shr(hn::BitCast(du, hn::Abs(x)), shift));
      return hn::Sub(hn::Xor(magnitude, sign), sign);
    };
    auto add_to_sums = [&](auto x, bool is_first) HWY_ATTR {
      hn::Store(x, di, terms);
      for (int64_t at = 0; at < lanes; at += part) {
        const auto term = hn::PromoteTo(dd, hn::Load(dpi, terms + at));
        const auto sum = is_first ? term : hn::Add(hn::LoadU(dd, task.sums + n + at), term);
        hn::StoreU(sum, dd, task.sums + n + at);
      }
    };
    add_to_sums(cut(hn::LoadU(di, task.c_significand + n), hn::Add(hn::Sub(top, c_exponent), extra_shift)),
                true);
    for (int first = 0; first < task.length; first += 16) {
      // Sixteen terms below 2^27 each stay below 2^31.
      auto sum = hn::Zero(di);
      const int end = first + 16 < task.length ? first + 16 : task.length;
      for (int k = first; k < end; ++k) {
        const auto exponent =
            hn::Add(hn::Set(di, task.a_exponent[k]), hn::LoadU(di, task.b_exponent + k * task.columns + n));
        const auto product = hn::Mul(hn::Set(di, task.a_significand[k]),
                                     hn::LoadU(di, task.b_significand + k * task.columns + n));
        sum = hn::Add(sum, cut(product, hn::Sub(product_top, exponent)));
      }
      add_to_sums(sum, false);
    }

    // Scale by 2^(top - kept_bits), built as a double, and cut to what f32 keeps.
    hn::Store(hn::Add(top, hn::Set(di, 1023 - task.kept_bits)), di, exponents);
    for (int64_t at = 0; at < lanes; at += part) {
      const auto biased = hn::PromoteTo(dl, hn::Load(dpi, exponents + at));
      const auto factor = hn::BitCast(dd, hn::ShiftLeft<52>(biased));
      const auto value = hn::Mul(hn::LoadU(dd, task.sums + n + at), factor);
      hn::StoreU(value, dd, task.sums + n + at);
      const auto subnormal = hn::And(hn::Lt(hn::Abs(value), smallest_normal), hn::Ne(value, hn::Zero(dd)));
      any_subnormal = any_subnormal || !hn::AllFalse(dd, subnormal);
      const auto result = hn::DemoteTo(dpf, hn::And(value, kept));
      hn::StoreU(result, dpf, reinterpret_cast<float*>(task.results) + n + at);
    }
  }
  return any_subnormal;
}

}  // namespace imbrex::arith::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace imbrex::arith {

namespace {

HWY_EXPORT(accumulate_row);

/// All operands of one side in the order of the blocks.
struct Side {
  std::vector<TensorOperand> operands;  ///< [rows][k]
  std::vector<TensorOperand> scales;    ///< [rows][k / scale_block]
  std::vector<uint8_t> special;         ///< [rows][blocks]: an infinity or a NaN in this block
};

uint32_t pattern_at(const FloatFormat& format, const void* data, int64_t index) {
  if (format.bits <= 8) return static_cast<const uint8_t*>(data)[index];
  if (format.bits == 16) return static_cast<const uint16_t*>(data)[index];
  return static_cast<const uint32_t*>(data)[index];
}

Side take_apart(const TensorArith& arith, const FloatFormat& format, const void* data, const uint8_t* scales,
                int64_t rows, int64_t k, bool negate) {
  Side side;
  const int length = block_length(arith, k);
  const int64_t blocks = k / length;
  side.operands.resize(static_cast<size_t>(rows * k));
  side.special.assign(static_cast<size_t>(rows * blocks), 0);
  // Narrow formats have few patterns: each is taken apart once.
  TensorOperand table[256];
  const bool tabulated = format.bits <= 8;
  if (tabulated)
    for (uint32_t bits = 0; bits < 256; ++bits) table[bits] = unpack(format, bits);
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t position = 0; position < k; ++position) {
      const uint32_t bits = pattern_at(format, data, row * k + product_index(arith, k, position));
      TensorOperand operand = tabulated ? table[bits] : unpack(format, bits);
      if (negate) operand.significand = -operand.significand;
      if (operand.kind != OperandKind::kFinite)
        side.special[static_cast<size_t>(row * blocks + position / length)] = 1;
      side.operands[static_cast<size_t>(row * k + position)] = operand;
    }
  if (arith.scale_block != 0) {
    const int64_t per_row = k / arith.scale_block;
    for (int64_t i = 0; i < rows * per_row; ++i) {
      side.scales.push_back(unpack(arith.scale_format, scales[i]));
      if (side.scales.back().kind == OperandKind::kNan)
        side.special[static_cast<size_t>(i / per_row * blocks + i % per_row * arith.scale_block / length)] =
            1;
    }
  }
  return side;
}

/// The accumulators of one row, as patterns and taken apart for the vector code.
struct Accumulators {
  explicit Accumulators(int64_t columns)
      : bits(static_cast<size_t>(columns)),
        results(static_cast<size_t>(columns)),
        significand(static_cast<size_t>(columns)),
        exponent(static_cast<size_t>(columns)),
        sums(static_cast<size_t>(columns)) {}

  std::vector<uint32_t> bits, results;
  std::vector<int32_t> significand, exponent;
  std::vector<double> sums;
};

class Product {
 public:
  Product(const TensorArith& arith, MatrixShape shape, const TensorModifiers& modifiers, const void* a,
          const void* b)
      : arith_(arith),
        shape_(shape),
        modifiers_(modifiers),
        length_(block_length(arith, shape.k)),
        blocks_(shape.k / length_),
        columns_((shape.n + kLanes - 1) / kLanes * kLanes),
        a_(take_apart(arith, arith.a_format, a, modifiers.a_scales, shape.m, shape.k, modifiers.negate_a)),
        b_(take_apart(arith, arith.b_format, b, modifiers.b_scales, shape.n, shape.k, modifiers.negate_b)),
        accumulators_(columns_) {
    if (!arith_.groups_of_16) transpose();
  }

  void run(const void* c, void* d) {
    for (int64_t m = 0; m < shape_.m; ++m) {
      for (int64_t n = 0; n < shape_.n; ++n)
        accumulators_.bits[static_cast<size_t>(n)] = arith_.split_pairs ? 0 : element(c, m * shape_.n + n);
      for (int64_t block = 0; block < blocks_; ++block) {
        // Only the instruction's own input is scaled, not the sums that pass from block to block.
        const int scale_input_d = block == 0 ? modifiers_.scale_input_d : 0;
        if (arith_.groups_of_16)
          row_by_definition(m, block, scale_input_d);
        else
          row(m, block, scale_input_d);
      }
      for (int64_t n = 0; n < shape_.n; ++n) {
        uint32_t bits = accumulators_.bits[static_cast<size_t>(n)];
        if (arith_.split_pairs) bits = add_result(arith_, bits, element(c, m * shape_.n + n));
        if (arith_.result_bytes() == 2)
          static_cast<uint16_t*>(d)[m * shape_.n + n] = static_cast<uint16_t>(bits);
        else
          static_cast<uint32_t*>(d)[m * shape_.n + n] = bits;
      }
    }
  }

 private:
  uint32_t element(const void* c, int64_t index) const {
    if (c == nullptr) return 0;
    if (arith_.result_bytes() == 2) return static_cast<const uint16_t*>(c)[index];
    return static_cast<const uint32_t*>(c)[index];
  }

  /// b with columns side by side; padding columns are zeros.
  void transpose() {
    const auto size = static_cast<size_t>(shape_.k * columns_);
    b_significand_.assign(size, 0);
    b_exponent_.assign(size, kZeroExponent);
    const int up = kFraction - arith_.b_format.mantissa_bits;
    for (int64_t n = 0; n < shape_.n; ++n)
      for (int64_t k = 0; k < shape_.k; ++k) {
        const TensorOperand& operand = b_.operands[static_cast<size_t>(n * shape_.k + k)];
        b_significand_[static_cast<size_t>(k * columns_ + n)] = operand.significand * (1 << up);
        b_exponent_[static_cast<size_t>(k * columns_ + n)] = operand.exponent;
      }
    a_significand_.resize(static_cast<size_t>(length_));
    a_exponent_.resize(static_cast<size_t>(length_));
    scale_exponent_.assign(static_cast<size_t>(columns_), 0);
  }

  uint32_t output_by_definition(int64_t m, int64_t n, int64_t block, int scale_input_d) const {
    const int64_t first = block * length_;
    const int64_t per_row = arith_.scale_block != 0 ? shape_.k / arith_.scale_block : 0;
    const int64_t scale = arith_.scale_block != 0 ? first / arith_.scale_block : 0;
    const TensorBlock task{length_, a_.operands.data() + m * shape_.k + first,
                           b_.operands.data() + n * shape_.k + first, a_.scales.data() + m * per_row + scale,
                           b_.scales.data() + n * per_row + scale};
    return accumulate_block(arith_, task,
                            unpack_addend(arith_, accumulators_.bits[static_cast<size_t>(n)], scale_input_d));
  }

  void row_by_definition(int64_t m, int64_t block, int scale_input_d) {
    for (int64_t n = 0; n < shape_.n; ++n)
      accumulators_.bits[static_cast<size_t>(n)] = output_by_definition(m, n, block, scale_input_d);
  }

  void row(int64_t m, int64_t block, int scale_input_d) {
    Accumulators& acc = accumulators_;
    const int64_t first = block * length_;
    const int a_up = kFraction - arith_.a_format.mantissa_bits + 25 - 2 * kFraction;
    for (int i = 0; i < length_; ++i) {
      const TensorOperand& operand = a_.operands[static_cast<size_t>(m * shape_.k + first + i)];
      a_significand_[static_cast<size_t>(i)] = operand.significand * (1 << a_up);
      a_exponent_[static_cast<size_t>(i)] = operand.exponent;
    }
    const int c_up = 25 - result_format(arith_).mantissa_bits;
    bool any_special = a_.special[static_cast<size_t>(m * blocks_ + block)] != 0;
    for (int64_t n = 0; n < shape_.n; ++n) {
      const auto at = static_cast<size_t>(n);
      const TensorOperand addend = unpack_addend(arith_, acc.bits[at], scale_input_d);
      acc.significand[at] = addend.significand * (1 << c_up);
      acc.exponent[at] = addend.exponent;
      special_column_[at] = any_special || addend.kind != OperandKind::kFinite ||
                            b_.special[static_cast<size_t>(n * blocks_ + block)] != 0;
      if (arith_.scale_block != 0) {
        const int64_t per_row = shape_.k / arith_.scale_block, scale = first / arith_.scale_block;
        scale_exponent_[at] = a_.scales[static_cast<size_t>(m * per_row + scale)].exponent +
                              b_.scales[static_cast<size_t>(n * per_row + scale)].exponent;
      }
    }
    RowTask task;
    task.length = length_;
    task.columns = columns_;
    task.a_significand = a_significand_.data();
    task.a_exponent = a_exponent_.data();
    task.b_significand = b_significand_.data() + first * columns_;
    task.b_exponent = b_exponent_.data() + first * columns_;
    task.scale_exponent = arith_.scale_block != 0 ? scale_exponent_.data() : nullptr;
    task.c_significand = acc.significand.data();
    task.c_exponent = acc.exponent.data();
    task.kept_bits = arith_.kept_bits;
    task.exponent_floor = arith_.exponent_floor;
    task.kept_double_bits = ~uint64_t{0} << (arith_.output == TensorOutput::kF32CutTo13 ? 52 - 13 : 52 - 23);
    task.sums = acc.sums.data();
    task.results = acc.results.data();
    const bool subnormal = HWY_DYNAMIC_DISPATCH(accumulate_row)(task);

    const bool from_sums = subnormal || arith_.output == TensorOutput::kF16Nearest;
    for (int64_t n = 0; n < shape_.n; ++n) {
      const auto at = static_cast<size_t>(n);
      if (special_column_[at])
        acc.bits[at] = output_by_definition(m, n, block, scale_input_d);
      else
        acc.bits[at] = from_sums ? round_sum(arith_.output, acc.sums[at]) : acc.results[at];
    }
  }

  const TensorArith& arith_;
  MatrixShape shape_;
  const TensorModifiers& modifiers_;
  int length_;
  int64_t blocks_, columns_;
  Side a_, b_;
  std::vector<int32_t> b_significand_, b_exponent_, a_significand_, a_exponent_, scale_exponent_;
  std::vector<uint8_t> special_column_ = std::vector<uint8_t>(static_cast<size_t>(columns_));
  Accumulators accumulators_;
};

}  // namespace

void multiply_accumulate(const TensorArith& arith, MatrixShape shape, const void* a, const void* b,
                         const void* c, void* d, const TensorModifiers& modifiers) {
  Product(arith, shape, modifiers, a, b).run(c, d);
}

}  // namespace imbrex::arith
#endif  // HWY_ONCE
