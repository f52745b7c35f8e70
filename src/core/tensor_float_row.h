// SPDX-License-Identifier: Apache-2.0
// Inside tensor_*.cpp: a row of the tensor core's sum where single precision holds every product exactly, which is so
// unless exponents are extreme. A product scaled to the grid's unit and converted to an integer is then cut as the
// core cuts it.
#pragma once

#include <cstdint>

#include "core/float_formats.h"

namespace imbrex::arith {

/// The exponent of a zero among kept exponents: the sum of two of them fits 16 bits.
inline constexpr int16_t kZeroFloatExponent = -16000;
/// Operands other than zero have exponents within plus or minus this.
inline constexpr int kMostFloatExponent = 50;

/// take_apart() into single precision, exact. False where a number is not finite or its exponent too far from zero;
/// what has been stored means nothing then.
bool take_apart_floats(const FloatFormat& format, const uint32_t* patterns, int64_t count, bool negate,
                       float* values, int16_t* exponents);

/// A row of `blocks` blocks of `length` products, each chained to the one before.
struct FloatRowTask {
  int64_t blocks;
  int length;
  int64_t columns;            ///< a multiple of kRowLanes
  const float* a;             ///< [blocks * length]
  const int16_t* a_exponent;  ///< likewise
  const float* b;             ///< [blocks * length][columns]
  const int16_t* b_exponent;  ///< likewise
  const int32_t* a_scale;     ///< [blocks], added to the exponents of products; or null, like b_scale
  const int32_t* b_scale;     ///< [blocks][columns]
  int kept_bits, exponent_floor;
  int result_fraction;  ///< fraction bits that a result keeps: 23 or 13
  const uint32_t* c;    ///< [columns]: f32 patterns
  uint32_t* results;    ///< [columns], out: f32 patterns
};
/// False where some result is not to be computed so: an addend is not finite or so small that it would be lost, or a
/// sum is subnormal.
bool accumulate_float_row(const FloatRowTask& task);

}  // namespace imbrex::arith
