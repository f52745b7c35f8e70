// SPDX-License-Identifier: Apache-2.0
// Floating-point formats: what their bits mean, and how a value is rounded into them, as `cvt` does on the
// chip.
//
// The generic decode/encode pair handles every format and is the definition; the functions for f16 and bf16
// below it are branch-free, so that loops over them vectorise, and give the same bits.
//
// All of src/core's arithmetic assumes the default floating-point environment: round to nearest, subnormals
// kept.
#pragma once

#include <bit>
#include <cstdint>

#include "imbrex/core/dtype.h"

namespace imbrex::arith {

/// PTX rounding modes: .rn, .rz, .rm, .rp, .rna (nearest, ties away from zero).
enum class Rounding : uint8_t { kNearestEven, kTowardZero, kDown, kUp, kNearestAway };

/// One floating-point format: the facts of its type, and what follows from them.
struct FloatFormat {
  int bits = 32;  ///< width of the pattern
  int exponent_bits = 8;
  int mantissa_bits = 23;  ///< stored fraction bits
  int bias = 127;
  bool has_sign = true;
  Specials specials = Specials::kInfNan;
  int unused_low_bits = 0;  ///< tf32: 13, the low bits of its 32-bit container that carry nothing
  uint64_t nan = 0;  ///< the NaN that a conversion gives (canonical, sign clear); unused if there is none

  friend constexpr bool operator==(const FloatFormat&, const FloatFormat&) = default;

