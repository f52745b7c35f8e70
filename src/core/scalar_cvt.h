// SPDX-License-Identifier: Apache-2.0
// The `cvt` instruction between any two scalar types. cvt() takes everything at run time and is the
// reference; the templates and functions above it are its common cases, ready for a lane loop.
#pragma once

#include <concepts>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "core/float_formats.h"
#include "core/scalar_float.h"
#include "imbrex/core/dtype.h"

namespace imbrex::arith {

/// Integer to integer with .sat: clamped to To's range. (Without .sat a static_cast is the whole conversion.)
template <std::integral To, std::integral From>
constexpr To clamp_to(From x) {
  const auto wide = static_cast<__int128>(x);
  if (wide < static_cast<__int128>(std::numeric_limits<To>::min())) return std::numeric_limits<To>::min();
  if (wide > static_cast<__int128>(std::numeric_limits<To>::max())) return std::numeric_limits<To>::max();
  return static_cast<To>(x);
}

/// x rounded to an integral value (`cvt.rni.f32.f32` and the like); keeps the sign of zero.
/// kNearestEven: rni, kTowardZero: rzi, kDown: rmi, kUp: rpi. f32 NaN gives the canonical one.
float round_to_integral(float x, Rounding rounding);
double round_to_integral(double x, Rounding rounding);

/// Float to integer: rounded, then clamped to To's range. NaN gives 0, but for f64 sources and 64-bit results
/// the value with only the top bit set.
template <std::integral To, std::floating_point From>
To float_to_int(From x, Rounding rounding = Rounding::kTowardZero) {
  constexpr int kWidth = std::numeric_limits<std::make_unsigned_t<To>>::digits;
  if (is_nan(x)) {
    if (std::same_as<From, float> && kWidth < 64) return 0;
    return static_cast<To>(std::make_unsigned_t<To>{1} << (kWidth - 1));
  }
  const From whole = round_to_integral(x, rounding);
  // Both limits are powers of two, so they are exact in From; the upper one is one past the range.
  constexpr From kEnd =
      static_cast<From>(std::make_unsigned_t<To>{1} << (std::numeric_limits<To>::digits - 1)) * 2;
  constexpr From kBegin = std::is_signed_v<To> ? -kEnd : From{0};
  if (whole >= kEnd) return std::numeric_limits<To>::max();
  if (whole <= kBegin) return std::numeric_limits<To>::min();
  return static_cast<To>(whole);
}

/// Integer to f32 or f64 in any mode. (Round to nearest is a plain static_cast.)
float int_to_f32(int64_t x, Rounding rounding);
float int_to_f32(uint64_t x, Rounding rounding);
double int_to_f64(int64_t x, Rounding rounding);
double int_to_f64(uint64_t x, Rounding rounding);

/// `cvt.rna.tf32.f32`: nearest, ties away. NaN bits are only cut, so 0x7F800001 becomes an infinity; with
/// .satfinite they are cut and one unit is taken off, which may give a number. (As measured on an H200.)
uint32_t cvt_rna_tf32(float x, bool satfinite = false);

/// `.rs`: stochastic rounding. The `random_bits` low bits of `random` are added below the last kept place of
/// the magnitude, and a carry rounds away from zero. 13 bits for f16, 16 for bf16, fp8 and fp6, 8 for e2m1.
uint64_t encode_stochastic(const FloatFormat& format, float value, uint32_t random, int random_bits,
                           bool satfinite, bool relu);

/// One `cvt` instruction.
struct CvtOp {
  DataType to, from;
  Rounding rounding = Rounding::kNearestEven;
  /// Rounds to an integral value (.rni ... .rpi). Implied when `to` is an integer, needed for float to float.
  bool integral = false;
  bool ftz = false;        ///< f32 subnormals, in and out, are flushed
  bool sat = false;        ///< .sat: integers to To's range, floats to [0, 1]
  bool satfinite = false;  ///< out of range gives the largest finite number
  bool relu = false;       ///< negatives and -0 become +0
};
/// The conversion of one value. `bits` holds the source in its low bits (any above its width are ignored); so
/// does the result, zero-extended. tf32 is in a 32-bit container. Throws InternalError for bool.
uint64_t cvt(const CvtOp& op, uint64_t bits);

/// cvt.pack.sat: two s32 clamped to `to` and packed, a in the upper part; for parts narrower than 16 bits
/// (`part_bits` 8, 4 or 2) c is shifted up by two parts and they enter below.
uint32_t cvt_pack(int32_t a, int32_t b, uint32_t c, int part_bits, bool is_signed);

}  // namespace imbrex::arith
