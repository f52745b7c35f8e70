// SPDX-License-Identifier: Apache-2.0
// A product of two significands of up to 11 bits, scaled so that nothing above the grid is lost, fits a
// 32-bit lane, and so do sixteen of them added; the sum of a block fits a double.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/tensor_row.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include <bit>

#include "core/tensor_operand.h"
#include "core/tensor_row.h"

HWY_BEFORE_NAMESPACE();
namespace imbrex::arith::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// In single precision, infinite where it is too large for that: Highway's portable targets would take the largest number.
template <class D, class V>
HWY_INLINE auto to_single(D d, V x) {
#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128
  const hn::Rebind<double, D> wide;
  HWY_ALIGN double values[kRowLanes];
  HWY_ALIGN float singles[kRowLanes];
  hn::Store(x, wide, values);
  for (size_t i = 0; i < hn::Lanes(d); ++i) singles[i] = static_cast<float>(values[i]);
  return hn::Load(d, singles);
#else
  return hn::DemoteTo(d, x);
#endif
}

HWY_ATTR bool accumulate_row_vectors(const RowTask& task) {
  const hn::CappedTag<int32_t, kRowLanes> di;
  const hn::RebindToUnsigned<decltype(di)> du;
  // Sums are carried on in doubles, a part of a vector of columns at a time.
  const hn::CappedTag<double, kRowLanes> dd;
  const hn::RebindToSigned<decltype(dd)> dl;
  const hn::Rebind<int32_t, decltype(dd)> dpi;
  const hn::Rebind<float, decltype(dd)> dpf;
  const auto lanes = static_cast<int64_t>(hn::Lanes(di));
  const auto part = static_cast<int64_t>(hn::Lanes(dd));
  HWY_ALIGN int32_t terms[kRowLanes];
  HWY_ALIGN int32_t exponents[kRowLanes];

  const auto shift_limit = hn::Set(di, 31);
  const auto extra_shift = hn::Set(di, kRowFraction - task.kept_bits);
  const auto smallest_normal = hn::Set(dd, 0x1p-126);
  const auto kept = hn::BitCast(
      dd, hn::Set(hn::RebindToUnsigned<decltype(dd)>(), ~uint64_t{0} << (52 - task.result_fraction)));
  bool any_subnormal = false;

  for (int64_t n = 0; n < task.columns; n += lanes) {
    auto largest = hn::Set(di, kZeroExponent * 2);
    for (int k = 0; k < task.length; ++k) {
      const auto b = hn::LoadU(di, task.b_exponent + k * task.columns + n);
      largest = hn::Max(largest, hn::Add(hn::Set(di, task.a_exponent[k]), b));
    }
    const auto scale = task.scale_exponent != nullptr ? hn::LoadU(di, task.scale_exponent + n) : hn::Zero(di);
    const auto c_exponent = hn::LoadU(di, task.c_exponent + n);
    const auto top = hn::Max(hn::Max(hn::Add(largest, scale), c_exponent), hn::Set(di, task.exponent_floor));
    const auto product_top = hn::Add(hn::Sub(top, scale), extra_shift);

    // |x| >> min(distance, 31) with x's sign.
    auto cut = [&](auto x, auto distance) HWY_ATTR {
      const auto sign = hn::BroadcastSignBit(x);
      const auto shift = hn::BitCast(du, hn::Min(distance, shift_limit));
      const auto magnitude = hn::BitCast(di, hn::Shr(hn::BitCast(du, hn::Abs(x)), shift));
      return hn::Sub(hn::Xor(magnitude, sign), sign);
    };
    auto add_to_sums = [&](auto x, bool is_first) HWY_ATTR {
      hn::Store(x, di, terms);
      for (int64_t at = 0; at < lanes; at += part) {
        const auto term = hn::PromoteTo(dd, hn::Load(dpi, terms + at));
        const auto sum = is_first ? term : hn::Add(hn::LoadU(dd, task.sums + n + at), term);
        hn::StoreU(sum, dd, task.sums + n + at);
      }
    };
    add_to_sums(cut(hn::LoadU(di, task.c_significand + n), hn::Add(hn::Sub(top, c_exponent), extra_shift)),
                true);
    for (int first = 0; first < task.length; first += 16) {
      // Sixteen terms below 2^27 each stay below 2^31.
      auto sum = hn::Zero(di);
      const int end = first + 16 < task.length ? first + 16 : task.length;
      for (int k = first; k < end; ++k) {
        const auto exponent =
            hn::Add(hn::Set(di, task.a_exponent[k]), hn::LoadU(di, task.b_exponent + k * task.columns + n));
        const auto product = hn::Mul(hn::Set(di, task.a_significand[k]),
                                     hn::LoadU(di, task.b_significand + k * task.columns + n));
        sum = hn::Add(sum, cut(product, hn::Sub(product_top, exponent)));
      }
      add_to_sums(sum, false);
    }

    // Scale by 2^(top - kept_bits), built as a double, and cut to what f32 keeps.
    hn::Store(hn::Add(top, hn::Set(di, 1023 - task.kept_bits)), di, exponents);
    for (int64_t at = 0; at < lanes; at += part) {
      const auto biased = hn::PromoteTo(dl, hn::Load(dpi, exponents + at));
      const auto factor = hn::BitCast(dd, hn::ShiftLeft<52>(biased));
      const auto value = hn::Mul(hn::LoadU(dd, task.sums + n + at), factor);
      hn::StoreU(value, dd, task.sums + n + at);
      const auto subnormal = hn::And(hn::Lt(hn::Abs(value), smallest_normal), hn::Ne(value, hn::Zero(dd)));
      any_subnormal = any_subnormal || !hn::AllFalse(dd, subnormal);
      const auto result = to_single(dpf, hn::And(value, kept));
      hn::StoreU(result, dpf, reinterpret_cast<float*>(task.results) + n + at);
    }
  }
  return any_subnormal;
}

