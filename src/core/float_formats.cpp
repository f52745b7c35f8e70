// SPDX-License-Identifier: Apache-2.0
#include "core/float_formats.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "imbrex/core/error.h"

namespace imbrex::arith {

const FloatFormat& float_format(DataType type) {
  static constexpr auto formats = [] {
    std::array<FloatFormat, DataType::kCount> all{};
    for (int code = 0; code < DataType::kCount; ++code)
      if (const DataType each{static_cast<DataType::Code>(code)}; each.is_float())
        all[code] = format_of(each);
    return all;
  }();
  if (!type.is_float()) throw InternalError(std::string(type.name()) + " is not a floating-point type");
  return formats[type.code];
}

namespace {

constexpr uint64_t low_mask(int bits) { return bits >= 64 ? ~uint64_t{0} : (uint64_t{1} << bits) - 1; }

/// A positive double as significand * 2^exponent, significand below 2^53; subnormals not normalised.
struct Parts {
  uint64_t significand;
  int exponent;
};
Parts parts_of(double magnitude) {
  const uint64_t bits = std::bit_cast<uint64_t>(magnitude);
  const int biased = static_cast<int>(bits >> 52);
  const uint64_t fraction = bits & low_mask(52);
  return biased == 0 ? Parts{fraction, -1074} : Parts{fraction | uint64_t{1} << 52, biased - 1075};
}

/// significand / 2^shift rounded to an integer.
uint64_t round_shift(uint64_t significand, int shift, Rounding rounding, bool negative) {
  if (shift <= 0) return significand << -shift;
  const uint64_t whole = shift >= 64 ? 0 : significand >> shift;
  const uint64_t rest = shift >= 64 ? significand : significand & low_mask(shift);
  // Beyond 63 places everything is below half: significands have 53 bits.
  const uint64_t half = shift >= 64 ? ~uint64_t{0} : uint64_t{1} << (shift - 1);
  switch (rounding) {
    case Rounding::kNearestEven:
      return whole + (rest > half || (rest == half && (whole & 1)));
    case Rounding::kNearestAway:
      return whole + (rest >= half);
    case Rounding::kTowardZero:
      return whole;
    case Rounding::kDown:
      return whole + (negative && rest != 0);
    case Rounding::kUp:
      return whole + (!negative && rest != 0);
  }
  return whole;
}

/// ue8m0 has neither zero nor sign: the exponent of |value|, cut or rounded up.
uint64_t encode_power_of_two(double value, EncodeOptions options) {
  if (value != value) return kUE8M0.nan;
  const double magnitude = std::fabs(value);
  uint64_t result = 0;
  if (magnitude > 0x1p-127) {
    const uint64_t bits = std::bit_cast<uint64_t>(magnitude);
    const bool up = options.rounding == Rounding::kUp && (bits & low_mask(52)) != 0;
    const int64_t exponent = static_cast<int64_t>(bits >> 52) - 1023 + (up ? 1 : 0);
    result = exponent > 127 ? kUE8M0.nan : static_cast<uint64_t>(exponent + 127);
  }
  return options.satfinite ? std::min(result, kUE8M0.max_finite()) : result;
}

}  // namespace

double decode(const FloatFormat& format, uint64_t bits) {
  bits = (bits & low_mask(format.bits)) >> format.unused_low_bits;
  const int value_bits = format.exponent_bits + format.mantissa_bits;
  const bool negative = format.has_sign && (bits >> value_bits & 1);
  const uint64_t magnitude = bits & low_mask(value_bits);
  const uint64_t mantissa = magnitude & low_mask(format.mantissa_bits);
  const int exponent = static_cast<int>(magnitude >> format.mantissa_bits);
  const uint64_t sign = negative ? uint64_t{1} << 63 : 0;
  const bool top = exponent == (1 << format.exponent_bits) - 1;

  if (format.specials == Specials::kInfNan && top) {
    // The payload moves to the top of the double's fraction; NaNs are quieted.
    const uint64_t payload = mantissa << (52 - format.mantissa_bits);
    return std::bit_cast<double>(sign | 0x7FF0000000000000 | payload |
                                 (mantissa != 0 ? uint64_t{1} << 51 : 0));
  }
  if (format.specials == Specials::kNanOnly && magnitude == low_mask(value_bits))
    return std::bit_cast<double>(sign | 0x7FF8000000000000);
  if (format.mantissa_bits == 0) return std::ldexp(1.0, exponent - format.bias);  // ue8m0
  const uint64_t significand = exponent == 0 ? mantissa : mantissa | uint64_t{1} << format.mantissa_bits;
  const int scale = (exponent == 0 ? 1 : exponent) - format.bias - format.mantissa_bits;
  const double value = std::ldexp(static_cast<double>(significand), scale);
  return negative ? -value : value;
}

uint64_t encode(const FloatFormat& format, double value, EncodeOptions options) {
  if (format.mantissa_bits == 0) return encode_power_of_two(value, options);
  if (value != value) return format.specials == Specials::kNone ? format.max_finite() : format.nan;
  const bool negative = std::signbit(value);
  if (negative && (options.relu || !format.has_sign)) return 0;
  const uint64_t sign = negative ? format.sign_mask() : 0;
  const bool no_infinity = options.satfinite || format.specials != Specials::kInfNan;
  if (std::isinf(value)) return sign | (no_infinity ? format.max_finite() : format.infinity());
  if (value == 0) return sign;

  const auto [significand, exponent] = parts_of(std::fabs(value));
  const int top = exponent + 63 - std::countl_zero(significand);
  const int binade = top < format.min_exponent() ? format.min_exponent() : top;
  const int unit = binade - format.mantissa_bits;
  const uint64_t rounded = round_shift(significand, unit - exponent, options.rounding, negative);
  // A normal significand carries its leading one into the exponent field, and so does a rounding carry.
  uint64_t pattern =
      rounded + (static_cast<uint64_t>(binade - format.min_exponent()) << format.mantissa_bits);
  pattern <<= format.unused_low_bits;
  if (pattern <= format.max_finite()) return sign | pattern;
  if (no_infinity || options.rounding == Rounding::kTowardZero) return sign | format.max_finite();
  if (options.rounding == (negative ? Rounding::kUp : Rounding::kDown)) return sign | format.max_finite();
  return sign | format.infinity();
}

namespace {

/// Every value of an 8-bit-or-less format as f32.
const std::array<float, 256>& small_table(const FloatFormat& format) {
  using Table = std::pair<FloatFormat, std::array<float, 256>>;
  static const std::vector<Table> tables = [] {
    std::vector<Table> all;
    for (int code = 0; code < DataType::kCount; ++code) {
      const DataType type{static_cast<DataType::Code>(code)};
      if (!type.is_float() || type.bits() > 8) continue;
      Table& table = all.emplace_back(format_of(type), std::array<float, 256>{});
      for (uint64_t i = 0; i < 256; ++i) {
        const double value = decode(table.first, i);
        table.second[i] = value != value ? std::bit_cast<float>(0x7FFFFFFF) : static_cast<float>(value);
      }
    }
    return all;
  }();
  for (const Table& table : tables)
    if (table.first == format) return table.second;
  throw InternalError("no type has this format");
}

}  // namespace

void decode_array(const FloatFormat& format, const void* from, float* to, int64_t count) {
  const auto* bytes = static_cast<const uint8_t*>(from);
  if (format.bits == 4) {
    const std::array<float, 256>& table = small_table(format);
    for (int64_t i = 0; i < count; ++i) to[i] = table[bytes[i / 2] >> (i % 2 * 4) & 0xF];
  } else if (format.bits <= 8) {
    const std::array<float, 256>& table = small_table(format);
    for (int64_t i = 0; i < count; ++i) to[i] = table[bytes[i]];
  } else if (format.bits == 16) {
    const auto* halves = static_cast<const uint16_t*>(from);
    if (format.exponent_bits == 5)
      for (int64_t i = 0; i < count; ++i) to[i] = f16_to_f32(halves[i]);
    else
      for (int64_t i = 0; i < count; ++i) to[i] = bf16_to_f32(halves[i]);
  } else if (format.bits == 32) {
    const auto* words = static_cast<const uint32_t*>(from);
    const uint32_t kept = ~static_cast<uint32_t>(low_mask(format.unused_low_bits));
    for (int64_t i = 0; i < count; ++i) to[i] = std::bit_cast<float>(words[i] & kept);
  } else {
    const auto* doubles = static_cast<const double*>(from);
    for (int64_t i = 0; i < count; ++i) to[i] = static_cast<float>(doubles[i]);
  }
}

void encode_array(const FloatFormat& format, const float* from, void* to, int64_t count) {
  auto* bytes = static_cast<uint8_t*>(to);
  const EncodeOptions narrow{
      .rounding = format.mantissa_bits == 0 ? Rounding::kTowardZero : Rounding::kNearestEven,
      .satfinite = true};
  if (format.bits == 4) {
    for (int64_t i = 0; i < count; ++i) {
      const auto nibble = static_cast<uint8_t>(encode(format, from[i], narrow));
      uint8_t& byte = bytes[i / 2];
      byte = i % 2 == 0 ? static_cast<uint8_t>((byte & 0xF0) | nibble)
                        : static_cast<uint8_t>((byte & 0x0F) | nibble << 4);
    }
  } else if (format.bits <= 8) {
    for (int64_t i = 0; i < count; ++i) bytes[i] = static_cast<uint8_t>(encode(format, from[i], narrow));
  } else if (format.bits == 16) {
    auto* halves = static_cast<uint16_t*>(to);
    if (format.exponent_bits == 5)
      for (int64_t i = 0; i < count; ++i) halves[i] = f32_to_f16(from[i]);
    else
      for (int64_t i = 0; i < count; ++i) halves[i] = f32_to_bf16(from[i]);
  } else if (format.unused_low_bits != 0) {
    auto* words = static_cast<uint32_t*>(to);
    for (int64_t i = 0; i < count; ++i) words[i] = static_cast<uint32_t>(encode(format, from[i]));
  } else if (format.bits == 32) {
    std::memcpy(to, from, static_cast<size_t>(count) * sizeof(float));
  } else {
    auto* doubles = static_cast<double*>(to);
    for (int64_t i = 0; i < count; ++i) doubles[i] = from[i];
  }
}

}  // namespace imbrex::arith
