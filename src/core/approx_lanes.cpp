// SPDX-License-Identifier: Apache-2.0
// The compiler makes vectors of the loops here; all sums are exact in doubles.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/approx_lanes.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include <bit>

#include "core/approx.h"
#include "core/approx_tables.h"

HWY_BEFORE_NAMESPACE();
namespace imbrex::arith::HWY_NAMESPACE {

inline constexpr int64_t kPart = 16;

void ex2_vectors(const float* x, float* results, int64_t count, bool ftz) {
  constexpr uint32_t kInfinity = 0x7F800000, kNan = 0x7FFFFFFF;
  for (int64_t at = 0; at < count; at += kPart) {
    uint32_t fraction[kPart], above[kPart], below[kPart], result[kPart];
    int32_t biased[kPart], c0[kPart], c1[kPart], c2[kPart], square[kPart];
    for (int64_t i = 0; i < kPart; ++i) {
      const float operand = x[at + i];
      const bool is_halved = !ftz && operand < -126.0f;
      const auto bits = std::bit_cast<uint32_t>(is_halved ? operand * 0.5f : operand);
      const int32_t exponent = static_cast<int32_t>(bits >> 23 & 0xFF) - 127;
      const uint32_t significand = (bits & 0x7FFFFF) | 0x800000;
      // As a multiple of 2^-23; a negative one is complemented, which is one short of negating it, unless it is a whole
      // number.
      const int32_t left = exponent < 0 ? 0 : exponent > 7 ? 7 : exponent;
      const int32_t right = exponent >= 0 ? 0 : exponent < -31 ? 31 : -exponent;
      const uint32_t fixed = significand << left >> right;
      const auto whole = static_cast<int32_t>(fixed >> 23);
      const uint32_t part = fixed & 0x7FFFFF;
      const bool is_negative = bits >> 31 != 0;
      fraction[i] = is_negative && part != 0 ? ~part & 0x7FFFFF : part;
      biased[i] = 127 + (is_negative ? (part != 0 ? ~whole : -whole) : whole);
      const bool is_large = exponent >= 8;
      above[i] = (is_large && !is_negative) || biased[i] >= 255 ? 1 : 0;
      below[i] = (is_large && is_negative) || biased[i] <= 0 ? 1 : 0;
    }
    for (int64_t i = 0; i < kPart; ++i) {
      const detail::Segment& segment = detail::kEx2Table[fraction[i] >> 17];
      c0[i] = segment.c0;
      c1[i] = segment.c1;
      c2[i] = segment.c2;
    }
    for (int64_t i = 0; i < kPart; ++i)
      square[i] = static_cast<int32_t>(detail::truncated_square(fraction[i] & 0x1FFFF));
    for (int64_t i = 0; i < kPart; ++i) {
      const double sum = 16384.0 * c0[i] + 8074.0 + static_cast<double>(c1[i]) * (fraction[i] & 0x1FFFF) +
                         4.0 * c2[i] * square[i];
      result[i] = static_cast<uint32_t>(static_cast<int32_t>(sum * 0x1p-17)) & 0x7FFFFF;
    }
    for (int64_t i = 0; i < kPart; ++i) {
      const float operand = x[at + i];
      const uint32_t in_range = static_cast<uint32_t>(biased[i]) << 23 | result[i];
      const uint32_t bits = above[i] != 0 ? kInfinity : below[i] != 0 ? 0 : in_range;
      const auto value = std::bit_cast<float>(bits);
      const bool is_halved = !ftz && operand < -126.0f;
      const float squared = is_halved ? value * value : value;
      const bool is_nan = (std::bit_cast<uint32_t>(operand) & 0x7FFFFFFF) > kInfinity;
      results[at + i] = is_nan ? std::bit_cast<float>(kNan) : squared;
    }
  }
}

}  // namespace imbrex::arith::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace imbrex::arith {

HWY_EXPORT(ex2_vectors);

void ex2_approx_lanes(const float* x, float* results, int64_t count, bool ftz) {
  HWY_DYNAMIC_DISPATCH(ex2_vectors)(x, results, count, ftz);
}

}  // namespace imbrex::arith
#endif  // HWY_ONCE