// The compiler makes vectors of the loops below.
bool take_apart_vectors(const FloatFormat& format, const uint32_t* HWY_RESTRICT patterns, int64_t count,
                        int fraction, bool negate, int32_t* HWY_RESTRICT significand,
                        int32_t* HWY_RESTRICT exponent, int32_t* HWY_RESTRICT special) {
  const int value_bits = format.exponent_bits + format.mantissa_bits, mantissa_bits = format.mantissa_bits;
  const int low_bits = format.unused_low_bits, shift = fraction - mantissa_bits;
  const int32_t bias = format.bias;
  const uint32_t value_mask = (1u << value_bits) - 1, mantissa_mask = (1u << mantissa_bits) - 1;
  const auto first_special = static_cast<uint32_t>(format.max_finite() >> low_bits) + 1;
  const uint32_t negation = negate ? 1 : 0;
  int32_t any = 0;
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t bits = patterns[i] >> low_bits;
    const uint32_t magnitude = bits & value_mask, biased = magnitude >> mantissa_bits;
    const uint32_t leading = biased != 0 ? 1u << mantissa_bits : 0;
    const auto value = static_cast<int32_t>((magnitude & mantissa_mask) | leading) << shift;
    const uint32_t negative = (bits >> value_bits & 1) ^ negation;
    significand[i] = negative != 0 ? -value : value;
    const auto from_one = static_cast<int32_t>(biased != 0 ? biased : 1);
    exponent[i] = magnitude != 0 ? from_one - bias : kZeroExponent;
    special[i] = magnitude >= first_special ? 1 : 0;
    any |= special[i];
  }
  return any != 0;
}

void sum_groups_vectors(int groups, int64_t columns, const int32_t* HWY_RESTRICT a,
                        const int32_t* HWY_RESTRICT b, int32_t* HWY_RESTRICT sums) {
  for (int group = 0; group < groups; ++group) {
    int32_t* const out = sums + group * columns;
    for (int64_t n = 0; n < columns; ++n) out[n] = 0;
    for (int k = group * kGroupLength; k < (group + 1) * kGroupLength; ++k)
      for (int64_t n = 0; n < columns; ++n) out[n] += a[k] * b[k * columns + n];
  }
}

