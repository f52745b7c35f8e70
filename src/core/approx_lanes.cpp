// SPDX-License-Identifier: Apache-2.0
// approx.cpp's functions of many numbers at once; all sums are exact in doubles.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/approx_lanes.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include <cmath>

#include "core/approx.h"
#include "core/approx_tables.h"

HWY_BEFORE_NAMESPACE();
namespace imbrex::arith::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

inline constexpr int64_t kPart = 16;
using Floats = hn::CappedTag<float, kPart>;
using Integers = hn::RebindToSigned<Floats>;

/// The quadratics of a part: coefficients, fractions t of 17 bits, and their squares; then y, the quadratics cut to
/// integers.
struct Quadratics {
  HWY_ALIGN int32_t c0[kPart], c1[kPart], c2[kPart], t[kPart], square[kPart], y[kPart];

  /// Takes the coefficients out of the table's segments and forms the squares.
  template <class V>
  HWY_INLINE void set(int64_t at, const detail::Segment* table, V segment, V fraction) {
    static_assert(sizeof(detail::Segment) == 3 * sizeof(int32_t));
    const Integers di;
    const auto* const words = reinterpret_cast<const int32_t*>(table);
    const auto index = hn::Add(segment, hn::ShiftLeft<1>(segment));
    hn::Store(hn::GatherIndex(di, words, index), di, c0 + at);
    hn::Store(hn::GatherIndex(di, words + 1, index), di, c1 + at);
    hn::Store(hn::GatherIndex(di, words + 2, index), di, c2 + at);
    hn::Store(fraction, di, t + at);
    // detail::truncated_square().
    const auto bit = [&]<int kBit>() HWY_ATTR {
      const auto is_set = hn::ShiftRight<31>(hn::ShiftLeft<31 - kBit>(fraction));
      const auto lower = hn::And(fraction, hn::Set(di, (1 << kBit) - 1));
      return hn::And(is_set, hn::Add(hn::ShiftRight<18 - kBit>(lower), hn::Set(di, 1 << (2 * kBit - 19))));
    };
    auto sum = hn::Add(bit.template operator()<10>(), bit.template operator()<11>());
    sum = hn::Add(sum, hn::Add(bit.template operator()<12>(), bit.template operator()<13>()));
    sum = hn::Add(sum, hn::Add(bit.template operator()<14>(), bit.template operator()<15>()));
    hn::Store(hn::Add(sum, bit.template operator()<16>()), di, square + at);
  }
  // The compiler makes vectors of this loop.
  void compute(double beta) {
    for (int64_t i = 0; i < kPart; ++i) {
      const double sum = 16384.0 * c0[i] + beta + static_cast<double>(c1[i]) * t[i] + 4.0 * c2[i] * square[i];
      y[i] = static_cast<int32_t>(sum * 0x1p-17);
    }
  }
};

HWY_ATTR void ex2_vectors(const float* x, float* results, int64_t count, bool ftz) {
  constexpr int32_t kInfinity = 0x7F800000, kNan = 0x7FFFFFFF;
  const Floats df;
  const Integers di;
  const auto lanes = static_cast<int64_t>(hn::Lanes(df));
  const auto zero = hn::Zero(di), mantissa = hn::Set(di, 0x7FFFFF);
  // Without ftz the square of a root, where the result may be subnormal.
  const auto is_halved = [&](auto operand) HWY_ATTR {
    return hn::And(hn::Lt(operand, hn::Set(df, -126.0f)),
                   hn::MaskFromVec(hn::BitCast(df, hn::Set(di, ftz ? 0 : -1))));
  };
  Quadratics part;
  HWY_ALIGN int32_t biased[kPart];
  for (int64_t at = 0; at < count; at += kPart) {
    for (int64_t v = 0; v < kPart; v += lanes) {
      const auto operand = hn::LoadU(df, x + at + v);
      const auto value = hn::IfThenElse(is_halved(operand), hn::Mul(operand, hn::Set(df, 0.5f)), operand);
      const auto magnitude = hn::Abs(value);
      // As a multiple of 2^-23; a negative one is complemented, which is one short of negating it, unless it is a whole
      // number. What is too large is decided below.
      const auto small = hn::IfThenElseZero(hn::Lt(magnitude, hn::Set(df, 256.0f)), magnitude);
      const auto fixed = hn::ConvertTo(di, hn::Mul(small, hn::Set(df, 0x1p23f)));
      const auto is_whole = hn::Eq(hn::And(fixed, mantissa), zero);
      const auto negated = hn::IfThenElse(is_whole, hn::Neg(fixed), hn::Not(fixed));
      const auto shifted = hn::IfThenElse(hn::Lt(hn::BitCast(di, value), zero), negated, fixed);
      hn::Store(hn::Add(hn::ShiftRight<23>(shifted), hn::Set(di, 127)), di, biased + v);
      const auto fraction = hn::And(shifted, mantissa);
      part.set(v, detail::kEx2Table, hn::ShiftRight<17>(fraction), hn::And(fraction, hn::Set(di, 0x1FFFF)));
    }
    part.compute(8074.0);
    for (int64_t v = 0; v < kPart; v += lanes) {
      const auto operand = hn::LoadU(df, x + at + v);
      const auto halved = is_halved(operand);
      const auto exponent = hn::Load(di, biased + v);
      auto bits = hn::Or(hn::ShiftLeft<23>(exponent), hn::And(hn::Load(di, part.y + v), mantissa));
      const auto magnitude = hn::And(hn::BitCast(di, operand), hn::Set(di, 0x7FFFFFFF));
      const auto is_negative = hn::Lt(hn::BitCast(di, operand), zero);
      // 2^8 is where the exponent leaves its range on either side, halved or not.
      const auto is_large = hn::RebindMask(
          di, hn::Ge(hn::Abs(operand), hn::IfThenElse(halved, hn::Set(df, 512.0f), hn::Set(df, 256.0f))));
      const auto above = hn::Or(hn::AndNot(is_negative, is_large), hn::Gt(exponent, hn::Set(di, 254)));
      const auto below = hn::Or(hn::And(is_negative, is_large), hn::Lt(exponent, hn::Set(di, 1)));
      bits = hn::IfThenElse(above, hn::Set(di, kInfinity), hn::IfThenElse(below, zero, bits));
      const auto root = hn::BitCast(df, bits);
      const auto result = hn::IfThenElse(halved, hn::Mul(root, root), root);
      const auto is_nan = hn::Gt(magnitude, hn::Set(di, kInfinity));
      hn::StoreU(hn::IfThenElse(hn::RebindMask(df, is_nan), hn::BitCast(df, hn::Set(di, kNan)), result), df,
                 results + at + v);
    }
  }
}

