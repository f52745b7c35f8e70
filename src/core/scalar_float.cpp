// SPDX-License-Identifier: Apache-2.0
// The forms with modifiers. f32 goes through double; f64 in the directed modes is computed in integers, since
// switching the machine's rounding mode around a compiler's optimiser cannot be made safe.
#include "core/scalar_float.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace imbrex::arith {

namespace {

/// The whole treatment of an f32 instruction around its exact-or-odd double result.
float finish(double result, FloatMode mode) {
  float x = canonical(narrow(result, mode.rounding));
  if (mode.ftz) x = flush_result(x, result, mode.rounding);
  if (mode.sat) x = saturate(x);
  return x;
}
double operand(float x, FloatMode mode) { return mode.ftz ? flush(x) : x; }

/// A zero sum of two numbers that are not both zeros of one sign: +0, or -0 when rounding down.
double signed_zero_sum(double sum, double a, double b, Rounding rounding) {
  if (sum == 0 && rounding == Rounding::kDown && (std::signbit(a) || std::signbit(b))) return -0.0;
  return sum;
}

}  // namespace

float add(float a, float b, FloatMode mode) {
  const double x = operand(a, mode), y = operand(b, mode);
  return finish(signed_zero_sum(detail::sum_to_odd(x, y), x, y, mode.rounding), mode);
}
float sub(float a, float b, FloatMode mode) { return add(a, f32_from_bits(f32_bits(b) ^ 0x80000000), mode); }
float mul(float a, float b, FloatMode mode) { return finish(operand(a, mode) * operand(b, mode), mode); }
float fma(float a, float b, float c, FloatMode mode) {
  const double product = operand(a, mode) * operand(b, mode), addend = operand(c, mode);
  return finish(signed_zero_sum(detail::sum_to_odd(product, addend), product, addend, mode.rounding), mode);
}
// A quotient or root of 24-bit numbers that is not itself short lies so far from every number of up to 25
// bits that rounding it to a double first does not change the side.
float div(float a, float b, FloatMode mode) { return finish(operand(a, mode) / operand(b, mode), mode); }
float rcp(float a, FloatMode mode) { return finish(1.0 / operand(a, mode), mode); }
float sqrt(float a, FloatMode mode) { return finish(std::sqrt(operand(a, mode)), mode); }

namespace {

using Wide = unsigned __int128;

int top_bit(Wide x) {
  const auto high = static_cast<uint64_t>(x >> 64);
  return high != 0 ? 127 - std::countl_zero(high) : 63 - std::countl_zero(static_cast<uint64_t>(x));
}

/// +-significand * 2^exponent, exact but for a set lowest bit that may stand for anything below it.
struct Number {
  bool negative;
  Wide significand;
  int exponent;
};

Number number_of(double x) {
  const uint64_t bits = f64_bits(x), fraction = bits & 0xFFFFFFFFFFFFF;
  const int biased = static_cast<int>(bits >> 52 & 0x7FF);
  return {std::signbit(x), biased == 0 ? fraction : fraction | uint64_t{1} << 52,
          (biased == 0 ? 1 : biased) - 1075};
}

/// Shifts right, keeping in the lowest bit whether anything was lost.
Wide shift_sticky(Wide x, int places) {
  if (places == 0) return x;
  if (places > 127) return x != 0;
  return x >> places | ((x & ((Wide{1} << places) - 1)) != 0);
}

double round_to_f64(Number x, Rounding rounding) {
  const double sign = x.negative ? -1.0 : 1.0;
  if (x.significand == 0) return sign * 0.0;
  const int unit = std::max(top_bit(x.significand) + x.exponent - 52, -1074);
  int shift = unit - x.exponent;
  if (shift < 0) x.significand <<= -shift, shift = 0;  // at most 53 bits stay
  // Two places below the unit tell every mode what to do.
  const Wide scaled = shift >= 2 ? shift_sticky(x.significand, shift - 2) : x.significand << (2 - shift);
  auto whole = static_cast<uint64_t>(scaled >> 2);
  const auto rest = static_cast<unsigned>(scaled & 3);
  const bool away = rounding == Rounding::kNearestEven ? rest > 2 || (rest == 2 && (whole & 1))
                    : rounding == Rounding::kUp        ? !x.negative && rest != 0
                    : rounding == Rounding::kDown      ? x.negative && rest != 0
                                                       : false;
  whole += away;
  if (whole == uint64_t{1} << 53 && unit == 971) {  // one past the largest number
    return sign * HUGE_VAL;
  }
  if (unit > 971) {
    const bool stays_finite =
        rounding == Rounding::kTowardZero || rounding == (x.negative ? Rounding::kUp : Rounding::kDown);
    return sign * (stays_finite ? std::numeric_limits<double>::max() : HUGE_VAL);
  }
  return sign * std::ldexp(static_cast<double>(whole), unit);
}

double add_exactly(Number a, Number b, Rounding rounding) {
  if (a.significand == 0 || b.significand == 0) {
    if (a.significand == 0 && b.significand == 0) {
      if (a.negative == b.negative) return a.negative ? -0.0 : 0.0;
      return rounding == Rounding::kDown ? -0.0 : 0.0;
    }
    return round_to_f64(a.significand == 0 ? b : a, rounding);
  }
  if (top_bit(a.significand) + a.exponent < top_bit(b.significand) + b.exponent) std::swap(a, b);
  // The larger one is moved to the top of the word (one bit is left for the carry), the smaller one onto its
  // grid. What falls off the smaller one lies far below the result's last place: then nothing cancels.
  const int up = 125 - top_bit(a.significand);
  a.significand <<= up;
  a.exponent -= up;
  const int down = a.exponent - b.exponent;
  b.significand = down >= 0 ? shift_sticky(b.significand, std::min(down, 128)) : b.significand << -down;
  Number sum{a.negative, 0, a.exponent};
  if (a.negative == b.negative) {
    sum.significand = a.significand + b.significand;
  } else if (a.significand >= b.significand) {
    sum.significand = a.significand - b.significand;
  } else {
    sum.significand = b.significand - a.significand;
    sum.negative = b.negative;
  }
  if (sum.significand == 0) return rounding == Rounding::kDown ? -0.0 : 0.0;
  return round_to_f64(sum, rounding);
}

Number product(double a, double b) {
  const Number x = number_of(a), y = number_of(b);
  return {x.negative != y.negative, x.significand * y.significand, x.exponent + y.exponent};
}

Wide integer_sqrt(Wide x) {
  Wide root = 0;
  for (int bit = 63; bit >= 0; --bit) {
    const Wide trial = root | Wide{1} << bit;
    if (trial <= x / trial) root = trial;
  }
  return root;
}

bool finite(double a) { return std::isfinite(a); }

}  // namespace

