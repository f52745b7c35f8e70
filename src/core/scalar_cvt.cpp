// SPDX-License-Identifier: Apache-2.0
#include "core/scalar_cvt.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "imbrex/core/error.h"

namespace imbrex::arith {

namespace {

/// The largest integral value not above |x|, and whether something was cut: the modes differ only in when
/// they step one further.
template <typename T>
T to_integral(T x, Rounding rounding) {
  if (x != x || std::isinf(x)) return x;
  const T magnitude = std::fabs(x);
  const T whole = std::floor(magnitude);
  const T rest = magnitude - whole;  // exact
  const bool negative = std::signbit(x);
  bool away = false;
  switch (rounding) {
    case Rounding::kNearestEven:
      away = rest > T(0.5) || (rest == T(0.5) && std::fmod(whole, T(2)) != 0);
      break;
    case Rounding::kNearestAway:
      away = rest >= T(0.5);
      break;
    case Rounding::kTowardZero:
      break;
    case Rounding::kDown:
      away = negative && rest > 0;
      break;
    case Rounding::kUp:
      away = !negative && rest > 0;
      break;
  }
  return std::copysign(away ? whole + 1 : whole, x);
}

/// An integer magnitude as a double rounded to odd, so that it can be rounded again.
double magnitude_to_odd(uint64_t magnitude) {
  if (magnitude >> 53 == 0) return static_cast<double>(magnitude);
  const uint64_t cut = magnitude >> 11 | ((magnitude & 0x7FF) != 0);
  return static_cast<double>(cut) * 2048.0;
}
uint64_t magnitude_of(int64_t x) { return x < 0 ? ~static_cast<uint64_t>(x) + 1 : static_cast<uint64_t>(x); }

double magnitude_to_f64(uint64_t magnitude, Rounding rounding, bool negative) {
  const auto nearest = static_cast<double>(magnitude);
  if (rounding == Rounding::kNearestEven) return nearest;
  // A double of up to 2^64 compared as an integer; one step is always enough.
  const auto back = static_cast<unsigned __int128>(nearest);
  const bool outward = rounding == (negative ? Rounding::kDown : Rounding::kUp);
  if (outward && back < magnitude) return std::nextafter(nearest, HUGE_VAL);
  if (!outward && back > magnitude) return std::nextafter(nearest, 0.0);
  return nearest;
}

}  // namespace

float round_to_integral(float x, Rounding rounding) { return canonical(to_integral(x, rounding)); }
double round_to_integral(double x, Rounding rounding) {
  return is_nan(x) ? detail::quiet(x) : to_integral(x, rounding);
}

float int_to_f32(uint64_t x, Rounding rounding) { return narrow(magnitude_to_odd(x), rounding); }
float int_to_f32(int64_t x, Rounding rounding) {
  const double magnitude = magnitude_to_odd(magnitude_of(x));
  return narrow(x < 0 ? -magnitude : magnitude, rounding);
}
double int_to_f64(uint64_t x, Rounding rounding) { return magnitude_to_f64(x, rounding, false); }
double int_to_f64(int64_t x, Rounding rounding) {
  const double magnitude = magnitude_to_f64(magnitude_of(x), rounding, x < 0);
  return x < 0 ? -magnitude : magnitude;
}

uint32_t cvt_rna_tf32(float x, bool satfinite) {
  if (is_nan(x)) return (f32_bits(x) & 0xFFFFE000) - (satfinite ? 0x2000 : 0);
  return static_cast<uint32_t>(
      encode(kTF32, x, {.rounding = Rounding::kNearestAway, .satfinite = satfinite}));
}

uint64_t encode_stochastic(const FloatFormat& format, float value, uint32_t random, int random_bits,
                           bool satfinite, bool relu) {
  const EncodeOptions toward_zero{.rounding = Rounding::kTowardZero, .satfinite = satfinite, .relu = relu};
  if (is_nan(value) || std::isinf(value)) return encode(format, value, toward_zero);
  // One unit of the last kept place at this magnitude, and the fraction of it that would be cut.
  const double magnitude = std::fabs(static_cast<double>(value));
  const int binade =
      magnitude == 0 ? format.min_exponent() : std::max(std::ilogb(magnitude), format.min_exponent());
  const double unit = std::ldexp(1.0, binade - format.mantissa_bits);
  const double whole = std::floor(magnitude / unit);
  const double fraction = magnitude / unit - whole;
  const auto discarded = static_cast<uint64_t>(std::ldexp(fraction, random_bits));
  const uint64_t added = random & ((uint64_t{1} << random_bits) - 1);
  const bool carry = (discarded + added) >> random_bits != 0;
  const double rounded = (carry ? whole + 1 : whole) * unit;
  // Already on the format's grid: only the range is left to be treated.
  return encode(format, std::copysign(rounded, value), {.satfinite = satfinite, .relu = relu});
}

namespace {

int64_t integer_from_bits(DataType type, uint64_t bits) {
  const int unused = 64 - type.bits();
  const uint64_t top = bits << unused;
  return type.is_signed() ? static_cast<int64_t>(top) >> unused : static_cast<int64_t>(top >> unused);
}

uint64_t low_bits(uint64_t bits, int width) {
  return width >= 64 ? bits : bits & ((uint64_t{1} << width) - 1);
}

uint64_t integer_to_integer(const CvtOp& op, uint64_t bits) {
  const int64_t value = integer_from_bits(op.from, bits);
  if (!op.sat) return low_bits(static_cast<uint64_t>(value), op.to.bits());
  const auto wide = op.from.is_signed() ? static_cast<__int128>(value)
                                        : static_cast<__int128>(static_cast<uint64_t>(value));
  const int width = op.to.bits();
  const __int128 end = static_cast<__int128>(1) << (op.to.is_signed() ? width - 1 : width);
  const __int128 begin = op.to.is_signed() ? -end : 0;
  return low_bits(static_cast<uint64_t>(std::clamp<__int128>(wide, begin, end - 1)), width);
}

/// An f32-or-narrower source as f32, with the NaN that the hardware's widening gives; tf32's low bits are
/// cut.
float source_as_f32(DataType type, uint64_t bits, bool ftz) {
  switch (type.code) {
    case DataType::kFloat16:
      return f16_to_f32(static_cast<uint16_t>(bits));
    case DataType::kBFloat16:
      return bf16_to_f32(static_cast<uint16_t>(bits));
    case DataType::kFloat32: {
      const float x = f32_from_bits(static_cast<uint32_t>(bits));
      return ftz ? flush(x) : x;
    }
    default:
      return static_cast<float>(decode(float_format(type), bits));
  }
}

uint64_t float_to_integer(const CvtOp& op, uint64_t bits) {
  const bool is_f64 = op.from == float64;
  const float narrow_source = is_f64 ? 0.0f : source_as_f32(op.from, bits, op.ftz);
  const double wide_source = f64_from_bits(bits);
  auto convert = [&]<typename To>(To) {
    const To result =
        is_f64 ? float_to_int<To>(wide_source, op.rounding) : float_to_int<To>(narrow_source, op.rounding);
    return low_bits(static_cast<uint64_t>(result), op.to.bits());
  };
  switch (op.to.code) {
    case DataType::kInt8:
      return convert(int8_t{});
    case DataType::kInt16:
      return convert(int16_t{});
    case DataType::kInt32:
      return convert(int32_t{});
    case DataType::kInt64:
      return convert(int64_t{});
    case DataType::kUInt8:
      return convert(uint8_t{});
    case DataType::kUInt16:
      return convert(uint16_t{});
    case DataType::kUInt32:
      return convert(uint32_t{});
    default:
      return convert(uint64_t{});
  }
}

/// The modifiers on an f32 result.
uint64_t f32_result(const CvtOp& op, float x) {
  if (op.ftz) x = flush(x);
  if (op.sat) x = saturate(x);
  if (op.relu && !is_nan(x) && std::signbit(x)) x = 0.0f;
  return f32_bits(x);
}
/// The last step of every conversion to a float type: `value` is exact or rounded to odd.
uint64_t float_result(const CvtOp& op, double value) {
  if (op.to == float64) return f64_bits(op.sat ? saturate(value) : value);
  if (op.to == float32) return f32_result(op, narrow(value, op.rounding));
  if (op.sat) value = saturate(value);
  return encode(float_format(op.to), value, {op.rounding, op.satfinite, op.relu});
}

uint64_t integer_to_float(const CvtOp& op, uint64_t bits) {
  const int64_t value = integer_from_bits(op.from, bits);
  const bool is_unsigned = op.from == uint64;
  if (op.to == float64) {
    const double x =
        is_unsigned ? int_to_f64(static_cast<uint64_t>(value), op.rounding) : int_to_f64(value, op.rounding);
    return float_result(op, x);
  }
  const double odd = magnitude_to_odd(is_unsigned ? static_cast<uint64_t>(value) : magnitude_of(value));
  return float_result(op, value < 0 && !is_unsigned ? -odd : odd);
}

uint64_t float_to_float(const CvtOp& op, uint64_t bits) {
  if (op.from == float64) {
    double value = f64_from_bits(bits);
    if (is_nan(value)) value = detail::quiet(value);
    // Sign and top payload bits kept (measured on H200).
    if (is_nan(value) && !op.sat && op.to == float16)
      return (f64_bits(value) >> 48 & 0x8000) | 0x7C00 | (f64_bits(value) >> 42 & 0x3FF);
    if (is_nan(value) && !op.sat && op.to == bfloat16)
      return (f64_bits(value) >> 48 & 0x8000) | 0x7F80 | (f64_bits(value) >> 45 & 0x7F);
    if (op.integral) value = round_to_integral(value, op.rounding);
    return float_result(op, value);
  }
  if (op.from == float16 && op.to == float64 &&
      (bits & 0x7FFF) > 0x7C00)  // sign and payload kept (measured on H200)
    return (bits & 0x8000) << 48 | 0x7FF8000000000000 | (bits & 0x3FF) << 42;
  float value = source_as_f32(op.from, bits, op.ftz);
  if (op.to == tfloat32 && op.rounding == Rounding::kNearestAway) {
    if (op.relu && !is_nan(value) && std::signbit(value)) return 0;
    return cvt_rna_tf32(value, op.satfinite);
  }
  if (op.integral) value = round_to_integral(value, op.rounding);
  if (op.to == float32)
    return f32_result(op, op.from == bfloat16 ? value : canonical(value));  // bf16 is a shift
  if (op.ftz) value = canonical(value);  // to f64, which otherwise keeps the payload (measured on H200)
  return float_result(op, value);
}

}  // namespace

uint64_t cvt(const CvtOp& op, uint64_t bits) {
  if (op.to.is_bool() || op.from.is_bool()) throw InternalError("cvt has no form for predicates");
  if (op.to.is_integer())
    return op.from.is_integer() ? integer_to_integer(op, bits) : float_to_integer(op, bits);
  return op.from.is_integer() ? integer_to_float(op, bits) : float_to_float(op, bits);
}

uint32_t cvt_pack(int32_t a, int32_t b, uint32_t c, int part_bits, bool is_signed) {
  const int32_t end = 1 << (is_signed ? part_bits - 1 : part_bits), begin = is_signed ? -end : 0;
  const uint32_t mask = (1u << part_bits) - 1;
  const uint32_t high = static_cast<uint32_t>(std::clamp(a, begin, end - 1)) & mask;
  const uint32_t low = static_cast<uint32_t>(std::clamp(b, begin, end - 1)) & mask;
  const uint32_t above = part_bits == 16 ? 0 : c << (2 * part_bits);
  return above | high << part_bits | low;
}

}  // namespace imbrex::arith
