// SPDX-License-Identifier: Apache-2.0
// The largest of some numbers in registers, found among integers that are ordered as the numbers are.
#pragma once

#include <limits>

#include "imbrex/lang.h"

namespace imbrex::kernels::number_order {

inline constexpr float kLeast = -std::numeric_limits<float>::infinity();
inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
inline constexpr int kOutside = std::numeric_limits<int>::min();  // the key of what there is not

/// The bits of a float32 as an integer of the same order, and back: negative numbers have theirs turned round.
inline RegisterValue turned(const RegisterBase& bits) { return bits ^ ((bits >> 31) & 0x7FFFFFFF); }
inline RegisterValue value_of(const RegisterBase& keys) { return imbrex::view(turned(keys), float32); }

/// NaN as minus infinity, -0 as 0.
inline RegisterValue key_of(const RegisterBase& numbers) {
  constexpr int kMinusZero = -1;
  auto keys = turned(imbrex::view(select(numbers == numbers, numbers, kLeast), int32));
  return select(keys == kMinusZero, 0, keys);
}

/// The key before: of 0 that of the number before, which -0 is not.
inline RegisterValue before(const RegisterBase& keys) { return select(keys == 0, -2, keys - 1); }

/// The k-th largest, equal ones counted once.
inline RegisterTensor bound_by_taking(const RegisterBase& maxima, const Int32& k) {
  RegisterTensor left = maxima, bound = max(maxima, {.axis = 1, .keep = true});
  for (Int32 taken : range(1, k)) {
    (void)taken;
    left = select(left == bound, kOutside, left);
    bound = max(left, {.axis = 1, .keep = true});
  }
  return bound;
}

inline RegisterValue count_of(const RegisterValue& mask) {
  return sum(mask.to(int32), {.axis = 1, .keep = true});
}

/// A number that at least k of each row's keys reach, [rows, 1]: the k-th largest, or a smaller one that at most
/// `more` further ones reach.
inline RegisterTensor bound_of(const RegisterBase& keys, const Int32& k, int more) {
  RegisterTensor least = min(keys, {.axis = 1, .keep = true}), most = max(keys, {.axis = 1, .keep = true});
  RegisterTensor reached = count_of(keys >= least);
  for (Int32 step : range(32)) {
    (void)step;
    break_if(all(reached <= k + more || least == most));
    auto middle = (least | most) - ((least ^ most) >> 1);  // rounded up, without overflow
    auto number = count_of(keys >= middle);
    auto is_bound = number >= k;
    reached = select(is_bound, number, reached);
    most = select(is_bound, most, middle - 1);
    least = select(is_bound, middle, least);
  }
  return least;
}

/// The place up to which the row has `count` elements of the mask, [rows, 1]; places are below 2^place_bits.
inline RegisterTensor last_place(const RegisterValue& mask, const RegisterBase& places,
                                 const RegisterValue& count, int place_bits) {
  const auto rows = static_cast<int>(mask.shape()[0]);
  RegisterTensor last = zeros(int32, {rows, 1});
  for (Int32 bit : range(place_bits - 1, -1, -1)) {
    // With this bit, the last place of those whose bits above are the same and that lack it.
    auto before = last + (Int32(1) << bit);
    auto too_few = count_of(mask && places < before) < count;
    last = select(too_few, before, last);
  }
  return last;
}

}  // namespace imbrex::kernels::number_order
