// SPDX-License-Identifier: Apache-2.0
// A product of two significands of up to 11 bits, scaled so that nothing above the grid is lost, fits a
// 32-bit lane, and so do sixteen of them added; the sum of a block fits a double.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/tensor_row.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include "core/tensor_operand.h"
#include "core/tensor_row.h"

HWY_BEFORE_NAMESPACE();
namespace imbrex::arith::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

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
      const auto result = hn::DemoteTo(dpf, hn::And(value, kept));
      hn::StoreU(result, dpf, reinterpret_cast<float*>(task.results) + n + at);
    }
  }
  return any_subnormal;
}

}  // namespace imbrex::arith::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace imbrex::arith {

HWY_EXPORT(accumulate_row_vectors);

bool accumulate_row(const RowTask& task) { return HWY_DYNAMIC_DISPATCH(accumulate_row_vectors)(task); }

}  // namespace imbrex::arith
#endif  // HWY_ONCE
