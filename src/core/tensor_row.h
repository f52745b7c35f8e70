// SPDX-License-Identifier: Apache-2.0
// Inside tensor_*.cpp: one row of one block of the tensor core's sum, vectorised over columns.
#pragma once

#include <cstdint>

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

}  // namespace imbrex::arith