  /// Exponent of the smallest normal number. ue8m0, which has no subnormals, reaches one further: -bias.
  constexpr int min_exponent() const { return mantissa_bits == 0 ? -bias : 1 - bias; }
  /// Pattern of the largest finite magnitude.
  constexpr uint64_t max_finite() const;
  /// Pattern of +infinity; only for Specials::kInfNan.
  constexpr uint64_t infinity() const {
    return ((uint64_t{1} << exponent_bits) - 1) << (mantissa_bits + unused_low_bits);
  }
  /// The sign bit's mask; 0 for formats without a sign.
  constexpr uint64_t sign_mask() const { return has_sign ? uint64_t{1} << (bits - 1) : 0; }
};

constexpr uint64_t FloatFormat::max_finite() const {
  uint64_t magnitude = (uint64_t{1} << (exponent_bits + mantissa_bits)) - 1;
  if (specials == Specials::kNanOnly) magnitude -= 1;
  if (specials == Specials::kInfNan) magnitude -= uint64_t{1} << mantissa_bits;
  return magnitude << unused_low_bits;
}

/// The format of a floating-point type, by the table of types.
constexpr FloatFormat format_of(DataType type) {
  const DataTypeFacts& f = facts_of(type);
  FloatFormat format{f.bits, f.exponent_bits, f.mantissa_bits, f.bias, f.has_sign, f.specials, 0, 0};
  if (type == tfloat32) format.unused_low_bits = 13;
  const uint64_t all_ones = ((uint64_t{1} << (f.exponent_bits + f.mantissa_bits)) - 1)
                            << format.unused_low_bits;
  if (f.specials != Specials::kNone) format.nan = type == float64 ? 0x7FF8000000000000 : all_ones;
  return format;
}

inline constexpr FloatFormat kF64 = format_of(float64);
inline constexpr FloatFormat kF32 = format_of(float32);
inline constexpr FloatFormat kTF32 = format_of(tfloat32);
inline constexpr FloatFormat kBF16 = format_of(bfloat16);
inline constexpr FloatFormat kF16 = format_of(float16);
inline constexpr FloatFormat kE5M2 = format_of(float8_e5m2);
inline constexpr FloatFormat kE4M3 = format_of(float8_e4m3);
inline constexpr FloatFormat kE3M2 = format_of(float6_e3m2);
inline constexpr FloatFormat kE2M3 = format_of(float6_e2m3);
inline constexpr FloatFormat kE2M1 = format_of(float4_e2m1);
inline constexpr FloatFormat kUE8M0 = format_of(float8_e8m0);
inline constexpr FloatFormat kUE4M3 = format_of(float8_ue4m3);

/// The format of a floating-point element type. Throws InternalError for the others.
const FloatFormat& float_format(DataType type);

/// The value of a bit pattern, exactly: every format fits into a double. Bits above the format's width are
/// ignored. A NaN comes out as a quiet NaN that keeps sign and, for f64 and f32, payload.
double decode(const FloatFormat& format, uint64_t bits);

/// How encode() treats the range: the suffixes of `cvt`.
struct EncodeOptions {
  Rounding rounding = Rounding::kNearestEven;
  bool satfinite = false;  ///< out of range, infinities too, gives the largest finite number
  bool relu = false;       ///< negative numbers and -0 give +0
};

/// `value` rounded to the format once; the result has no bits above the format's width. NaN gives the
/// format's canonical NaN, or its largest number when it has none. Without satfinite a value out of range
/// gives what the rounding mode says: infinity or the largest finite number; formats without infinity always
/// saturate. ue8m0 takes the magnitude (kTowardZero or kUp; 0 gives its smallest value, and overflow NaN
/// unless satfinite).
uint64_t encode(const FloatFormat& format, double value, EncodeOptions options = {});

// ---- f16 and bf16, branch-free ---------------------------------------------------------------------------

/// f16 to f32, exact (`cvt.f32.f16`): NaN gives 0x7FFFFFFF.
inline float f16_to_f32(uint16_t h) {
  const uint32_t magnitude = h & 0x7FFFu;
  // The exponent is rebased by an exact multiplication, which normalises subnormals on the way.
  float value = std::bit_cast<float>(magnitude << 13) * 0x1p112f;
  uint32_t bits = std::bit_cast<uint32_t>(value);
  bits = magnitude >= 0x7C00u ? 0x7F800000u : bits;
  bits |= (h & 0x8000u) << 16;
  bits = magnitude > 0x7C00u ? 0x7FFFFFFFu : bits;
  return std::bit_cast<float>(bits);
}

/// f32 to f16, nearest even (`cvt.rn.f16.f32`): NaN gives 0x7FFF.
inline uint16_t f32_to_f16(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const uint32_t magnitude = bits & 0x7FFFFFFFu;
  // Normal results: add half of the last kept place, less one when that place is even, and cut.
  const uint32_t normal = (magnitude + 0xFFFu + ((magnitude >> 13) & 1) - (112u << 23)) >> 13;
  // Subnormal results: an addition to 0.5 leaves multiples of 2^-24 in the low bits.
  const uint32_t subnormal = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3F000000u;
  uint32_t result = magnitude < 0x38800000u ? subnormal : normal;
  result = magnitude >= 0x477FF000u ? 0x7C00u : result;
  result |= (bits >> 16) & 0x8000u;
  result = magnitude > 0x7F800000u ? 0x7FFFu : result;
  return static_cast<uint16_t>(result);
}

/// bf16 to f32 (`cvt.f32.bf16`): a shift, NaN payloads kept.
inline float bf16_to_f32(uint16_t h) { return std::bit_cast<float>(static_cast<uint32_t>(h) << 16); }

/// f32 to bf16, nearest even (`cvt.rn.bf16.f32`): NaN gives 0x7FFF.
inline uint16_t f32_to_bf16(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  uint32_t result = (bits + 0x7FFFu + ((bits >> 16) & 1)) >> 16;
  result = (bits & 0x7FFFFFFFu) > 0x7F800000u ? 0x7FFFu : result;
  return static_cast<uint16_t>(result);
}

// ---- elements of less than a byte ------------------------------------------------------------------------

/// Element `index` of an array of elements of `bits` bits, one after the other from the lowest bit on: how
/// tensors in global memory hold them.
inline uint8_t packed_element(const void* array, int bits, int64_t index) {
  const auto* bytes = static_cast<const uint8_t*>(array) + index * bits / 8;
  const auto shift = static_cast<int>(index * bits % 8);
  uint32_t pair = bytes[0];
  if (shift + bits > 8) pair |= static_cast<uint32_t>(bytes[1]) << 8;
  return static_cast<uint8_t>(pair >> shift & ((1u << bits) - 1));
}
inline void set_packed_element(void* array, int bits, int64_t index, uint8_t pattern) {
  auto* bytes = static_cast<uint8_t*>(array) + index * bits / 8;
  const auto shift = static_cast<int>(index * bits % 8);
  const uint32_t mask = ((1u << bits) - 1) << shift, value = static_cast<uint32_t>(pattern) << shift & mask;
  bytes[0] = static_cast<uint8_t>((bytes[0] & ~mask) | value);
  if (shift + bits > 8) bytes[1] = static_cast<uint8_t>((bytes[1] & ~(mask >> 8)) | value >> 8);
}

// ---- whole arrays ----------------------------------------------------------------------------------------

/// `count` patterns of a format to f32. Elements are as in memory: one, two or four bytes each; 6-bit formats
/// in a byte each; 4-bit ones two to a byte, low nibble first (`count` counts elements). f64 is rounded.
void decode_array(const FloatFormat& format, const void* from, float* to, int64_t count);
/// `count` f32 values rounded to nearest even into a format, stored as decode_array reads them; the narrow
/// formats (8 bits and less) saturate, as their `cvt` must.
void encode_array(const FloatFormat& format, const float* from, void* to, int64_t count);

}  // namespace imbrex::arith
