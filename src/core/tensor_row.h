// SPDX-License-Identifier: Apache-2.0
// Inside tensor_*.cpp: one row of the tensor core's sum, vectorised over columns.
#pragma once

#include <cstdint>

#include "core/float_formats.h"

namespace imbrex::arith {

/// Rows are padded to whole vectors of this many columns, enough for any machine.
inline constexpr int64_t kRowLanes = 16;
/// Fraction bits of the addend, and of products: what the finest grid keeps.
inline constexpr int kRowFraction = 25;

/// `length` operands of a against `columns` (padded) columns of b. Numbers are significand * 2^exponent with
/// a number of fraction bits fixed by who fills them in: those of a and b add up to kRowFraction. Everything
/// is finite.
struct RowTask {
  int length;
  int64_t columns;
  const int32_t* a_significand;  ///< [length]
  const int32_t* a_exponent;
  const int32_t* b_significand;  ///< [length][columns]
  const int32_t* b_exponent;
  const int32_t* scale_exponent;  ///< [columns], added to the exponents of products; or null
  const int32_t* c_significand;   ///< [columns]
  const int32_t* c_exponent;
  int kept_bits, exponent_floor;
  int result_fraction;  ///< fraction bits that an f32 result keeps: 23 or 13
  double* sums;         ///< [columns], out: the exact sums
  uint32_t* results;    ///< [columns], out: the sums cut to f32; not right where they are subnormal
};

/// Computes a row. True when some result is subnormal.
bool accumulate_row(const RowTask& task);

/// unpack() for many patterns at once, without branches. Significands get `fraction` fraction bits; `special` is set to
/// 1 for what is not finite (and whose number means nothing then). True when there is any.
bool take_apart(const FloatFormat& format, const uint32_t* patterns, int64_t count, int fraction, bool negate,
                int32_t* significand, int32_t* exponent, int32_t* special);

/// Products that are summed exactly before they are scaled.
inline constexpr int kGroupLength = 16;
/// sums[group][column]: of the group's products of a[] and b[][column].
void sum_groups(int groups, int64_t columns, const int32_t* a, const int32_t* b, int32_t* sums);

/// A row of block-scaled groups: each group's sum times its two factors is one term, beside the addend.
struct GroupRowTask {
  int groups;
  int64_t columns;
  const int32_t* group_sums;  ///< [groups][columns], in units of 2^(unit_exponent - fraction_bits)
  int unit_exponent, fraction_bits;
  const int32_t* a_scale;  ///< [groups]
  const int32_t* a_scale_exponent;
  const int32_t* b_scale;  ///< [groups][columns]
  const int32_t* b_scale_exponent;
  const int32_t* c_significand;  ///< [columns], as in RowTask
  const int32_t* c_exponent;
  int kept_bits, exponent_floor;
  double* sums;  ///< [columns], out, as in RowTask
  uint32_t* results;
};
/// True when some result is subnormal.
bool accumulate_group_row(const GroupRowTask& task);

// tensor_float_row.cpp: a row where single precision holds every product exactly, which is so unless exponents are
// extreme. A product scaled to the grid's unit and converted to an integer is then cut as the core cuts it.

/// The exponent of a zero among kept exponents: the sum of two of them fits 16 bits.
inline constexpr int16_t kZeroFloatExponent = -16000;
/// Operands other than zero have exponents within plus or minus this.
inline constexpr int kMostFloatExponent = 50;

/// take_apart() into single precision, exact. False where a number is not finite or its exponent too far from zero;
/// what has been stored means nothing then.
bool take_apart_floats(const FloatFormat& format, const uint32_t* patterns, int64_t count, bool negate,
                       float* values, int16_t* exponents);

/// to[column][row] = from[row][column], of dense rows to rows of `pitch`.
void transpose(const uint32_t* from, int64_t rows, int64_t columns, uint32_t* to, int64_t pitch);

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
