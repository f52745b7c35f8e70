// SPDX-License-Identifier: Apache-2.0
// f32 and f64 arithmetic of PTX, with the NaNs of the hardware: f32 gives 0x7FFFFFFF for every NaN, f64 keeps
// the payload of the last NaN operand and gives 0xFFF8000000000000 for an invalid operation.
//
// f32 in double: a product of two floats is exact in a double, and a sum rounded to odd in 53 bits can be
// rounded again to 24 in any mode without error. That makes fma and the directed modes branch-free.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "core/float_formats.h"

namespace imbrex::arith {

/// The modifiers of a float instruction. `rounding` is not kNearestAway, which only `cvt` knows.
struct FloatMode {
  Rounding rounding = Rounding::kNearestEven;
  bool ftz = false;  ///< f32: subnormal operands and results become zeros of the same sign
  bool sat = false;  ///< f32: the result is clamped to [0, 1], NaN becomes +0
};

inline uint32_t f32_bits(float x) { return std::bit_cast<uint32_t>(x); }
inline float f32_from_bits(uint32_t bits) { return std::bit_cast<float>(bits); }
inline uint64_t f64_bits(double x) { return std::bit_cast<uint64_t>(x); }
inline double f64_from_bits(uint64_t bits) { return std::bit_cast<double>(bits); }
inline bool is_nan(float x) { return x != x; }
inline bool is_nan(double x) { return x != x; }

/// x, or the f32 NaN of the hardware.
inline float canonical(float x) { return is_nan(x) ? f32_from_bits(0x7FFFFFFF) : x; }
/// .ftz: subnormals to zero of the same sign.
inline float flush(float x) {
  const uint32_t bits = f32_bits(x);
  return f32_from_bits((bits & 0x7F800000) == 0 ? bits & 0x80000000 : bits);
}
/// .ftz on a result: `exact` is the number before it was rounded to `x`, as a double, exact or rounded to
/// odd. What counts is the result rounded to 24 bits as if exponents went on downwards, not the one rounded
/// to f32's subnormals: 2^-126 - 2^-150 is flushed although it rounds to 2^-126 (measured on H200, every
/// rounding).
inline float flush_result(float x, double exact, Rounding rounding = Rounding::kNearestEven) {
  const bool is_away = rounding == Rounding::kUp ? exact > 0 : rounding == Rounding::kDown && exact < 0;
  const double magnitude = exact < 0 ? -exact : exact;
  const bool is_below = rounding == Rounding::kNearestEven ? magnitude < 0x1p-126 - 0x1p-151
                                                           : is_away && magnitude <= 0x1p-126 - 0x1p-150;
  const uint32_t bits = f32_bits(x), exponent = bits & 0x7F800000;
  return f32_from_bits(exponent == 0 || (is_below && exponent == 0x00800000) ? bits & 0x80000000 : bits);
}
/// .sat: clamped to [0, 1]; NaN and -0 give +0.
inline float saturate(float x) {
  const float low = x > 0.0f ? x : 0.0f;
  return low > 1.0f ? 1.0f : low;
}
inline double saturate(double x) {
  const double low = x > 0.0 ? x : 0.0;
  return low > 1.0 ? 1.0 : low;
}

namespace detail {

/// `rounded`, the nearest double to some exact value, moved to the neighbour with an odd significand when the
/// value lies between two doubles. `error` is the value less `rounded`; only its sign matters, NaN means
/// exact.
inline double to_odd(double rounded, double error) {
  const uint64_t bits = f64_bits(rounded);
  const uint64_t inexact = ((error < 0) | (error > 0)) ? 1 : 0;
  // Back to the value cut toward zero, when the nearest lies beyond; then the last bit tells that it was cut.
  const uint64_t beyond = (f64_bits(error) ^ bits) >> 63;
  return f64_from_bits((bits - (beyond & inexact)) | inexact);
}
/// a + b rounded to odd.
inline double sum_to_odd(double a, double b) {
  const double sum = a + b;
  const double b_part = sum - a;
  const double error = (a - (sum - b_part)) + (b - b_part);
  return to_odd(sum, error);
}
/// A double, itself exact or rounded to odd, to f32 rounded to odd: a later rounding to fewer bits is exact.
inline float narrow_to_odd(double x) {
  const float nearest = static_cast<float>(x);
  const double back = nearest;
  const uint32_t inexact = ((back < x) | (back > x)) ? 1 : 0;
  const uint32_t beyond = std::fabs(back) > std::fabs(x) ? 1 : 0;
  return f32_from_bits((f32_bits(nearest) - (beyond & inexact)) | inexact);
}

}  // namespace detail

/// A double, exact or rounded to odd, to f32 (`cvt.f32.f64`); overflow follows the mode. NaN as the machine's
/// own conversion: quieted, sign and top payload bits kept.
inline float narrow(double x, Rounding rounding) {
  const float nearest = static_cast<float>(x);
  if (rounding == Rounding::kNearestEven) return nearest;
  const double back = nearest;
  const uint32_t bits = f32_bits(nearest);
  const bool negative = static_cast<int32_t>(bits) < 0;
  const bool too_high = back > x, too_low = back < x;
  bool inward = false, outward = false;
  if (rounding == Rounding::kTowardZero) inward = negative ? too_low : too_high;
  if (rounding == Rounding::kDown) (negative ? outward : inward) = too_high;
  if (rounding == Rounding::kUp) (negative ? inward : outward) = too_low;
  return f32_from_bits(bits + (outward ? 1u : 0u) - (inward ? 1u : 0u));
}

// ---- f32, round to nearest even --------------------------------------------------------------------------

inline float add(float a, float b) { return canonical(a + b); }
inline float sub(float a, float b) { return canonical(a - b); }
inline float mul(float a, float b) { return canonical(a * b); }
inline float div(float a, float b) { return canonical(a / b); }
inline float rcp(float a) { return canonical(1.0f / a); }
inline float sqrt(float a) { return canonical(std::sqrt(a)); }
/// One rounding. Not std::fma: without the instruction that is a library call, and does not vectorise.
inline float fma(float a, float b, float c) {
#ifdef __FMA__
  return canonical(__builtin_fmaf(a, b, c));
#else
  return canonical(static_cast<float>(
      detail::sum_to_odd(static_cast<double>(a) * static_cast<double>(b), static_cast<double>(c))));
#endif
}
/// neg, abs: NaN gives the canonical NaN.
inline float neg(float a) { return canonical(-a); }
inline float abs(float a) { return canonical(f32_from_bits(f32_bits(a) & 0x7FFFFFFF)); }

// ---- f32, every mode -------------------------------------------------------------------------------------

float add(float a, float b, FloatMode mode);
float sub(float a, float b, FloatMode mode);
float mul(float a, float b, FloatMode mode);
float fma(float a, float b, float c, FloatMode mode);
float div(float a, float b, FloatMode mode);
float rcp(float a, FloatMode mode);
float sqrt(float a, FloatMode mode);

// ---- f64 -------------------------------------------------------------------------------------------------

namespace detail {
inline double quiet(double nan) { return f64_from_bits(f64_bits(nan) | 0x0008000000000000); }
/// The NaN rules of f64 applied to a result computed from a and b.
inline double propagate(double result, double a, double b) {
  if (is_nan(b)) return quiet(b);
  if (is_nan(a)) return quiet(a);
  return is_nan(result) ? f64_from_bits(0xFFF8000000000000) : result;
}
}  // namespace detail

inline double add(double a, double b) { return detail::propagate(a + b, a, b); }
inline double sub(double a, double b) { return detail::propagate(a - b, a, b); }
/// old + value as atomics do it (measured on H200). In global memory, bulk reductions included, a NaN comes
/// out as it is, not quieted, and of two the value's; in shared memory it is quieted, and of two the old
/// one's is kept.
inline uint64_t add_in_global_memory(uint64_t old, uint64_t value) {
  if (is_nan(f64_from_bits(value))) return value;
  return is_nan(f64_from_bits(old)) ? old : f64_bits(add(f64_from_bits(old), f64_from_bits(value)));
}
inline uint64_t add_in_shared_memory(uint64_t old, uint64_t value) {
  return f64_bits(add(f64_from_bits(value), f64_from_bits(old)));
}
inline double mul(double a, double b) { return detail::propagate(a * b, a, b); }
/// Of two NaN operands the first one's payload is kept, unlike add and mul (measured on H200).
inline double div(double a, double b) {
  return is_nan(a) ? detail::quiet(a) : detail::propagate(a / b, a, b);
}
inline double rcp(double a) { return detail::propagate(1.0 / a, a, a); }
inline double sqrt(double a) { return detail::propagate(std::sqrt(a), a, a); }
/// Of several NaN operands b's payload is kept before c's, and c's before a's (measured on H200).
inline double fma(double a, double b, double c) {
  if (is_nan(b)) return detail::quiet(b);
  return is_nan(c) ? detail::quiet(c) : detail::propagate(std::fma(a, b, c), a, b);
}
/// neg, abs: only the sign bit changes, but a NaN is quieted and keeps its sign (measured on H200).
inline double neg(double a) {
  return is_nan(a) ? detail::quiet(a) : f64_from_bits(f64_bits(a) ^ 0x8000000000000000);
}
inline double abs(double a) {
  return is_nan(a) ? detail::quiet(a) : f64_from_bits(f64_bits(a) & 0x7FFFFFFFFFFFFFFF);
}

double add(double a, double b, Rounding rounding);
double sub(double a, double b, Rounding rounding);
double mul(double a, double b, Rounding rounding);
double fma(double a, double b, double c, Rounding rounding);
double div(double a, double b, Rounding rounding);
double rcp(double a, Rounding rounding);
double sqrt(double a, Rounding rounding);

// ---- min, max --------------------------------------------------------------------------------------------

namespace detail {
/// An integer that orders f32 as numbers, -0 before +0.
inline int32_t order_key(float x) {
  const int32_t bits = std::bit_cast<int32_t>(x);
  return bits ^ ((bits >> 31) & 0x7FFFFFFF);
}
inline int64_t order_key(double x) {
  const int64_t bits = std::bit_cast<int64_t>(x);
  return bits ^ ((bits >> 63) & 0x7FFFFFFFFFFFFFFF);
}
}  // namespace detail

/// min, max: a NaN operand is ignored, two give the canonical NaN; -0 is less than +0.
inline float min(float a, float b) {
  const float less = detail::order_key(a) < detail::order_key(b) ? a : b;
  return canonical(is_nan(a) ? b : is_nan(b) ? a : less);
}
inline float max(float a, float b) {
  const float more = detail::order_key(a) > detail::order_key(b) ? a : b;
  return canonical(is_nan(a) ? b : is_nan(b) ? a : more);
}
inline double min(double a, double b) {
  if (is_nan(a) || is_nan(b)) return is_nan(a) ? (is_nan(b) ? detail::quiet(b) : b) : a;
  return detail::order_key(a) < detail::order_key(b) ? a : b;
}
inline double max(double a, double b) {
  if (is_nan(a) || is_nan(b)) return is_nan(a) ? (is_nan(b) ? detail::quiet(b) : b) : a;
  return detail::order_key(a) > detail::order_key(b) ? a : b;
}

/// The modifiers of min and max.
struct MinMaxMode {
  bool ftz = false;
  bool nan = false;          ///< .NaN: a NaN operand gives the canonical NaN
  bool xorsign_abs = false;  ///< .xorsign.abs: of the magnitudes, signed by the xor of the signs
};
float min(float a, float b, MinMaxMode mode);
float max(float a, float b, MinMaxMode mode);

// ---- tests and comparisons -------------------------------------------------------------------------------

/// copysign: the magnitude of b with the sign of a (PTX's operand order).
inline float copysign(float a, float b) {
  return f32_from_bits((f32_bits(a) & 0x80000000) | (f32_bits(b) & 0x7FFFFFFF));
}
inline double copysign(double a, double b) {
  return f64_from_bits((f64_bits(a) & 0x8000000000000000) | (f64_bits(b) & 0x7FFFFFFFFFFFFFFF));
}

/// testp.
enum class FloatTest : uint8_t { kFinite, kInfinite, kNumber, kNotANumber, kNormal, kSubnormal };
template <typename T>
bool testp(FloatTest test, T x) {
  const int kind = std::fpclassify(x);
  switch (test) {
    case FloatTest::kFinite:
      return kind != FP_NAN && kind != FP_INFINITE;
    case FloatTest::kInfinite:
      return kind == FP_INFINITE;
    case FloatTest::kNumber:
      return kind != FP_NAN;
    case FloatTest::kNotANumber:
      return kind == FP_NAN;
    case FloatTest::kNormal:
      return kind == FP_NORMAL || kind == FP_ZERO;  // zero counts as normal (measured on H200)
    case FloatTest::kSubnormal:
      return kind == FP_SUBNORMAL;
  }
  return false;
}

/// The comparisons of setp and set. The second half are float-only: as the first but true when an operand is
/// NaN (.equ ... .geu), both numbers (.num), any NaN (.nan). Unsigned integers' lo, ls, hi, hs are kLt, kLe,
/// kGt, kGe of an unsigned type.
enum class Compare : uint8_t { kEq, kNe, kLt, kLe, kGt, kGe, kEqu, kNeu, kLtu, kLeu, kGtu, kGeu, kNum, kNan };
template <typename T>
constexpr bool compare(Compare op, T a, T b) {
  switch (op) {
    case Compare::kEq:
      return a == b;
    case Compare::kNe:
      return a < b || a > b;  // false for NaN, unlike !=
    case Compare::kLt:
      return a < b;
    case Compare::kLe:
      return a <= b;
    case Compare::kGt:
      return a > b;
    case Compare::kGe:
      return a >= b;
    case Compare::kEqu:
      return !(a < b || a > b);
    case Compare::kNeu:
      return !(a == b);
    case Compare::kLtu:
      return !(a >= b);
    case Compare::kLeu:
      return !(a > b);
    case Compare::kGtu:
      return !(a <= b);
    case Compare::kGeu:
      return !(a < b);
    case Compare::kNum:
      return a == a && b == b;
    case Compare::kNan:
      return a != a || b != b;
  }
  return false;
}

}  // namespace imbrex::arith
