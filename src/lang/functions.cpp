// SPDX-License-Identifier: Apache-2.0
// Functions made of others: math.h and random.h. Everything is traced at the line of the caller.
#include <fmt/format.h>

#include <array>
#include <numbers>

#include "imbrex/lang/math.h"
#include "imbrex/lang/random.h"
#include "lang/num_arg.h"

namespace imbrex {

using detail::Arith;
using detail::Unary;

using namespace lang;  // of num_arg.h

namespace {

NumArg erf_of(const NumArg& x) {
  // Of |x| below 1 an odd polynomial; above, 1 - 2^p(|x|). From 4 on it is 1 in float32. Both were fitted to within 1e-9.
  static constexpr std::array<double, 7> kSmall = {
      0.128379166, -0.376126271, 0.112836002, -0.0268544446, 0.00518953534, -0.000802084128, 7.88911954e-05};
  static constexpr std::array<double, 7> kLarge = {
      -0.000510294116, -1.62597513, -0.920764912, -0.148651597, 0.031458472, -0.00424096904, 0.000267727978};
  const NumArg t = apply(Unary::kAbs, x);
  const NumArg small = fused(polynomial(apply(Arith::kMul, x, x), kSmall), x, x);
  const NumArg power = apply(Unary::kExp2, polynomial(apply(Arith::kMin, t, NumArg(4.0, x.where)), kLarge));
  const NumArg large = apply(Arith::kSub, NumArg(1.0, x.where), power);
  const NumArg signed_large =
      choose(apply(Arith::kLt, x, NumArg(0.0, x.where)), apply(Unary::kNeg, large), large);
  return choose(apply(Arith::kLt, t, NumArg(1.0, x.where)), small, signed_large);
}

/// e^-x of 0 <= x <= 36: a series for x / 64, squared six times.
NumArg exp_of_negative(const NumArg& x) {
  std::array<double, 16> series;
  double term = 1;
  for (size_t n = 0; n < series.size(); ++n) series[n] = term, term /= -static_cast<double>(n + 1);
  NumArg power = polynomial(apply(Arith::kMul, x, NumArg(1.0 / 64, x.where)), series);
  for (int i = 0; i < 6; ++i) power = apply(Arith::kMul, power, power);
  return power;
}

NumArg erf_of_double(const NumArg& x) {
  // Of |x| below 1 its series; above, 1 - e^(-x^2) p(v) / (1 + 2 |x|), where v = 2.6 - 14.4 / (|x| + 3) runs from -1 to 1
  // and p was fitted to within 2e-17. From 6 on it is 1 in float64.
  static constexpr std::array<double, 19> kSmall = {
      0.128379167095512574,    -0.376126389031837525,    0.112837916709551257,    -0.0268661706451312518,
      0.00522397762544218784,  -0.000854832702345085283, 0.000120553329817896643, -1.4925650358406251e-5,
      1.64621143658892474e-6,  -1.63658446912349243e-7,  1.48071928158792172e-8,  -1.22905553017179274e-9,
      9.42275906465041097e-11, -6.71136685516411038e-12, 4.46322426328647734e-13, -2.78351620721092135e-14,
      1.63426140953671519e-15, -9.06397084280867248e-17, 4.76334804051506812e-18};
  static constexpr std::array<double, 16> kLarge = {
      1.26389846271852921,     -0.0519583209482151915,   -0.0148187519409292023,   0.0126175928785035282,
      -0.00452883591783357047, 0.00101092722709423476,   -0.000129993445494258006, 2.36472259935726103e-6,
      2.20664875953181996e-6,  -2.44426981587449587e-7,  -3.37977149743481596e-8,  7.20434967888000674e-9,
      6.90450238577339348e-10, -1.92087217129697949e-10, -1.85571913395898409e-11, 4.52599699972227619e-12};
  const auto number = [&](double value) { return NumArg(value, x.where); };
  const NumArg size = apply(Unary::kAbs, x), t = apply(Arith::kMin, size, number(6));
  const NumArg small = fused(polynomial(apply(Arith::kMul, x, x), kSmall), x, x);
  const NumArg v =
      apply(Arith::kSub, number(2.6), apply(Arith::kDiv, number(14.4), apply(Arith::kAdd, t, number(3))));
  const NumArg tail =
      apply(Arith::kDiv, apply(Arith::kMul, exp_of_negative(apply(Arith::kMul, t, t)), polynomial(v, kLarge)),
            fused(t, number(2), number(1)));
  const NumArg large = apply(Arith::kSub, number(1), tail);
  const NumArg signed_large = choose(apply(Arith::kLt, x, number(0)), apply(Unary::kNeg, large), large);
  // A NaN is greater than nothing: it goes through the series.
  return choose(apply(Arith::kGe, size, number(1)), signed_large, small);
}

NumArg fmod_of(const NumArg& a, const NumArg& b) {
  const NumArg zero(0.0, a.where);
  const NumArg quotient = apply(Arith::kDiv, a, b);
  const NumArg whole = choose(apply(Arith::kLt, quotient, zero), apply(Unary::kCeil, quotient),
                              apply(Unary::kFloor, quotient));
  const NumArg rest = fused(apply(Unary::kNeg, whole), b, a);
  // The quotient may have been rounded up to a whole number: then the rest has the other sign.
  const NumArg size = apply(Unary::kAbs, b);
  const NumArg below = apply(Arith::kLt, rest, zero), above = apply(Arith::kGt, rest, zero);
  const NumArg of_positive = choose(below, apply(Arith::kAdd, rest, size), rest);
  const NumArg of_negative = choose(above, apply(Arith::kSub, rest, size), rest);
  return choose(apply(Arith::kLt, a, zero), of_negative, of_positive);
}

}  // namespace

RegisterValue erf(const TileArg& a) { return tile_of(in_float("erf", erf_of, erf_of_double, a)); }
Expr erf(const ScalarOperand& a) { return scalar_of(in_float("erf", erf_of, erf_of_double, a)); }
RegisterValue fmod(const TileArg& a, const NumArg& b) {
  return tile_of(in_float("fmod", fmod_of, fmod_of, a, b));
}
RegisterValue fmod(const ScalarOperand& a, const TileArg& b) {
  return tile_of(in_float("fmod", fmod_of, fmod_of, a, NumArg(b)));
}
Expr fmod(const ScalarOperand& a, const ScalarOperand& b) {
  return scalar_of(in_float("fmod", fmod_of, fmod_of, a, NumArg(b)));
}

namespace {

/// The high and the low half of x times a 32-bit constant.
struct Product {
  NumArg high, low;
};
Product product(const NumArg& x, int64_t factor) {
  const NumArg wide = apply(Arith::kMul, converted(x, uint64), NumArg(factor, x.where));
  return {converted(apply(Arith::kShr, wide, NumArg(32, x.where)), uint32), converted(wide, uint32)};
}
NumArg exclusive(const NumArg& a, const NumArg& b) { return apply(Arith::kXor, a, b); }

}  // namespace

RandomWords random_words(const ScalarArg& seed, const TileArg& counter) {
  const Instruction at("random_words", counter.where);
  const SourceLocation where = at.where();
  const RegisterValue given(counter.handle);
  if (!given.dtype().is_integer() || !seed.dtype.is_integer())
    at.fail(fmt::format("takes integers, not a seed of {} and a counter of {}", seed.dtype.name(),
                        given.dtype().name()),
            {},
            "the counter numbers the elements: `register_tensor(int64, {n}, [&](auto i) { return offset + i; "
            "})`");
  const Shape shape = given.shape();
  const auto halves = [&](const NumArg& x) {
    const NumArg wide = converted(x, uint64);
    return std::pair(converted(wide, uint32), converted(apply(Arith::kShr, wide, NumArg(32, where)), uint32));
  };
  auto [key0, key1] = halves(NumArg(ScalarOperand(cast(seed, uint64), where)));
  auto [c0, c1] = halves(NumArg(given, where));
  const NumArg zeros(full(uint32, shape, ScalarArg(0, where), where), where);
  std::array<NumArg, 4> c = {c0, c1, zeros, zeros};
  std::array<NumArg, 2> key = {key0, key1};
  for (int round = 0; round < 10; ++round) {
    if (round > 0)
      key = {apply(Arith::kAdd, key[0], NumArg(int64_t{0x9E3779B9}, where)),
             apply(Arith::kAdd, key[1], NumArg(int64_t{0xBB67AE85}, where))};
    const Product first = product(c[0], 0xD2511F53), second = product(c[2], 0xCD9E8D57);
    c = {exclusive(exclusive(second.high, c[1]), key[0]), second.low,
         exclusive(exclusive(first.high, c[3]), key[1]), first.low};
  }
  return {tile_of(c[0]), tile_of(c[1]), tile_of(c[2]), tile_of(c[3])};
}

RegisterValue random_bits(const ScalarArg& seed, const TileArg& counter) {
  return random_words(seed, counter).x;
}

namespace {

/// (word / 256 + offset) 2^-24: even in [0, 1), or with offset 1 in (0, 1].
NumArg uniform(const RegisterValue& word, double offset, SourceLocation where) {
  const NumArg whole = converted(apply(Arith::kShr, NumArg(word, where), NumArg(8, where)), float32);
  return fused(whole, NumArg(0x1p-24, where), NumArg(offset * 0x1p-24, where));
}

}  // namespace

RegisterValue random_uniform(const ScalarArg& seed, const TileArg& counter) {
  return tile_of(uniform(random_bits(seed, counter), 0, counter.where));
}

RegisterValue random_normal(const ScalarArg& seed, const TileArg& counter) {
  const SourceLocation where = counter.where;
  const RandomWords words = random_words(seed, counter);
  const NumArg log = apply(Unary::kLog, uniform(words.x, 1, where));
  const NumArg radius = apply(Unary::kSqrt, apply(Arith::kMul, log, NumArg(-2.0, where)));
  // The angle between -pi and pi, where cos is most exact.
  const NumArg angle = fused(uniform(words.y, 0, where), NumArg(2 * std::numbers::pi, where),
                             NumArg(-std::numbers::pi, where));
  return tile_of(apply(Arith::kMul, radius, apply(Unary::kCos, angle)));
}

}  // namespace imbrex
