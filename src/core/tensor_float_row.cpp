// SPDX-License-Identifier: Apache-2.0
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/tensor_float_row.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include <algorithm>
#include <bit>
#include <type_traits>

#include "core/tensor_float_row.h"
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
  HWY_ALIGN int32_t top[kTileLanes];
  HWY_ALIGN int32_t addend[kTileLanes];
  HWY_ALIGN float unit[kTileLanes];  // what takes products to the grid
  HWY_ALIGN int32_t part[kRowLanes];
  HWY_ALIGN double sums[kTileLanes];
};

/// 2^exponent where that is a normal number.
template <class V>
HWY_INLINE auto power(V exponent) {
  return hn::BitCast(Floats(), hn::ShiftLeft<23>(hn::Add(exponent, hn::Set(Integers(), 127))));
}

/// Fills tile.top, addend and unit for a vector of columns. False where an addend cannot be taken so.
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
  hn::Store(top, di, tile.top + at);
  // A zero is cut to a zero whatever the unit, and products other than zero are no smaller than this.
  const auto most = hn::Set(di, 127), least = hn::Set(di, -126);
  const auto wanted = hn::Sub(hn::Set(di, task.kept_bits), top);
  hn::Store(power(hn::Max(hn::Min(hn::Add(wanted, scale), most), least)), df, tile.unit + at);
  const auto c_unit = power(hn::Max(hn::Min(wanted, most), least));
  hn::Store(truncate(hn::Mul(hn::BitCast(df, bits), c_unit)), di, tile.addend + at);
  const auto is_lost = hn::AndNot(is_zero, hn::Or(hn::Gt(wanted, most), hn::Lt(wanted, least)));
  const auto is_special = hn::Eq(biased, hn::Set(di, 0xFF));
  return hn::AllFalse(di, hn::Or(is_lost, is_special));
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

/// Adds integers to the sums of their columns.
template <class V>
HWY_INLINE void add_to(double* sums, V terms, int32_t* part, bool is_first) {
  const hn::CappedTag<double, kRowLanes> dd;
  const hn::Rebind<int32_t, decltype(dd)> dpi;
  const auto step = static_cast<int64_t>(hn::Lanes(dd)), lanes = static_cast<int64_t>(hn::Lanes(Integers()));
  hn::Store(terms, Integers(), part);
  for (int64_t at = 0; at < lanes; at += step) {
    const auto term = hn::PromoteTo(dd, hn::Load(dpi, part + at));
    hn::Store(is_first ? term : hn::Add(hn::Load(dd, sums + at), term), dd, sums + at);
  }
}

/// Brings a vector of columns' sums into f32. False where one of them is subnormal.
HWY_INLINE bool finish(const FloatRowTask& task, int64_t at, const Tile& tile, uint32_t* results) {
  const hn::CappedTag<double, kRowLanes> dd;
  const hn::RebindToSigned<decltype(dd)> dl;
  const hn::Rebind<int32_t, decltype(dd)> dpi;
  const hn::Rebind<float, decltype(dd)> dpf;
  const auto step = static_cast<int64_t>(hn::Lanes(dd)), lanes = static_cast<int64_t>(hn::Lanes(Integers()));
  const auto kept = hn::BitCast(
      dd, hn::Set(hn::RebindToUnsigned<decltype(dd)>(), ~uint64_t{0} << (52 - task.result_fraction)));
  const auto smallest_normal = hn::Set(dd, 0x1p-126);
  bool is_fine = true;
  for (int64_t i = 0; i < lanes; i += step) {
    const auto exponent =
        hn::Add(hn::PromoteTo(dl, hn::Load(dpi, tile.top + at + i)), hn::Set(dl, 1023 - task.kept_bits));
    const auto value =
        hn::Mul(hn::Load(dd, tile.sums + at + i), hn::BitCast(dd, hn::ShiftLeft<52>(exponent)));
    const auto is_subnormal = hn::And(hn::Lt(hn::Abs(value), smallest_normal), hn::Ne(value, hn::Zero(dd)));
    is_fine = is_fine && hn::AllFalse(dd, is_subnormal);
    hn::StoreU(hn::DemoteTo(dpf, hn::And(value, kept)), dpf, reinterpret_cast<float*>(results) + i);
  }
  return is_fine;
}