double add(double a, double b, Rounding rounding) {
  if (rounding == Rounding::kNearestEven || !finite(a) || !finite(b)) return add(a, b);
  return add_exactly(number_of(a), number_of(b), rounding);
}
double sub(double a, double b, Rounding rounding) {
  if (is_nan(b)) return sub(a, b);  // the sign of a NaN is not turned
  return add(a, neg(b), rounding);
}
double mul(double a, double b, Rounding rounding) {
  if (rounding == Rounding::kNearestEven || !finite(a) || !finite(b)) return mul(a, b);
  return round_to_f64(product(a, b), rounding);
}
double fma(double a, double b, double c, Rounding rounding) {
  if (rounding == Rounding::kNearestEven || !finite(a) || !finite(b) || !finite(c)) return fma(a, b, c);
  return add_exactly(product(a, b), number_of(c), rounding);
}
double div(double a, double b, Rounding rounding) {
  if (rounding == Rounding::kNearestEven || !finite(a) || !finite(b) || a == 0 || b == 0) return div(a, b);
  Number x = number_of(a);
  const Number y = number_of(b);
  const int up = 126 - top_bit(x.significand);  // at least 74 quotient bits
  x.significand <<= up;
  const Wide quotient = x.significand / y.significand;
  const bool inexact = quotient * y.significand != x.significand;
  return round_to_f64({x.negative != y.negative, quotient | inexact, x.exponent - up - y.exponent}, rounding);
}
double rcp(double a, Rounding rounding) { return div(1.0, a, rounding); }
double sqrt(double a, Rounding rounding) {
  if (rounding == Rounding::kNearestEven || !finite(a) || !(a > 0)) return sqrt(a);
  Number x = number_of(a);
  int up = 126 - top_bit(x.significand);
  if ((x.exponent - up) % 2 != 0) --up;
  x.significand <<= up;
  const Wide root = integer_sqrt(x.significand);
  // One more place below the root's last, so that the sticky bit is below every place that counts.
  const bool inexact = root * root != x.significand;
  return round_to_f64({false, root << 2 | inexact, (x.exponent - up) / 2 - 2}, rounding);
}

namespace {
template <typename Pick>
float pick(float a, float b, MinMaxMode mode, Pick smaller_or_larger) {
  if (mode.ftz) a = flush(a), b = flush(b);
  if (mode.nan && (is_nan(a) || is_nan(b))) return f32_from_bits(0x7FFFFFFF);
  if (!mode.xorsign_abs) return smaller_or_larger(a, b);
  const float magnitude = smaller_or_larger(abs(a), abs(b));
  if (is_nan(magnitude)) return magnitude;
  return f32_from_bits(f32_bits(magnitude) | ((f32_bits(a) ^ f32_bits(b)) & 0x80000000));
}
}  // namespace

float min(float a, float b, MinMaxMode mode) {
  return pick(a, b, mode, [](float x, float y) { return min(x, y); });
}
float max(float a, float b, MinMaxMode mode) {
  return pick(a, b, mode, [](float x, float y) { return max(x, y); });
}

}  // namespace imbrex::arith