HWY_ATTR void div_full_vectors(const float* a, const float* b, float* results, int64_t count, bool ftz) {
  const Floats df;
  const Integers di;
  const auto lanes = static_cast<int64_t>(hn::Lanes(df));
  const auto exponent_of = [&](auto x) HWY_ATTR {
    return hn::And(hn::ShiftRight<23>(hn::BitCast(di, x)), hn::Set(di, 0xFF));
  };
  // Neither subnormal, nor near it, nor so large that div.full scales a divisor, nor not finite.
  const auto is_ordinary = [&](auto x) HWY_ATTR {
    const auto exponent = exponent_of(x);
    return hn::And(hn::Gt(exponent, hn::Set(di, 1)), hn::Lt(exponent, hn::Set(di, 253)));
  };
  Quadratics part;
  HWY_ALIGN float quotients[kPart];
  for (int64_t at = 0; at < count; at += kPart) {
    for (int64_t v = 0; v < kPart; v += lanes) {
      const auto bits = hn::BitCast(di, hn::LoadU(df, b + at + v));
      part.set(v, detail::kRcpTable, hn::And(hn::ShiftRight<16>(bits), hn::Set(di, 0x7F)),
               hn::ShiftLeft<1>(hn::And(bits, hn::Set(di, 0xFFFF))));
    }
    part.compute(8094.0);
    bool all_ordinary = true;
    for (int64_t v = 0; v < kPart; v += lanes) {
      const auto dividend = hn::LoadU(df, a + at + v), divisor = hn::LoadU(df, b + at + v);
      const auto y = hn::Load(di, part.y + v);
      const auto exponent = hn::Sub(hn::Add(hn::Set(di, 253), hn::ShiftRight<24>(y)), exponent_of(divisor));
      const auto magnitude = hn::Or(hn::ShiftLeft<23>(exponent), hn::And(y, hn::Set(di, 0x7FFFFF)));
      const auto reciprocal = hn::CopySign(hn::BitCast(df, magnitude), divisor);
      const auto quotient = hn::Mul(reciprocal, dividend);
      const auto ordinary = hn::And(hn::And(is_ordinary(dividend), is_ordinary(divisor)),
                                    hn::And(is_ordinary(reciprocal), is_ordinary(quotient)));
      all_ordinary = all_ordinary && hn::AllTrue(di, ordinary);
      hn::Store(quotient, df, quotients + v);
    }
    for (int64_t i = 0; i < kPart; ++i)
      results[at + i] = all_ordinary ? quotients[i] : div_full(a[at + i], b[at + i], ftz);
  }
}

}  // namespace imbrex::arith::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace imbrex::arith {

HWY_EXPORT(ex2_vectors);
HWY_EXPORT(div_full_vectors);

void ex2_approx_lanes(const float* x, float* results, int64_t count, bool ftz) {
  HWY_DYNAMIC_DISPATCH(ex2_vectors)(x, results, count, ftz);
}

void div_full_lanes(const float* a, const float* b, float* results, int64_t count, bool ftz) {
  HWY_DYNAMIC_DISPATCH(div_full_vectors)(a, b, results, count, ftz);
}

}  // namespace imbrex::arith
#endif  // HWY_ONCE