/// All blocks of as many columns as `kVectors` vectors have.
template <int kVectors>
HWY_INLINE bool run_tile(const FloatRowTask& task, int64_t column, Tile& tile) {
  const Integers di;
  const Floats df;
  const auto lanes = static_cast<int64_t>(hn::Lanes(df));
  const uint32_t* addends = task.c;
  for (int64_t block = 0; block < task.blocks; ++block) {
    const int64_t begin = block * task.length;
    find_largest<kVectors>(task, begin, column, tile.largest);
    for (int v = 0; v < kVectors; ++v)
      if (!align(task, block, column + v * lanes, v * lanes, tile, addends)) return false;
    for (int v = 0; v < kVectors; ++v)
      add_to(tile.sums + v * lanes, hn::Load(di, tile.addend + v * lanes), tile.part, true);
    const auto unit = [&](int v)
                          HWY_ATTR { return hn::Load(df, tile.unit + (v < kVectors ? v * lanes : 0)); };
    const auto unit0 = unit(0), unit1 = unit(1), unit2 = unit(2), unit3 = unit(3);
    // Sixteen terms below 2^27 each stay below 2^31.
    for (int64_t first = begin; first < begin + task.length; first += 16) {
      const int64_t end = std::min(first + 16, begin + task.length);
      auto sum0 = hn::Zero(di), sum1 = sum0, sum2 = sum0, sum3 = sum0;
      for (int64_t k = first; k < end; ++k) {
        const auto a = hn::Set(df, task.a[k]);
        const float* const b = task.b + k * task.columns + column;
        const auto term = [&](int v, auto to_grid) HWY_ATTR {
          return truncate(hn::Mul(hn::Mul(a, hn::LoadU(df, b + v * lanes)), to_grid));
        };
        sum0 = hn::Add(sum0, term(0, unit0));
        if constexpr (kVectors == 4) {
          sum1 = hn::Add(sum1, term(1, unit1));
          sum2 = hn::Add(sum2, term(2, unit2));
          sum3 = hn::Add(sum3, term(3, unit3));
        }
      }
      add_to(tile.sums, sum0, tile.part, false);
      if constexpr (kVectors == 4) {
        add_to(tile.sums + lanes, sum1, tile.part, false);
        add_to(tile.sums + 2 * lanes, sum2, tile.part, false);
        add_to(tile.sums + 3 * lanes, sum3, tile.part, false);
      }
    }
    for (int v = 0; v < kVectors; ++v)
      if (!finish(task, v * lanes, tile, task.results + column + v * lanes)) return false;
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

// The compiler makes vectors of this loop.
bool take_apart_floats_vectors(const FloatFormat& format, const uint32_t* HWY_RESTRICT patterns,
                               int64_t count, bool negate, float* HWY_RESTRICT values,
                               int16_t* HWY_RESTRICT exponents) {
  const int value_bits = format.exponent_bits + format.mantissa_bits, mantissa_bits = format.mantissa_bits;
  const int low_bits = format.unused_low_bits;
  const int32_t bias = format.bias;
  const uint32_t value_mask = (1u << value_bits) - 1, mantissa_mask = (1u << mantissa_bits) - 1;
  const auto first_special = static_cast<uint32_t>(format.max_finite() >> low_bits) + 1;
  const uint32_t negation = negate ? 1 : 0;
  uint32_t any = 0;
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t bits = patterns[i] >> low_bits;
    const uint32_t magnitude = bits & value_mask, biased = magnitude >> mantissa_bits;
    const uint32_t leading = biased != 0 ? 1u << mantissa_bits : 0;
    const auto significand = static_cast<float>(static_cast<int32_t>((magnitude & mantissa_mask) | leading));
    const int32_t exponent = static_cast<int32_t>(biased != 0 ? biased : 1) - bias;
    const uint32_t is_extreme = exponent < -kMostFloatExponent || exponent > kMostFloatExponent ? 1 : 0;
    any |= (magnitude >= first_special ? 1 : 0) | (magnitude != 0 ? is_extreme : 0);
    const uint32_t unit = static_cast<uint32_t>(is_extreme != 0 ? 0 : exponent - mantissa_bits + 127) << 23;
    const uint32_t sign = ((bits >> value_bits & 1) ^ negation) << 31;
    values[i] =
        std::bit_cast<float>(std::bit_cast<uint32_t>(significand * std::bit_cast<float>(unit)) | sign);
    exponents[i] = static_cast<int16_t>(magnitude != 0 ? exponent : kZeroFloatExponent);
  }
  return any == 0;
}

}  // namespace imbrex::arith::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace imbrex::arith {

HWY_EXPORT(float_row_vectors);
HWY_EXPORT(take_apart_floats_vectors);

bool accumulate_float_row(const FloatRowTask& task) { return HWY_DYNAMIC_DISPATCH(float_row_vectors)(task); }

bool take_apart_floats(const FloatFormat& format, const uint32_t* patterns, int64_t count, bool negate,
                       float* values, int16_t* exponents) {
  return HWY_DYNAMIC_DISPATCH(take_apart_floats_vectors)(format, patterns, count, negate, values, exponents);
}

}  // namespace imbrex::arith
#endif  // HWY_ONCE
