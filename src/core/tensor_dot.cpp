// SPDX-License-Identifier: Apache-2.0
// The definition of the tensor core's sum, one output at a time.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <utility>
#include <vector>

#include "core/scalar_half.h"
#include "core/tensor_operand.h"

namespace imbrex::arith {

uint32_t round_sum(TensorOutput output, double sum) {
  if (output == TensorOutput::kF16Nearest) {
    const uint32_t bits = f32_to_f16(detail::narrow_to_odd(sum));
    return (bits & 0x7FFF) == 0 ? 0 : bits;
  }
  if (std::fabs(sum) >= 0x1p128) return sum < 0 ? 0xFF800000 : 0x7F800000;
  uint32_t bits = f32_bits(narrow(sum, Rounding::kTowardZero));
  if (output == TensorOutput::kF32CutTo13) bits &= ~uint32_t{0x3FF};
  return (bits & 0x7FFFFFFF) == 0 ? 0 : bits;
}

uint32_t sum_terms(const TensorArith& arith, const TensorTerm* terms, int64_t count) {
  int largest = arith.exponent_floor;
  for (int64_t i = 0; i < count; ++i)
    if (terms[i].significand != 0) largest = std::max(largest, terms[i].exponent);
  int64_t total = 0;
  for (int64_t i = 0; i < count; ++i) {
    const TensorTerm& term = terms[i];
    // In units of 2^-kept_bits of the largest exponent, cut toward zero.
    const int shift = arith.kept_bits - term.fraction_bits - (largest - term.exponent);
    const int64_t magnitude = std::abs(term.significand);
    const int64_t cut = shift >= 0 ? magnitude << shift : -shift > 62 ? 0 : magnitude >> -shift;
    total += term.significand < 0 ? -cut : cut;
  }
  // 2^(largest - kept_bits), a normal number of a double whatever the formats.
  const double unit = std::bit_cast<double>(static_cast<uint64_t>(1023 + largest - arith.kept_bits) << 52);
  return round_sum(arith.output, static_cast<double>(total) * unit);
}

TensorTerm group_term(const TensorArith& arith, int64_t sum, const TensorOperand& a_scale,
                      const TensorOperand& b_scale) {
  const int unit = arith.a_format.min_exponent() + arith.b_format.min_exponent();
  return {sum * a_scale.significand * b_scale.significand, unit + a_scale.exponent + b_scale.exponent,
          arith.a_format.mantissa_bits + arith.b_format.mantissa_bits + 2 * arith.scale_format.mantissa_bits};
}

namespace {

/// What the special operands among the terms amount to.
struct SpecialTerms {
  bool nan = false, plus_infinity = false, minus_infinity = false;

  void infinity(bool negative) { (negative ? minus_infinity : plus_infinity) = true; }
  void addend(const TensorOperand& c) {
    if (c.kind == OperandKind::kNan) nan = true;
    if (c.kind == OperandKind::kInfinity) infinity(c.significand < 0);
  }
  void product(const TensorOperand& a, const TensorOperand& b) {
    if (a.kind == OperandKind::kFinite && b.kind == OperandKind::kFinite) return;
    if (a.kind == OperandKind::kNan || b.kind == OperandKind::kNan || a.is_zero() || b.is_zero())
      nan = true;
    else
      infinity((a.significand < 0) != (b.significand < 0));
  }
  bool any() const { return nan || plus_infinity || minus_infinity; }
  uint32_t result(const FloatFormat& format) const {
    if (nan || (plus_infinity && minus_infinity)) return static_cast<uint32_t>(format.nan);
    return static_cast<uint32_t>(format.infinity() | (minus_infinity ? format.sign_mask() : 0));
  }
};

}  // namespace

uint32_t accumulate_block(const TensorArith& arith, const TensorBlock& block, TensorOperand c) {
  SpecialTerms specials;
  specials.addend(c);
  std::vector<TensorTerm> terms;
  terms.push_back({c.significand, c.exponent, result_format(arith).mantissa_bits});

  // The scale factors of the product at `position`.
  auto scales = [&](int position) {
    const int index = position / arith.scale_block;
    const std::pair factors{block.a_scales[index], block.b_scales[index]};
    if (factors.first.kind == OperandKind::kNan || factors.second.kind == OperandKind::kNan)
      specials.nan = true;
    return factors;
  };
  if (arith.groups_of_16) {
    for (int first = 0; first < block.length; first += 16) {
      int64_t sum = 0;
      for (int i = first; i < first + 16; ++i)
        sum += int64_t{fixed_point(arith.a_format, block.a[i])} * fixed_point(arith.b_format, block.b[i]);
      const auto [a_scale, b_scale] = scales(first);
      terms.push_back(group_term(arith, sum, a_scale, b_scale));
    }
  } else {
    for (int i = 0; i < block.length; ++i) {
      const TensorOperand &a = block.a[i], &b = block.b[i];
      specials.product(a, b);
      TensorTerm term{int64_t{a.significand} * b.significand, a.exponent + b.exponent,
                      arith.a_format.mantissa_bits + arith.b_format.mantissa_bits};
      if (arith.scale_block != 0) {
        const auto [a_scale, b_scale] = scales(i);
        term.exponent += a_scale.exponent + b_scale.exponent;  // powers of two
      }
      terms.push_back(term);
    }
  }
  if (specials.any()) return specials.result(result_format(arith));
  return sum_terms(arith, terms.data(), static_cast<int64_t>(terms.size()));
}

uint32_t add_result(const TensorArith& arith, uint32_t sum, uint32_t c) {
  if (arith.output == TensorOutput::kF16Nearest)
    return add_f16(static_cast<uint16_t>(sum), static_cast<uint16_t>(c));
  return f32_bits(add(f32_from_bits(sum), f32_from_bits(c)));
}

uint32_t dot_accumulate(const TensorArith& arith, int64_t k, const uint32_t* a, const uint32_t* b, uint32_t c,
                        const TensorModifiers& modifiers) {
  std::vector<TensorOperand> x(static_cast<size_t>(k)), y(static_cast<size_t>(k));
  for (int64_t position = 0; position < k; ++position) {
    const int64_t index = product_index(arith, k, position);
    TensorOperand& left = x[static_cast<size_t>(position)] = unpack_operand(arith, arith.a_format, a[index]);
    TensorOperand& right = y[static_cast<size_t>(position)] = unpack_operand(arith, arith.b_format, b[index]);
    if (modifiers.negate_a) left.significand = -left.significand;
    if (modifiers.negate_b) right.significand = -right.significand;
  }
  std::vector<TensorOperand> x_scales, y_scales;
  if (arith.scale_block != 0)
    for (int64_t i = 0; i < k / arith.scale_block; ++i) {
      x_scales.push_back(unpack(arith.scale_format, modifiers.a_scales[i]));
      y_scales.push_back(unpack(arith.scale_format, modifiers.b_scales[i]));
    }

  const int length = block_length(arith, k);
  int scale_input_d = modifiers.scale_input_d;
  uint32_t sum = arith.split_pairs ? 0 : c;
  for (int64_t first = 0; first < k; first += length) {
    const int64_t scale = arith.scale_block != 0 ? first / arith.scale_block : 0;
    const TensorBlock block{length, x.data() + first, y.data() + first, x_scales.data() + scale,
                            y_scales.data() + scale};
    sum = accumulate_block(arith, block, unpack_addend(arith, sum, scale_input_d));
    scale_input_d = 0;  // only the instruction's own input is scaled
  }
  return arith.split_pairs ? add_result(arith, sum, c) : sum;
}

}  // namespace imbrex::arith
