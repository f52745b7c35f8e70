// SPDX-License-Identifier: Apache-2.0
// f16 and bf16 arithmetic of PTX on bit patterns: one rounding to nearest even, subnormals kept, every NaN
// result 0x7FFF. The two-in-a-register forms are each_half of these (scalar_int.h):
//   each_half<uint16_t>(a, b, add_f16)
//
// Computed in f32, whose 24 bits are enough that rounding twice is rounding once for a sum, a product or a
// quotient of 11-bit significands; where the exact intermediate needs more (fma) it is rounded to odd first.
#pragma once

#include "core/float_formats.h"
#include "core/scalar_float.h"

namespace imbrex::arith {

namespace detail {
/// a + b in f32 rounded to odd. Operands must be far from the ends of the f32 range.
inline float sum_to_odd(float a, float b) {
  const float sum = a + b;
  const float b_part = sum - a;
  const float error = (a - (sum - b_part)) + (b - b_part);
  const uint32_t inexact = ((error < 0) | (error > 0)) ? 1 : 0;
  const uint32_t beyond = (f32_bits(error) ^ f32_bits(sum)) >> 31;
  return f32_from_bits((f32_bits(sum) - (beyond & inexact)) | inexact);
}
/// .relu: negative numbers and -0 become +0, NaN stays.
inline uint16_t relu16(uint16_t x, uint16_t infinity) {
  return (x & 0x8000) && (x & 0x7FFF) <= infinity ? uint16_t{0} : x;
}
}  // namespace detail

// ---- f16 -------------------------------------------------------------------------------------------------

inline uint16_t add_f16(uint16_t a, uint16_t b) { return f32_to_f16(f16_to_f32(a) + f16_to_f32(b)); }
inline uint16_t sub_f16(uint16_t a, uint16_t b) { return f32_to_f16(f16_to_f32(a) - f16_to_f32(b)); }
inline uint16_t mul_f16(uint16_t a, uint16_t b) { return f32_to_f16(f16_to_f32(a) * f16_to_f32(b)); }
inline uint16_t fma_f16(uint16_t a, uint16_t b, uint16_t c) {
  return f32_to_f16(detail::sum_to_odd(f16_to_f32(a) * f16_to_f32(b), f16_to_f32(c)));
}
inline uint16_t min_f16(uint16_t a, uint16_t b) { return f32_to_f16(min(f16_to_f32(a), f16_to_f32(b))); }
inline uint16_t max_f16(uint16_t a, uint16_t b) { return f32_to_f16(max(f16_to_f32(a), f16_to_f32(b))); }
/// neg, abs: NaN gives 0x7FFF.
inline uint16_t neg_f16(uint16_t a) { return f32_to_f16(-f16_to_f32(a)); }
inline uint16_t abs_f16(uint16_t a) { return f32_to_f16(abs(f16_to_f32(a))); }

// ---- bf16 ------------------------------------------------------------------------------------------------
// bf16 has the range of f32, so a product below 2^-126 would be rounded twice there: products are formed in
// double.

inline uint16_t add_bf16(uint16_t a, uint16_t b) { return f32_to_bf16(bf16_to_f32(a) + bf16_to_f32(b)); }
inline uint16_t sub_bf16(uint16_t a, uint16_t b) { return f32_to_bf16(bf16_to_f32(a) - bf16_to_f32(b)); }
inline uint16_t mul_bf16(uint16_t a, uint16_t b) {
  const double product = static_cast<double>(bf16_to_f32(a)) * static_cast<double>(bf16_to_f32(b));
  return f32_to_bf16(detail::narrow_to_odd(product));
}
inline uint16_t fma_bf16(uint16_t a, uint16_t b, uint16_t c) {
  const double product = static_cast<double>(bf16_to_f32(a)) * static_cast<double>(bf16_to_f32(b));
  return f32_to_bf16(detail::narrow_to_odd(detail::sum_to_odd(product, static_cast<double>(bf16_to_f32(c)))));
}
inline uint16_t min_bf16(uint16_t a, uint16_t b) { return f32_to_bf16(min(bf16_to_f32(a), bf16_to_f32(b))); }
inline uint16_t max_bf16(uint16_t a, uint16_t b) { return f32_to_bf16(max(bf16_to_f32(a), bf16_to_f32(b))); }
inline uint16_t neg_bf16(uint16_t a) { return f32_to_bf16(-bf16_to_f32(a)); }
inline uint16_t abs_bf16(uint16_t a) { return f32_to_bf16(abs(bf16_to_f32(a))); }

// ---- modifiers -------------------------------------------------------------------------------------------

/// .ftz on f16 (operands and results): subnormals to zero of the same sign. bf16 has no .ftz but in ex2.
inline uint16_t flush_f16(uint16_t a) { return (a & 0x7C00) == 0 ? a & 0x8000 : a; }
namespace detail {
/// .ftz on a result: `exact` in f32, exact or rounded to odd. As with f32 (flush_result of scalar_float.h)
/// what counts is the result with the exponents of f16 going on downwards, not the one rounded to f16's
/// subnormals.
inline uint16_t narrow_flushed_f16(float exact) {
  const uint16_t x = f32_to_f16(exact);
  const bool is_below =
      (x & 0x7FFF) == 0x0400 && f32_from_bits(f32_bits(exact) & 0x7FFFFFFF) < 0x1p-14f - 0x1p-26f;
  return (x & 0x7C00) == 0 || is_below ? x & 0x8000 : x;
}
}  // namespace detail
/// Operands and result flushed.
inline uint16_t mul_ftz_f16(uint16_t a, uint16_t b) {
  return detail::narrow_flushed_f16(f16_to_f32(flush_f16(a)) * f16_to_f32(flush_f16(b)));
}
inline uint16_t fma_ftz_f16(uint16_t a, uint16_t b, uint16_t c) {
  return detail::narrow_flushed_f16(
      detail::sum_to_odd(f16_to_f32(flush_f16(a)) * f16_to_f32(flush_f16(b)), f16_to_f32(flush_f16(c))));
}
/// .sat: clamped to [0, 1]; NaN gives +0.
inline uint16_t saturate_f16(uint16_t a) { return f32_to_f16(saturate(f16_to_f32(a))); }
/// .relu on a result.
inline uint16_t relu_f16(uint16_t a) { return detail::relu16(a, 0x7C00); }
inline uint16_t relu_bf16(uint16_t a) { return detail::relu16(a, 0x7F80); }
/// What a tensor load with NaN fill writes outside the tensor, and fma.oob: 0 when a or b is that pattern.
/// Measured on an H200; fma.oob takes it with either sign.
inline constexpr uint16_t kOutOfBoundsNan = 0x7FF7;
inline bool is_out_of_bounds(uint16_t x) { return (x & 0x7FFF) == kOutOfBoundsNan; }
inline uint16_t fma_oob_f16(uint16_t a, uint16_t b, uint16_t c) {
  return is_out_of_bounds(a) || is_out_of_bounds(b) ? uint16_t{0} : fma_f16(a, b, c);
}
inline uint16_t fma_oob_bf16(uint16_t a, uint16_t b, uint16_t c) {
  return is_out_of_bounds(a) || is_out_of_bounds(b) ? uint16_t{0} : fma_bf16(a, b, c);
}
/// min and max with .NaN and .xorsign.abs.
uint16_t min_f16(uint16_t a, uint16_t b, MinMaxMode mode);
uint16_t max_f16(uint16_t a, uint16_t b, MinMaxMode mode);
uint16_t min_bf16(uint16_t a, uint16_t b, MinMaxMode mode);
uint16_t max_bf16(uint16_t a, uint16_t b, MinMaxMode mode);

}  // namespace imbrex::arith
