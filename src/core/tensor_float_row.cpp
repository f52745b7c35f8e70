// SPDX-License-Identifier: Apache-2.0
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/tensor_float_row.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include <algorithm>
#include <type_traits>

#include "core/tensor_operand.h"
#include "core/tensor_row.h"

HWY_BEFORE_NAMESPACE();
namespace imbrex::arith::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using Floats = hn::CappedTag<float, kRowLanes>;
using Integers = hn::RebindToSigned<Floats>;
/// As many columns as the widest tile has.
inline constexpr size_t kTileLanes = 4 * kRowLanes;

/// Toward zero; |x| < 2^31, so that what ConvertTo does about others can be left out.
template <class V>
HWY_INLINE auto truncate(V x) {
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
  if constexpr (sizeof(x.raw) == 64)
    return hn::Vec<Integers>{_mm512_cvttps_epi32(x.raw)};
  else
    return hn::ConvertTo(Integers(), x);
#elif HWY_TARGET == HWY_AVX2
  return hn::Vec<Integers>{_mm256_cvttps_epi32(x.raw)};
#else
  return hn::ConvertTo(Integers(), x);
#endif
}

/// Buffers of a tile: what is known of each column of a block.
struct Tile {
  HWY_ALIGN int16_t largest[kTileLanes];
  HWY_ALIGN int32_t addend[kTileLanes];
  HWY_ALIGN float to_grid[kTileLanes];  // what takes products to units of the grid
  HWY_ALIGN float unit[kTileLanes];     // of the grid
};

/// 2^exponent where that is a normal number.
template <class V>
HWY_INLINE auto power(V exponent) {
  return hn::BitCast(Floats(), hn::ShiftLeft<23>(hn::Add(exponent, hn::Set(Integers(), 127))));
}

/// Fills tile.addend, to_grid and unit for a vector of columns. False where that is not to be computed so.
HWY_INLINE bool align(const FloatRowTask& task, int64_t block, int64_t column, int64_t at, Tile& tile,
                      const uint32_t* addends) {
  const Integers di;
  const Floats df;
  const hn::Rebind<int16_t, Integers> d16;
  const auto zero = hn::Zero(di);
  const auto bits = hn::LoadU(di, reinterpret_cast<const int32_t*>(addends) + column);
  const auto biased = hn::And(hn::ShiftRight<23>(bits), hn::Set(di, 0xFF));
  const auto is_zero = hn::Eq(hn::ShiftLeft<1>(bits), zero);
  const auto c_exponent = hn::IfThenElse(is_zero, hn::Set(di, kZeroExponent),
                                         hn::Sub(hn::Max(biased, hn::Set(di, 1)), hn::Set(di, 127)));
  auto scale = zero;
  if (task.b_scale != nullptr)
    scale = hn::Add(hn::LoadU(di, task.b_scale + block * task.columns + column),
                    hn::Set(di, task.a_scale[block]));
  const auto largest = hn::PromoteTo(di, hn::Load(d16, tile.largest + at));
  const auto top = hn::Max(hn::Max(hn::Add(largest, scale), c_exponent), hn::Set(di, task.exponent_floor));
  // Units that are normal numbers, and so are sums then; where all is zero any unit will do.
  const auto most = hn::Set(di, 126), least = hn::Set(di, -126);
  const auto wanted = hn::Sub(hn::Set(di, task.kept_bits), top);
  const auto exponent = hn::Max(hn::Min(wanted, most), least);
  hn::Store(power(hn::Sub(zero, exponent)), df, tile.unit + at);
  hn::Store(truncate(hn::Mul(hn::BitCast(df, bits), power(exponent))), di, tile.addend + at);
  const auto of_products =
      task.b_scale == nullptr ? exponent : hn::Max(hn::Min(hn::Add(wanted, scale), most), least);
  hn::Store(power(of_products), df, tile.to_grid + at);
  const auto is_all_zero = hn::And(is_zero, hn::Lt(largest, hn::Set(di, kZeroFloatExponent / 2)));
  const auto is_far = hn::Or(hn::Gt(wanted, most), hn::Lt(wanted, least));
  const auto is_special = hn::Eq(biased, hn::Set(di, 0xFF));
  return hn::AllFalse(di, hn::Or(hn::AndNot(is_all_zero, is_far), is_special));
}

