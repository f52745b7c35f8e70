// SPDX-License-Identifier: Apache-2.0
// Inside tensor_*.cpp: numbers taken apart as the tensor core sees them, and the arithmetic of one block.
#pragma once

#include <cstdint>

#include "core/tensor_arith.h"

namespace imbrex::arith {

/// The exponent of a zero, so low that a product with one never is the largest term and shifts out entirely.
inline constexpr int32_t kZeroExponent = -(1 << 20);

enum class OperandKind : uint8_t { kFinite, kInfinity, kNan };

/// significand * 2^(exponent - format.mantissa_bits). Subnormals keep the format's smallest exponent: the
/// core does not normalise.
struct TensorOperand {
  int32_t significand = 0;  ///< signed; an infinity has its sign here
  int32_t exponent = kZeroExponent;
  OperandKind kind = OperandKind::kFinite;

  bool is_zero() const { return significand == 0 && kind == OperandKind::kFinite; }
};

/// Brings a subnormal (significand * 2^(exponent - fraction)) as near to a leading one as f16 has exponents.
inline void normalise(int32_t& significand, int32_t& exponent, int fraction) {
  constexpr int32_t kSmallestF16Exponent = -14;
  while (significand != 0 && exponent > kSmallestF16Exponent &&
         (significand < 0 ? -significand : significand) >> fraction == 0)
    significand *= 2, --exponent;
}

/// Takes one pattern apart.
inline TensorOperand unpack(const FloatFormat& format, uint32_t bits) {
  bits >>= format.unused_low_bits;
  const int value_bits = format.exponent_bits + format.mantissa_bits;
  const uint32_t magnitude = bits & ((1u << value_bits) - 1);
  const bool negative = format.has_sign && (bits >> value_bits & 1);
  if (format.mantissa_bits == 0) {  // ue8m0: no zero, and its smallest exponent is not shared
    if (magnitude == format.nan) return {1, 0, OperandKind::kNan};
    return {1, static_cast<int32_t>(magnitude) - format.bias, OperandKind::kFinite};
  }
  const uint32_t mantissa = magnitude & ((1u << format.mantissa_bits) - 1);
  const int biased = static_cast<int>(magnitude >> format.mantissa_bits);
  if (format.specials == Specials::kInfNan && biased == (1 << format.exponent_bits) - 1)
    return {negative ? -1 : 1, 0, mantissa != 0 ? OperandKind::kNan : OperandKind::kInfinity};
  if (format.specials == Specials::kNanOnly && magnitude == (1u << value_bits) - 1)
    return {1, 0, OperandKind::kNan};
  if (magnitude == 0) return {};
  const auto significand =
      static_cast<int32_t>(biased != 0 ? mantissa | 1u << format.mantissa_bits : mantissa);
  const int exponent = (biased != 0 ? biased : 1) - format.bias;
  return {negative ? -significand : significand, exponent, OperandKind::kFinite};
}

/// An operand of a product. The fp8 emulation widens operands to f16 first, in which e4m3's subnormals are
/// normal numbers; that moves the exponent of their products.
inline TensorOperand unpack_operand(const TensorArith& arith, const FloatFormat& format, uint32_t bits) {
  TensorOperand x = unpack(format, bits);
  if (arith.split_pairs && x.kind == OperandKind::kFinite)
    normalise(x.significand, x.exponent, format.mantissa_bits);
  return x;
}

/// The format of c and d.
inline const FloatFormat& result_format(const TensorArith& arith) {
  return arith.output == TensorOutput::kF16Nearest ? kF16 : kF32;
}

/// The sum of a block, exact in a double, rounded to the result's pattern. A zero is always +0.
uint32_t round_sum(TensorOutput output, double sum);

/// One term of a block: significand * 2^(exponent - fraction_bits), the significand of any size.
struct TensorTerm {
  int64_t significand;
  int exponent;
  int fraction_bits;
};
/// Aligns the terms to the largest, cuts, adds and rounds.
uint32_t sum_terms(const TensorArith& arith, const TensorTerm* terms, int64_t count);

/// An operand of a group of products that is summed exactly: in units of the format's last place at its
/// smallest exponent. Only for formats without infinities and NaN.
inline int32_t fixed_point(const FloatFormat& format, const TensorOperand& x) {
  return x.is_zero() ? 0 : x.significand * (1 << (x.exponent - format.min_exponent()));
}
/// The term of a group: `sum` of products of fixed_point() numbers, times the group's scale factors.
TensorTerm group_term(const TensorArith& arith, int64_t sum, const TensorOperand& a_scale,
                      const TensorOperand& b_scale);

/// What a block is computed from: `length` operands of each side, and the scale factors from the one of the
/// first product on (null without block scaling).
struct TensorBlock {
  int length;
  const TensorOperand* a;
  const TensorOperand* b;
  const TensorOperand* a_scales;
  const TensorOperand* b_scales;
};
/// One block by definition. `c` is an addend in the result's format with its exponent already scaled.
uint32_t accumulate_block(const TensorArith& arith, const TensorBlock& block, TensorOperand c);

/// `c` with the scaling of the input accumulator.
inline TensorOperand unpack_addend(const TensorArith& arith, uint32_t c, int scale_input_d) {
  TensorOperand addend = unpack(result_format(arith), c);
  if (!addend.is_zero()) addend.exponent -= scale_input_d;
  return addend;
}

/// The addition that ends the fp8 emulation: an ordinary one, to nearest.
uint32_t add_result(const TensorArith& arith, uint32_t sum, uint32_t c);

/// Where product `position` of the order of blocks stands in k.
inline int64_t product_index(const TensorArith& arith, int64_t k, int64_t position) {
  if (!arith.split_pairs) return position;
  const int64_t half = k / 2, within = position % half;
  return within / 2 * 4 + within % 2 + (position >= half ? 2 : 0);
}
/// Products per block for this k.
inline int block_length(const TensorArith& arith, int64_t k) {
  const int64_t length = arith.split_pairs ? k / 2 : arith.block_length;
  return static_cast<int>(length < k ? length : k);
}

}  // namespace imbrex::arith