/// In units of 2^-kept_bits of the largest exponent, cut toward zero.
HWY_INLINE int64_t cut_term(int64_t significand, int shift) {
  const int64_t magnitude = significand < 0 ? -significand : significand;
  // A zero may have any exponent.
  const int right = shift < -63 ? 63 : shift < 0 ? -shift : 0, left = shift > 62 ? 62 : shift < 0 ? 0 : shift;
  const int64_t cut = magnitude >> right << left;
  return significand < 0 ? -cut : cut;
}

bool accumulate_group_row_vectors(const GroupRowTask& task) {
  constexpr int64_t kPart = kRowLanes;
  const auto kept_by_f32 = ~uint64_t{0} << (52 - 23);
  bool any_subnormal = false;
  for (int64_t n = 0; n < task.columns; n += kPart) {
    int32_t top[kPart];
    int64_t total[kPart];
    for (int64_t i = 0; i < kPart; ++i) {
      const int32_t c = task.c_exponent[n + i];
      top[i] = c > task.exponent_floor ? c : task.exponent_floor;
    }
    const auto exponent = [&](int group, int64_t i) {
      return task.unit_exponent + task.a_scale_exponent[group] +
             task.b_scale_exponent[group * task.columns + n + i];
    };
    const auto significand = [&](int group, int64_t i) {
      const int64_t at = group * task.columns + n + i;
      return int64_t{task.group_sums[at]} * (task.a_scale[group] * task.b_scale[at]);
    };
    for (int group = 0; group < task.groups; ++group)
      for (int64_t i = 0; i < kPart; ++i) {
        const int32_t of_group = significand(group, i) != 0 ? exponent(group, i) : kZeroExponent;
        top[i] = top[i] > of_group ? top[i] : of_group;
      }
    for (int64_t i = 0; i < kPart; ++i)
      total[i] = cut_term(task.c_significand[n + i],
                          task.kept_bits - kRowFraction - (top[i] - task.c_exponent[n + i]));
    for (int group = 0; group < task.groups; ++group)
      for (int64_t i = 0; i < kPart; ++i)
        total[i] += cut_term(significand(group, i),
                             task.kept_bits - task.fraction_bits - (top[i] - exponent(group, i)));
    for (int64_t i = 0; i < kPart; ++i) {
      const auto unit =
          std::bit_cast<double>(static_cast<uint64_t>(int64_t{1023} + top[i] - task.kept_bits) << 52);
      const double sum = static_cast<double>(total[i]) * unit;
      any_subnormal |= sum != 0 && sum > -0x1p-126 && sum < 0x1p-126;
      task.sums[n + i] = sum;
      task.results[n + i] = std::bit_cast<uint32_t>(
          static_cast<float>(std::bit_cast<double>(std::bit_cast<uint64_t>(sum) & kept_by_f32)));
    }
  }
  return any_subnormal;
}

}  // namespace imbrex::arith::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace imbrex::arith {

HWY_EXPORT(accumulate_row_vectors);

HWY_EXPORT(take_apart_vectors);
HWY_EXPORT(sum_groups_vectors);
HWY_EXPORT(accumulate_group_row_vectors);

bool accumulate_row(const RowTask& task) { return HWY_DYNAMIC_DISPATCH(accumulate_row_vectors)(task); }

bool take_apart(const FloatFormat& format, const uint32_t* patterns, int64_t count, int fraction, bool negate,
                int32_t* significand, int32_t* exponent, int32_t* special) {
  return HWY_DYNAMIC_DISPATCH(take_apart_vectors)(format, patterns, count, fraction, negate, significand,
                                                  exponent, special);
}

bool accumulate_group_row(const GroupRowTask& task) {
  return HWY_DYNAMIC_DISPATCH(accumulate_group_row_vectors)(task);
}

void sum_groups(int groups, int64_t columns, const int32_t* a, const int32_t* b, int32_t* sums) {
  HWY_DYNAMIC_DISPATCH(sum_groups_vectors)(groups, columns, a, b, sums);
}

}  // namespace imbrex::arith
#endif  // HWY_ONCE