/// Integers to floats, cut toward zero.
template <class V>
HWY_INLINE auto to_floats(V x) {
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
  if constexpr (sizeof(x.raw) == 64)
    return hn::Vec<Floats>{_mm512_cvt_roundepi32_ps(x.raw, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC)};
#endif
  // Without the bits below the 24 that a float has.
  const Integers di;
  const auto magnitude = hn::Abs(x);
  auto kept = magnitude;
  for (int bit = 24; bit < 31; ++bit) {
    const auto is_as_large = hn::Gt(magnitude, hn::Set(di, (1 << bit) - 1));
    kept = hn::IfThenElse(is_as_large, hn::And(magnitude, hn::Set(di, ~((2 << (bit - 24)) - 1))), kept);
  }
  return hn::CopySign(hn::ConvertTo(Floats(), kept), hn::BitCast(Floats(), x));
}

/// The largest exponent of the products of each column of a tile.
template <int kVectors>
HWY_INLINE void find_largest(const FloatRowTask& task, int64_t first, int64_t column, int16_t* largest) {
  using Exponents = hn::Rebind<int16_t, Floats>;
  const std::conditional_t<kVectors == 1, Exponents, hn::Twice<Exponents>> d;
  const auto half = static_cast<int64_t>(hn::Lanes(d));
  auto l0 = hn::Set(d, 2 * kZeroFloatExponent), l1 = l0;
  for (int64_t k = first; k < first + task.length; ++k) {
    const auto a = hn::Set(d, task.a_exponent[k]);
    const int16_t* const b = task.b_exponent + k * task.columns + column;
    l0 = hn::Max(l0, hn::Add(a, hn::LoadU(d, b)));
    if constexpr (kVectors == 4) l1 = hn::Max(l1, hn::Add(a, hn::LoadU(d, b + half)));
  }
  hn::Store(l0, d, largest);
  if constexpr (kVectors == 4) hn::Store(l1, d, largest + half);
}

/// The sum of two integers; `overflows` gets its sign bit set where that leaves 32 bits.
template <class V>
HWY_INLINE auto add_checked(V a, V b, V& overflows) {
  const auto sum = hn::Add(a, b);
  overflows = hn::Or(overflows, hn::And(hn::Xor(a, sum), hn::Xor(b, sum)));
  return sum;
}

/// All blocks of as many columns as `kVectors` vectors have.
template <int kVectors>
HWY_INLINE bool run_tile(const FloatRowTask& task, int64_t column, Tile& tile) {
  const Integers di;
  const Floats df;
  const auto lanes = static_cast<int64_t>(hn::Lanes(df));
  const auto kept =
      hn::BitCast(df, hn::Set(hn::RebindToUnsigned<Floats>(), ~uint32_t{0} << (23 - task.result_fraction)));
  const uint32_t* addends = task.c;
  for (int64_t block = 0; block < task.blocks; ++block) {
    const int64_t begin = block * task.length;
    find_largest<kVectors>(task, begin, column, tile.largest);
    for (int v = 0; v < kVectors; ++v)
      if (!align(task, block, column + v * lanes, v * lanes, tile, addends)) return false;
    const auto to_grid = [&](int v)
                             HWY_ATTR { return hn::Load(df, tile.to_grid + (v < kVectors ? v * lanes : 0)); };
    const auto grid0 = to_grid(0), grid1 = to_grid(1), grid2 = to_grid(2), grid3 = to_grid(3);
    const auto addend = [&](int v)
                            HWY_ATTR { return hn::Load(di, tile.addend + (v < kVectors ? v * lanes : 0)); };
    auto total0 = addend(0), total1 = addend(1), total2 = addend(2), total3 = addend(3);
    auto overflows = hn::Zero(di);
    // Sixteen terms below 2^27 each stay below 2^31.
    for (int64_t first = begin; first < begin + task.length; first += 16) {
      const int64_t end = std::min(first + 16, begin + task.length);
      auto sum0 = hn::Zero(di), sum1 = sum0, sum2 = sum0, sum3 = sum0;
      for (int64_t k = first; k < end; ++k) {
        const auto a = hn::Set(df, task.a[k]);
        const float* const b = task.b + k * task.columns + column;
        const auto term = [&](int v, auto grid) HWY_ATTR {
          return truncate(hn::Mul(hn::Mul(a, hn::LoadU(df, b + v * lanes)), grid));
        };
        sum0 = hn::Add(sum0, term(0, grid0));
        if constexpr (kVectors == 4) {
          sum1 = hn::Add(sum1, term(1, grid1));
          sum2 = hn::Add(sum2, term(2, grid2));
          sum3 = hn::Add(sum3, term(3, grid3));
        }
      }
      total0 = add_checked(total0, sum0, overflows);
      if constexpr (kVectors == 4) {
        total1 = add_checked(total1, sum1, overflows);
        total2 = add_checked(total2, sum2, overflows);
        total3 = add_checked(total3, sum3, overflows);
      }
    }
    if (!hn::AllFalse(di, hn::Lt(overflows, hn::Zero(di)))) return false;
    const auto finish = [&](int v, auto total) HWY_ATTR {
      const auto result =
          hn::Mul(hn::And(to_floats(total), kept), hn::Load(df, tile.unit + (v < kVectors ? v * lanes : 0)));
      hn::StoreU(result, df, reinterpret_cast<float*>(task.results) + column + v * lanes);
    };
    finish(0, total0);
    if constexpr (kVectors == 4) {
      finish(1, total1);
      finish(2, total2);
      finish(3, total3);
    }
    addends = task.results;
  }
  return true;
}

