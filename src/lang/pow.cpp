// SPDX-License-Identifier: Apache-2.0
// a^b, as 2^(b log2 a). Of float32 two instructions of the GPU do that. Of float64 there are none: the logarithm is a series
// in pairs of numbers, since each of its bits is multiplied by up to 1024 and then is an exponent.
#include <cmath>
#include <limits>
#include <numbers>

#include "lang/num_arg.h"

namespace imbrex {

using namespace lang;  // of num_arg.h

namespace {

NumArg add(const NumArg& a, const NumArg& b) { return apply(Arith::kAdd, a, b); }
NumArg sub(const NumArg& a, const NumArg& b) { return apply(Arith::kSub, a, b); }
NumArg mul(const NumArg& a, const NumArg& b) { return apply(Arith::kMul, a, b); }
NumArg negated(const NumArg& a) { return apply(Unary::kNeg, a); }

/// The sum of two numbers, of which the second is at most half a unit in the last place of the first.
struct Pair {
  NumArg high, low;
};
/// Of a sum whose first number is larger.
Pair pair_of(const NumArg& high, const NumArg& low) {
  const NumArg sum = add(high, low);
  return {sum, sub(low, sub(sum, high))};
}
Pair exact_product(const NumArg& a, const NumArg& b) {
  const NumArg high = mul(a, b);
  return {high, fused(a, b, negated(high))};
}
Pair product(const Pair& a, const Pair& b) {
  const Pair p = exact_product(a.high, b.high);
  return pair_of(p.high, add(p.low, fused(a.high, b.low, mul(a.low, b.high))));
}
/// |a| >= |b|, or a = 0.
Pair sum(const Pair& a, const Pair& b) {
  const Pair s = pair_of(a.high, b.high);
  return pair_of(s.high, add(s.low, add(a.low, b.low)));
}

/// log2 of a positive, finite number.
Pair log2_of_double(const NumArg& a, const NumArg& zero) {
  const auto number = [&](double value) { return NumArg(value, a.where); };
  NumArg m = a, exponent = zero;
  const auto scale = [&](const NumArg& condition, int bits) {
    m = choose(condition, mul(m, number(std::ldexp(1.0, bits))), m);
    exponent = choose(condition, sub(exponent, number(bits)), exponent);
  };
  for (int i = 0; i < 2; ++i) scale(apply(Arith::kLt, m, number(1)), 537);  // subnormal ones too
  for (int bits = 512; bits >= 1; bits /= 2)
    scale(apply(Arith::kGe, m, number(std::ldexp(1.0, bits))), -bits);
  scale(apply(Arith::kGt, m, number(std::numbers::sqrt2)), -1);
  // ln m = 2 artanh t = 2 (t + t^3 (1/3 + t^2 (1/5 + ...))), t = (m - 1) / (m + 1), |t| < 0.172.
  const NumArg above = sub(m, number(1)), below = add(m, number(1)),
               lost = sub(m, sub(below, number(1)));  // of m in m + 1
  const NumArg quotient = apply(Arith::kDiv, above, below), back = negated(quotient);
  const NumArg rest = fused(back, lost, fused(back, below, above));
  const Pair t = pair_of(quotient, apply(Arith::kDiv, rest, below)), u = product(t, t);
  std::array<double, 13> series;
  for (size_t i = 0; i < series.size(); ++i) series[i] = 1.0 / static_cast<double>(2 * i + 5);
  const Pair third{add(zero, number(1.0 / 3)), add(zero, number(1.850371707708594e-17))};
  const Pair inner = sum(third, exact_product(u.high, polynomial(u.high, series)));
  const Pair logarithm = sum(t, product(product(t, u), inner));
  const Pair two_by_ln2{add(zero, number(2.8853900817779268)), add(zero, number(4.0710547481862066e-17))};
  return sum({exponent, zero}, product(logarithm, two_by_ln2));
}

/// 2^x of a pair; beyond the exponents that there are, 0 or infinity.
NumArg exp2_of_pair(const Pair& x, const NumArg& zero) {
  const auto number = [&](double value) { return NumArg(value, zero.where); };
  const auto within = [&](const NumArg& value, double least, double most) {
    return apply(Arith::kMax, apply(Arith::kMin, value, number(most)), number(least));
  };
  const NumArg high = within(x.high, -1100, 1030);
  const NumArg whole = apply(Unary::kFloor, add(high, number(0.5)));
  const NumArg z = mul(within(add(sub(high, whole), x.low), -1, 1), number(std::numbers::ln2));
  std::array<double, 17> series;
  double term = 1;
  for (size_t i = 0; i < series.size(); ++i) series[i] = term, term /= static_cast<double>(i + 1);
  // 2^whole in two factors, of which each is a number; the second may be twice the first.
  const NumArg half = apply(Unary::kFloor, mul(whole, number(0.5)));
  const NumArg is_negative = apply(Arith::kLt, half, number(0));
  NumArg left = apply(Unary::kAbs, half), factor = add(zero, number(1));
  for (int bits = 512; bits >= 1; bits /= 2) {
    const NumArg has = apply(Arith::kGe, left, number(bits));
    const NumArg step = choose(is_negative, add(zero, number(std::ldexp(1.0, -bits))),
                               add(zero, number(std::ldexp(1.0, bits))));
    factor = choose(has, mul(factor, step), factor);
    left = choose(has, sub(left, number(bits)), left);
  }
  const NumArg second = fused(sub(whole, add(half, half)), factor, factor);
  return mul(mul(polynomial(z, series), factor), second);
}

NumArg pow_of_double(const NumArg& base, const NumArg& exponent) {
  const auto number = [&](double value) { return NumArg(value, base.where); };
  // Both of the shape that they broadcast to, where one is a tile.
  const auto zeros_like = [&](const NumArg& x) {
    if (x.is_tile) return NumArg(zeros(float64, tile_of(x).shape(), base.where), base.where);
    return NumArg(cast(ScalarOperand(0.0, base.where), float64), base.where);
  };
  const NumArg a = add(base, zeros_like(exponent)), b = add(exponent, zeros_like(base)), zero = zeros_like(a);
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const NumArg is_zero = apply(Arith::kEq, a, number(0)),
               is_infinite = apply(Arith::kEq, a, number(kInfinity));
  const NumArg inside = choose(apply(Arith::kOr, is_zero, is_infinite), add(zero, number(1)), a);
  const NumArg bounded = apply(Arith::kMax, apply(Arith::kMin, b, number(1e300)), number(-1e300));
  const Pair power = product({bounded, mul(bounded, number(0))}, log2_of_double(inside, zero));
  NumArg result = exp2_of_pair(power, zero);
  // 0^b and infinity^b are 0 or infinity, as the signs say; of numbers below 0 and NaN the result is NaN.
  const NumArg grows = apply(Arith::kGt, b, number(0));
  const NumArg infinity = add(zero, number(kInfinity));
  result = choose(is_zero, choose(grows, zero, infinity), result);
  result = choose(is_infinite, choose(grows, infinity, zero), result);
  result = choose(apply(Arith::kGe, a, number(0)), result, apply(Unary::kSqrt, a));
  result = choose(apply(Arith::kEq, b, b), result, b);
  return choose(apply(Arith::kEq, b, number(0)), add(zero, number(1)), result);
}

NumArg pow_of(const NumArg& a, const NumArg& b) {
  // log() is in units of e; log2 takes the same instruction.
  const NumArg log2 = apply(Arith::kMul, apply(Unary::kLog, a), NumArg(std::numbers::log2e, a.where));
  const NumArg power = apply(Unary::kExp2, apply(Arith::kMul, b, log2));
  return choose(apply(Arith::kEq, b, NumArg(0.0, a.where)), NumArg(1.0, a.where), power);
}

}  // namespace

RegisterValue pow(const TileArg& a, const NumArg& b) {
  return tile_of(in_float("pow", pow_of, pow_of_double, a, b));
}
RegisterValue pow(const ScalarOperand& a, const TileArg& b) {
  return tile_of(in_float("pow", pow_of, pow_of_double, a, NumArg(b)));
}
Expr pow(const ScalarOperand& a, const ScalarOperand& b) {
  return scalar_of(in_float("pow", pow_of, pow_of_double, a, NumArg(b)));
}

}  // namespace imbrex
