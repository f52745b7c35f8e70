// SPDX-License-Identifier: Apache-2.0
// Division by a number that the whole grid shares: one multiplication on the device, its factor computed on
// the host.
#pragma once

#include <bit>
#include <cstdint>

namespace imbrex::codegen {

/// What a kernel needs to divide any 0 <= n < 2^31 by `divisor` (1 ... 2^31 - 1): with multiplier = low 32
/// bits and shift = high 32 bits,
///
///     n / divisor = mul.hi.u32(2 n, multiplier) >> shift
///
/// With l = ceil(log2 divisor) and m = ceil(2^(31+l) / divisor), m * divisor exceeds 2^(31+l) by less than
/// divisor
/// <= 2^l, so n * m / 2^(31+l) exceeds n / divisor by less than n / (2^31 * divisor) < 1 / divisor: the floor
/// is right. m < 2^32 because 2^l < 2 * divisor.
inline uint64_t fast_divmod_magic(uint32_t divisor) {
  const int shift = std::bit_width(divisor - 1);
  const uint64_t multiplier = ((uint64_t{1} << (31 + shift)) + divisor - 1) / divisor;
  return multiplier | static_cast<uint64_t>(shift) << 32;
}

}  // namespace imbrex::codegen