HWY_ATTR bool float_row_vectors(const FloatRowTask& task) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(Floats()));
  Tile tile;
  int64_t column = 0;
#if HWY_TARGET != HWY_SCALAR
  for (; column + 4 * lanes <= task.columns; column += 4 * lanes)
    if (!run_tile<4>(task, column, tile)) return false;
#endif
  for (; column < task.columns; column += lanes)
    if (!run_tile<1>(task, column, tile)) return false;
  return true;
}

void transpose_vectors(const uint32_t* from, int64_t rows, int64_t columns, uint32_t* to, int64_t pitch) {
  int64_t r = 0;
#if HWY_TARGET != HWY_SCALAR
  const hn::FixedTag<uint32_t, 4> d;
  const hn::FixedTag<uint64_t, 2> d2;
  for (; r + 4 <= rows && columns % 4 == 0; r += 4)
    for (int64_t c = 0; c < columns; c += 4) {
      const uint32_t* const at = from + r * columns + c;
      const auto r0 = hn::LoadU(d, at), r1 = hn::LoadU(d, at + columns);
      const auto r2 = hn::LoadU(d, at + 2 * columns), r3 = hn::LoadU(d, at + 3 * columns);
      const auto low01 = hn::BitCast(d2, hn::InterleaveLower(d, r0, r1));
      const auto low23 = hn::BitCast(d2, hn::InterleaveLower(d, r2, r3));
      const auto high01 = hn::BitCast(d2, hn::InterleaveUpper(d, r0, r1));
      const auto high23 = hn::BitCast(d2, hn::InterleaveUpper(d, r2, r3));
      uint32_t* const out = to + c * pitch + r;
      hn::StoreU(hn::BitCast(d, hn::InterleaveLower(d2, low01, low23)), d, out);
      hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(d2, low01, low23)), d, out + pitch);
      hn::StoreU(hn::BitCast(d, hn::InterleaveLower(d2, high01, high23)), d, out + 2 * pitch);
      hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(d2, high01, high23)), d, out + 3 * pitch);
    }
#endif
  for (; r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c) to[c * pitch + r] = from[r * columns + c];
}

/// How a format's patterns become numbers in single precision.
struct TakenApart {
  explicit TakenApart(const FloatFormat& format, bool negate)
      : low_bits(format.unused_low_bits),
        mantissa_bits(format.mantissa_bits),
        value_bits(format.exponent_bits + format.mantissa_bits),
        bias(format.bias),
        last_finite(static_cast<int32_t>(format.max_finite() >> format.unused_low_bits)),
        negation(negate ? -1 : 0) {}
  int low_bits, mantissa_bits, value_bits, bias;
  int32_t last_finite, negation;

