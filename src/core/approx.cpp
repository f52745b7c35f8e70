// SPDX-License-Identifier: Apache-2.0
#include "core/approx.h"

#include <bit>
#include <cmath>

#include "core/approx_tables.h"
#include "core/float_formats.h"
#include "core/scalar_float.h"

namespace imbrex::arith {

namespace {

using detail::Segment;

constexpr uint32_t kNan = 0x7FFFFFFF;
constexpr uint32_t kInfinity = 0x7F800000;
constexpr uint32_t kOne = 0x3F800000;

/// The quadratic of a segment at the 17-bit fraction t, in units of 2^-17 of the segment's own.
int64_t quadratic(const Segment& segment, uint32_t t, int beta) {
  const int64_t square = int64_t{detail::truncated_square(t)} * 4;
  return int64_t{segment.c0} * 16384 + beta + int64_t{segment.c1} * t + int64_t{segment.c2} * square;
}

/// magnitude * 2^exponent cut to 24 significant bits; below the normal range zero.
uint32_t cut_to_f32(uint32_t sign, uint64_t magnitude, int exponent) {
  if (magnitude == 0) return sign;
  const int top = 63 - std::countl_zero(magnitude);
  const auto significand =
      static_cast<uint32_t>(top >= 23 ? magnitude >> (top - 23) : magnitude << (23 - top));
  const int biased = top + exponent + 127;
  return biased <= 0 ? sign : sign | static_cast<uint32_t>(biased) << 23 | (significand & 0x7FFFFF);
}

/// A finite, normal operand taken apart.
struct Operand {
  uint32_t sign;      ///< 0 or 0x80000000
  int exponent;       ///< unbiased
  uint32_t mantissa;  ///< 23 bits, without the leading one
  uint64_t significand() const { return mantissa | 0x800000; }
};

/// Of 1.mantissa, 23 bits: in (1/2, 1], in units of 2^-24.
uint32_t reciprocal(uint32_t mantissa) {
  return static_cast<uint32_t>(quadratic(detail::kRcpTable[mantissa >> 16], (mantissa & 0xFFFF) << 1, 8094) >>
                               17);
}

uint32_t unit_rcp(Operand x) {
  const uint32_t y = reciprocal(x.mantissa);
  const int biased = 126 - x.exponent + static_cast<int>(y >> 24);
  return biased <= 0 ? x.sign : x.sign | static_cast<uint32_t>(biased) << 23 | (y & 0x7FFFFF);
}

/// Row of the root tables: their second half is for odd exponents.
uint32_t root_row(Operand x) { return static_cast<uint32_t>(x.exponent & 1) * 64 + (x.mantissa >> 17); }

/// Of the significand and the exponent's last bit: in (1/2, 1], in units of 2^-24.
uint32_t reciprocal_root(Operand x) {
  if ((x.exponent & 1) == 0 && x.mantissa == 0) return 1u << 24;  // powers of four are exact
  return static_cast<uint32_t>(quadratic(detail::kRsqrtTable[root_row(x)], x.mantissa & 0x1FFFF, -1) >> 17);
}

uint32_t unit_rsqrt(Operand x) {
  const int half = x.exponent >> 1;
  const uint32_t y = reciprocal_root(x);
  return static_cast<uint32_t>(126 - half + static_cast<int>(y >> 24)) << 23 | (y & 0x7FFFFF);
}

uint32_t unit_sqrt(Operand x) {
  const int half = x.exponent >> 1;
  const auto y =
      static_cast<uint32_t>(quadratic(detail::kSqrtTable[root_row(x)], x.mantissa & 0x1FFFF, -1) >> 18);
  return static_cast<uint32_t>(127 + half) << 23 | (y & 0x7FFFFF);
}

uint32_t unit_ex2(Operand x) {
  if (x.exponent >= 8) return x.sign ? 0 : kInfinity;
  // The operand as a multiple of 2^-23; a negative one is complemented, which is one short of negating it,
  // unless it is a whole number.
  int64_t fixed = 0;
  if (x.exponent >= -23)
    fixed = static_cast<int64_t>(x.exponent >= 0 ? x.significand() << x.exponent
                                                 : x.significand() >> -x.exponent);
  if (x.sign) fixed = (fixed & 0x7FFFFF) != 0 ? ~fixed : -fixed;
  const uint32_t fraction = static_cast<uint32_t>(fixed) & 0x7FFFFF;
  const int64_t biased = (fixed >> 23) + 127;
  if (biased >= 255) return kInfinity;
  if (biased <= 0) return 0;
  const auto y =
      static_cast<uint32_t>(quadratic(detail::kEx2Table[fraction >> 17], fraction & 0x1FFFF, 8074) >> 17);
  return static_cast<uint32_t>(biased) << 23 | (y & 0x7FFFFF);
}

uint32_t unit_lg2(Operand x) {
  if (x.exponent == 0 && x.mantissa == 0) return 0;
  const int64_t value = int64_t{x.exponent} * (int64_t{1} << 40) +
                        quadratic(detail::kLg2Table[x.mantissa >> 17], x.mantissa & 0x1FFFF, 3350);
  const auto magnitude = static_cast<uint64_t>(value < 0 ? -value : value);
  return cut_to_f32(value < 0 ? 0x80000000 : 0, magnitude & ~uint64_t{15}, -40);  // multiples of 2^-36
}

/// sin of `fixed` * 2^-25 revolutions.
uint32_t sine(uint32_t sign, uint64_t fixed) {
  const auto quadrant = static_cast<uint32_t>(fixed >> 23) & 3;
  uint32_t fraction = static_cast<uint32_t>(fixed) & 0x7FFFFF;
  if (quadrant & 2) sign ^= 0x80000000;
  if (quadrant & 1) {
    if (fraction == 0) return sign | kOne;
    fraction = ~fraction & 0x7FFFFF;
  }
  const int64_t value = quadratic(detail::kSinTable[fraction >> 17], fraction & 0x1FFFF, 0);
  return cut_to_f32(sign, static_cast<uint64_t>(value), -41);
}

/// |x| in units of 2^-25, modulo one.
uint64_t fixed_revolutions(Operand x) {
  const int shift = x.exponent + 2;
  if (shift >= 25 || shift <= -24) return 0;
  return shift >= 0 ? x.significand() << shift : x.significand() >> -shift;
}

uint32_t unit_tanh(Operand x, uint32_t bits) {
  if (x.exponent >= 3) return x.sign | kOne;
  if (x.exponent < -8) return bits;
  // Each binade from 2^-8 on has its own number of rows, a power of two.
  constexpr int kRowBits[11] = {0, 0, 0, 1, 1, 2, 2, 2, 3, 4, 3};
  constexpr int kFirstRow[11] = {0, 1, 2, 3, 5, 7, 11, 15, 19, 27, 43};
  const int row_bits = kRowBits[x.exponent + 8];
  const uint32_t row = static_cast<uint32_t>(kFirstRow[x.exponent + 8]) + (x.mantissa >> (23 - row_bits));
  const uint32_t t = x.mantissa >> (6 - row_bits) & 0x1FFFF;
  return cut_to_f32(x.sign, static_cast<uint64_t>(quadratic(detail::kTanhTable[row], t, 0)), -41);
}

}  // namespace

uint32_t mufu(Mufu function, uint32_t x) {
  const uint32_t magnitude = x & 0x7FFFFFFF;
  if (magnitude > kInfinity) return kNan;
  const Operand operand{x & 0x80000000, static_cast<int>(magnitude >> 23) - 127, x & 0x7FFFFF};
  const bool zero = magnitude < 0x00800000, infinite = magnitude == kInfinity;
  const bool negative = operand.sign != 0;
  switch (function) {
    case Mufu::kRcp:
      if (infinite) return operand.sign;
      return zero ? operand.sign | kInfinity : unit_rcp(operand);
    case Mufu::kRsqrt:
      if (zero) return operand.sign | kInfinity;
      if (negative) return kNan;
      return infinite ? 0 : unit_rsqrt(operand);
    case Mufu::kSqrt:
      if (zero) return operand.sign;
      if (negative) return kNan;
      return infinite ? kInfinity : unit_sqrt(operand);
    case Mufu::kEx2:
      return unit_ex2(operand);
    case Mufu::kLg2:
      if (zero) return 0xFF800000;
      if (negative) return kNan;
      return infinite ? kInfinity : unit_lg2(operand);
    case Mufu::kSin:
      if (infinite) return kNan;
      return sine(operand.sign, fixed_revolutions(operand));
    case Mufu::kCos:
      if (infinite) return kNan;
      return sine(0, fixed_revolutions(operand) + (1u << 23));
    case Mufu::kTanh:
      return unit_tanh(operand, x);
  }
  return kNan;
}

namespace {

float unit(Mufu function, float x) { return f32_from_bits(mufu(function, f32_bits(x))); }
bool is_subnormal_or_zero(float x) { return std::fabs(x) < 0x1p-126f; }

/// The unit with its operand scaled out of the subnormal range.
float scaled_up(Mufu function, float x) { return unit(function, x * 0x1p24f); }

/// Cut toward zero, but what lies beyond the format's last binade is an infinity.
uint16_t cut_to_16(const FloatFormat& format, uint32_t result) {
  const double x = f32_from_bits(result);
  const bool overflows = std::fabs(x) >= std::ldexp(1.0, format.bias + 1);
  return static_cast<uint16_t>(
      encode(format, x, {.rounding = overflows ? Rounding::kNearestEven : Rounding::kTowardZero}));
}

}  // namespace

float ex2_approx(float x, bool ftz) {
  if (ftz || !(x < -126.0f)) return unit(Mufu::kEx2, x);
  const float root = unit(Mufu::kEx2, x * 0.5f);
  return mul(root, root);
}
float lg2_approx(float x, bool ftz) {
  if (ftz || !is_subnormal_or_zero(x)) return unit(Mufu::kLg2, x);
  return add(scaled_up(Mufu::kLg2, x), -24.0f);
}
float rcp_approx(float x, bool ftz) {
  if (ftz) return unit(Mufu::kRcp, x);
  const float scale = is_subnormal_or_zero(x) ? 0x1p24f : std::fabs(x) > 0x1p126f ? 0.25f : 1.0f;
  return mul(scale, unit(Mufu::kRcp, x * scale));
}
namespace {
constexpr uint32_t kInfinity64 = 0x7FF00000, kNan64 = 0x7FFFFFFF;  // upper halves
}
double rcp_approx_ftz(double x) {
  const auto high = static_cast<uint32_t>(std::bit_cast<uint64_t>(x) >> 32);
  const uint32_t sign = high & 0x80000000, mantissa = high & 0xFFFFF;
  const int exponent = static_cast<int>(high >> 20 & 0x7FF);
  const auto result = [](uint32_t bits) { return std::bit_cast<double>(uint64_t{bits} << 32); };
  // A NaN whose payload lies in the lower 32 bits alone is an infinity to the unit.
  if (exponent == 0x7FF) return result(mantissa != 0 ? kNan64 : sign);
  if (exponent == 0) return result(sign | kInfinity64);
  const uint32_t y = reciprocal(mantissa << 3);
  const int biased = 1022 - (exponent - 1023) + static_cast<int>(y >> 24);
  return result(biased <= 0 ? sign : sign | static_cast<uint32_t>(biased) << 20 | (y & 0x7FFFFF) >> 3);
}
double rsqrt_approx_ftz(double x) {
  const auto high = static_cast<uint32_t>(std::bit_cast<uint64_t>(x) >> 32);
  const uint32_t sign = high & 0x80000000, mantissa = high & 0xFFFFF;
  const int exponent = static_cast<int>(high >> 20 & 0x7FF) - 1023;
  const auto result = [](uint32_t bits) { return std::bit_cast<double>(uint64_t{bits} << 32); };
  if (exponent == -1023) return result(sign | kInfinity64);
  if ((exponent == 1024 && mantissa != 0) || sign != 0) return result(kNan64);
  if (exponent == 1024) return result(0);
  const uint32_t y = reciprocal_root({0, exponent, mantissa << 3});
  const auto biased = static_cast<uint32_t>(1022 - (exponent >> 1) + static_cast<int>(y >> 24));
  return result(biased << 20 | (y & 0x7FFFFF) >> 3);
}
float rsqrt_approx(float x, bool ftz) {
  if (ftz || !is_subnormal_or_zero(x)) return unit(Mufu::kRsqrt, x);
  return mul(scaled_up(Mufu::kRsqrt, x), 0x1p12f);
}
float sqrt_approx(float x, bool ftz) {
  if (ftz || !is_subnormal_or_zero(x)) return unit(Mufu::kSqrt, x);
  return mul(scaled_up(Mufu::kSqrt, x), 0x1p-12f);
}

namespace {
/// Radians to revolutions: times 1/(2 pi) in f32, toward zero.
float revolutions(float x) { return mul(x, f32_from_bits(0x3E22F983), {.rounding = Rounding::kTowardZero}); }
}  // namespace

float sin_approx(float x) { return unit(Mufu::kSin, revolutions(x)); }
float cos_approx(float x) { return unit(Mufu::kCos, revolutions(x)); }
float tanh_approx(float x) { return unit(Mufu::kTanh, x); }

namespace {
/// mul(), at once where the host's product is that: nothing is subnormal, near it, or not finite.
float product(float a, float b, FloatMode mode) {
  const auto is_ordinary = [](float x) { return (f32_bits(x) >> 23 & 0xFF) - 2 < 252; };
  const float plain = a * b;
  return is_ordinary(a) && is_ordinary(b) && is_ordinary(plain) ? plain : mul(a, b, mode);
}
}  // namespace

float div_approx(float a, float b, bool ftz) {
  if (ftz) return product(unit(Mufu::kRcp, b), a, {.ftz = true});
  const float scale = is_subnormal_or_zero(b) ? 0x1p24f : 1.0f;
  return mul(unit(Mufu::kRcp, b * scale), a * scale);
}

float div_full(float a, float b, bool ftz) {
  float scale = std::fabs(b) > 0x1p126f ? 0.25f : 1.0f;
  if (!ftz && is_subnormal_or_zero(b)) scale = 0x1p24f;
  const FloatMode mode{.ftz = ftz};
  if (scale != 1.0f) a = mul(a, scale, mode), b = mul(b, scale, mode);
  return product(unit(Mufu::kRcp, b), a, mode);
}

uint16_t ex2_approx_f16(uint16_t x) { return cut_to_16(kF16, mufu(Mufu::kEx2, f32_bits(f16_to_f32(x)))); }
uint16_t ex2_approx_ftz_bf16(uint16_t x) {
  return cut_to_16(kBF16, mufu(Mufu::kEx2, f32_bits(bf16_to_f32(x))));
}
uint16_t tanh_approx_f16(uint16_t x) { return cut_to_16(kF16, mufu(Mufu::kTanh, f32_bits(f16_to_f32(x)))); }
uint16_t tanh_approx_bf16(uint16_t x) {
  return cut_to_16(kBF16, mufu(Mufu::kTanh, f32_bits(bf16_to_f32(x))));
}

}  // namespace imbrex::arith