  /// A vector of them. What comes back has lanes other than zero where numbers are not finite, or too large or too small.
  HWY_INLINE auto operator()(const uint32_t* patterns, float* values, int16_t* exponents) const {
    const Floats df;
    const Integers di;
    const hn::RebindToUnsigned<Floats> du;
    const hn::Rebind<int16_t, Integers> d16;
    const auto zero = hn::Zero(di);
    const auto bits = hn::BitCast(di, hn::ShiftRightSame(hn::LoadU(du, patterns), low_bits));
    const auto magnitude = hn::And(bits, hn::Set(di, static_cast<int32_t>((uint32_t{1} << value_bits) - 1)));
    const auto is_zero = hn::Eq(magnitude, zero);
    const auto biased = hn::BitCast(di, hn::ShiftRightSame(hn::BitCast(du, magnitude), mantissa_bits));
    const auto exponent = hn::Sub(hn::Max(biased, hn::Set(di, 1)), hn::Set(di, bias));
    // Where f32 has its bits, with the other bias. A subnormal one gets a leading one, which is taken away again: products
    // with what is subnormal in f32 take hosts long.
    const auto shifted =
        hn::Add(hn::ShiftLeftSame(magnitude, 23 - mantissa_bits), hn::Set(di, (127 - bias) << 23));
    const auto is_subnormal = hn::Eq(biased, zero);
    const auto with_one = hn::Add(shifted, hn::IfThenElseZero(is_subnormal, hn::Set(di, 1 << 23)));
    const auto one = hn::IfThenElseZero(is_subnormal, hn::Set(di, (128 - bias) << 23));
    const auto value = hn::Sub(hn::BitCast(df, with_one), hn::BitCast(df, one));
    const auto sign = hn::ShiftLeftSame(hn::Xor(bits, hn::Set(di, negation)), 31 - value_bits);
    hn::StoreU(hn::CopySign(value, hn::BitCast(df, sign)), df, values);
    hn::StoreU(hn::DemoteTo(d16, hn::IfThenElse(is_zero, hn::Set(di, kZeroFloatExponent), exponent)), d16,
               exponents);
    const auto is_extreme = hn::AndNot(is_zero, hn::Gt(hn::Abs(exponent), hn::Set(di, kMostFloatExponent)));
    return hn::VecFromMask(di, hn::Or(is_extreme, hn::Gt(magnitude, hn::Set(di, last_finite))));
  }
};

HWY_ATTR bool take_apart_floats_vectors(const FloatFormat& format, const uint32_t* patterns, int64_t count,
                                        bool negate, float* values, int16_t* exponents) {
  const Integers di;
  const auto lanes = static_cast<int64_t>(hn::Lanes(di));
  const TakenApart take_apart(format, negate);
  auto any = hn::Zero(di);
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes)
    any = hn::Or(any, take_apart(patterns + i, values + i, exponents + i));
  if (i < count) {
    uint32_t last[kRowLanes] = {};
    float last_values[kRowLanes];
    int16_t last_exponents[kRowLanes];
    std::copy(patterns + i, patterns + count, last);
    any = hn::Or(any, take_apart(last, last_values, last_exponents));
    std::copy_n(last_values, count - i, values + i);
    std::copy_n(last_exponents, count - i, exponents + i);
  }
  return hn::AllTrue(di, hn::Eq(any, hn::Zero(di)));
}

}  // namespace imbrex::arith::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace imbrex::arith {

HWY_EXPORT(float_row_vectors);
HWY_EXPORT(take_apart_floats_vectors);
HWY_EXPORT(transpose_vectors);

bool accumulate_float_row(const FloatRowTask& task) { return HWY_DYNAMIC_DISPATCH(float_row_vectors)(task); }

void transpose(const uint32_t* from, int64_t rows, int64_t columns, uint32_t* to, int64_t pitch) {
  HWY_DYNAMIC_DISPATCH(transpose_vectors)(from, rows, columns, to, pitch);
}

bool take_apart_floats(const FloatFormat& format, const uint32_t* patterns, int64_t count, bool negate,
                       float* values, int16_t* exponents) {
  return HWY_DYNAMIC_DISPATCH(take_apart_floats_vectors)(format, patterns, count, negate, values, exponents);
}

}  // namespace imbrex::arith
#endif  // HWY_ONCE
