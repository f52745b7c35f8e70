// SPDX-License-Identifier: Apache-2.0
// Formats are checked against a second, slow definition: the list of all values of a format, in order, and
// the rule "the nearest one" spelt out on it.
#include "core/float_formats.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "imbrex/core/error.h"

namespace imbrex::arith {
namespace {

struct Named {
  const char* name;
  const FloatFormat* format;
};
const Named kSmallFormats[] = {{"f16", &kF16},
                               {"bf16", &kBF16},
                               {"e5m2", &kE5M2},
                               {"e4m3", &kE4M3},
                               {"e3m2", &kE3M2},
                               {"e2m3", &kE2M3},
                               {"e2m1", &kE2M1},
                               {"e1m1", &float_format(float3_e1m1)},
                               {"e2m2", &float_format(float5_e2m2)},
                               {"e3m1", &float_format(float5_e3m1)},
                               {"e4m1", &float_format(float6_e4m1)},
                               {"e2m4", &float_format(float7_e2m4)},
                               {"e3m3", &float_format(float7_e3m3)},
                               {"e4m2", &float_format(float7_e4m2)},
                               {"e5m1", &float_format(float7_e5m1)}};

/// The value of a pattern by the textbook formula, in long double.
long double textbook(const FloatFormat& f, uint64_t bits) {
  const int mantissa = static_cast<int>(bits & ((1u << f.mantissa_bits) - 1));
  const int exponent = static_cast<int>(bits >> f.mantissa_bits & ((1u << f.exponent_bits) - 1));
  const long double fraction = std::ldexp(static_cast<long double>(mantissa), -f.mantissa_bits);
  const long double value =
      exponent == 0 ? std::ldexp(fraction, 1 - f.bias) : std::ldexp(1 + fraction, exponent - f.bias);
  return bits >> (f.bits - 1) & 1 ? -value : value;
}

bool is_nan_pattern(const FloatFormat& f, uint64_t bits) {
  const uint64_t magnitude = bits & (f.sign_mask() - 1);
  if (f.specials == Specials::kNone) return false;
  if (f.specials == Specials::kNanOnly) return magnitude == f.nan;
  return magnitude > f.infinity();
}

TEST(FloatFormats, EveryPatternDecodesToTheTextbookValueAndComesBack) {
  for (const auto& [name, format] : kSmallFormats) {
    for (uint64_t bits = 0; bits < uint64_t{1} << format->bits; ++bits) {
      const double value = decode(*format, bits);
      if (is_nan_pattern(*format, bits)) {
        ASSERT_TRUE(std::isnan(value)) << name << " " << bits;
        ASSERT_EQ(encode(*format, value), format->nan);
        continue;
      }
      const bool infinite =
          format->specials == Specials::kInfNan && (bits & (format->sign_mask() - 1)) == format->infinity();
      if (infinite) {
        ASSERT_TRUE(std::isinf(value)) << name << " " << bits;
      } else {
        ASSERT_EQ(static_cast<long double>(value), textbook(*format, bits)) << name << " " << bits;
      }
      for (Rounding rounding : {Rounding::kNearestEven, Rounding::kTowardZero, Rounding::kDown, Rounding::kUp,
                                Rounding::kNearestAway})
        ASSERT_EQ(encode(*format, value, {.rounding = rounding}), bits) << name;
    }
  }
}

TEST(FloatFormats, BranchFreeHalvesAgreeWithTheDefinition) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const auto h = static_cast<uint16_t>(bits);
    const float f = f16_to_f32(h), b = bf16_to_f32(h);
    if (is_nan_pattern(kF16, h)) {
      ASSERT_EQ(std::bit_cast<uint32_t>(f), 0x7FFFFFFFu);
    } else {
      ASSERT_EQ(static_cast<double>(f), decode(kF16, h));
    }
    if (is_nan_pattern(kBF16, h)) {
      ASSERT_EQ(std::bit_cast<uint32_t>(b), bits << 16);
    } else {
      ASSERT_EQ(static_cast<double>(b), decode(kBF16, h));
    }
  }
  // Every 251st f32, and the neighbourhood of every f16 and bf16 value and midpoint.
  auto check = [](uint32_t bits) {
    const float x = std::bit_cast<float>(bits);
    ASSERT_EQ(f32_to_f16(x), encode(kF16, x)) << std::hex << bits;
    ASSERT_EQ(f32_to_bf16(x), encode(kBF16, x)) << std::hex << bits;
  };
  for (uint64_t bits = 0; bits <= 0xFFFFFFFF; bits += 251) check(static_cast<uint32_t>(bits));
  for (uint32_t h = 0; h < 65536; ++h)
    for (uint32_t base : {std::bit_cast<uint32_t>(f16_to_f32(static_cast<uint16_t>(h))), h << 16})
      for (uint32_t step : {0x800u, 0x1000u, 0x8000u, 0u})
        for (uint32_t near = 0; near < 3; ++near) check(base + step + near - 1);
}

/// All finite values of a format from the smallest up, with their patterns.
struct Value {
  long double value;
  uint64_t bits;
};
std::vector<Value> positive_values(const FloatFormat& f) {
  std::vector<Value> values;
  for (uint64_t bits = 0; bits <= f.max_finite(); ++bits) values.push_back({textbook(f, bits), bits});
  return values;
}

/// Rounding by looking: what the five modes give for a value inside the range.
uint64_t expected(const FloatFormat& f, const std::vector<Value>& values, double x, Rounding rounding) {
  const long double magnitude = std::fabs(static_cast<long double>(x));
  const bool negative = std::signbit(x);
  auto above = std::upper_bound(values.begin(), values.end(), magnitude,
                                [](long double m, const Value& v) { return m < v.value; });
  const Value low = *(above - 1);
  uint64_t bits = low.bits;
  if (low.value != magnitude) {
    const Value high = *above;
    const long double to_low = magnitude - low.value, to_high = high.value - magnitude;
    bool up = false;
    if (rounding == Rounding::kNearestEven)
      up = to_high < to_low || (to_high == to_low && (high.bits & 1) == 0);
    if (rounding == Rounding::kNearestAway) up = to_high <= to_low;
    if (rounding == Rounding::kUp) up = !negative;
    if (rounding == Rounding::kDown) up = negative;
    if (up) bits = high.bits;
  }
  return bits | (negative ? f.sign_mask() : 0);
}

TEST(FloatFormats, RoundingIsTheNearestListedValueInEveryMode) {
  std::mt19937_64 random(1);
  for (const auto& [name, format] : kSmallFormats) {
    const std::vector<Value> values = positive_values(*format);
    const int top = std::ilogb(values.back().value), bottom = std::ilogb(values[1].value) - 3;
    for (int i = 0; i < 40000; ++i) {
      double x;
      if (i % 4 == 0) {  // exactly between two values, or a hair beside
        const size_t at = random() % (values.size() - 1);
        x = static_cast<double>((values[at].value + values[at + 1].value) / 2);
        if (i % 8 == 0) x = std::nextafter(x, i % 16 == 0 ? 0 : HUGE_VAL);
      } else {
        x = std::ldexp(1.0 + static_cast<double>(random() >> 11) * 0x1p-53,
                       bottom + static_cast<int>(random() % static_cast<uint64_t>(top - bottom)));
      }
      if (random() & 1) x = -x;
      for (Rounding rounding : {Rounding::kNearestEven, Rounding::kTowardZero, Rounding::kDown, Rounding::kUp,
                                Rounding::kNearestAway})
        ASSERT_EQ(encode(*format, x, {.rounding = rounding}), expected(*format, values, x, rounding))
            << name << " " << std::hexfloat << x << " mode " << static_cast<int>(rounding);
    }
  }
}

TEST(FloatFormats, OverflowFollowsTheModeAndSatfinite) {
  using enum Rounding;
  EXPECT_EQ(encode(kF16, 65519.99), 0x7BFFu);
  EXPECT_EQ(encode(kF16, 65520.0), 0x7C00u);
  EXPECT_EQ(encode(kF16, -1e9), 0xFC00u);
  EXPECT_EQ(encode(kF16, 1e9, {.rounding = kTowardZero}), 0x7BFFu);
  EXPECT_EQ(encode(kF16, 1e9, {.rounding = kDown}), 0x7BFFu);
  EXPECT_EQ(encode(kF16, -1e9, {.rounding = kDown}), 0xFC00u);
  EXPECT_EQ(encode(kF16, 1e9, {.rounding = kUp}), 0x7C00u);
  EXPECT_EQ(encode(kF16, -1e9, {.rounding = kUp}), 0xFBFFu);
  EXPECT_EQ(encode(kF16, HUGE_VAL, {.rounding = kTowardZero}), 0x7C00u) << "an infinity stays one";
  EXPECT_EQ(encode(kF16, HUGE_VAL, {.satfinite = true}), 0x7BFFu);
  EXPECT_EQ(encode(kF16, NAN, {.satfinite = true}), 0x7FFFu);
  EXPECT_EQ(encode(kE4M3, 1e9), 0x7Eu);
  EXPECT_EQ(encode(kE4M3, -HUGE_VAL), 0xFEu);
  EXPECT_EQ(encode(kE5M2, -HUGE_VAL, {.satfinite = true}), 0xFBu);
  EXPECT_EQ(encode(kE2M1, -1e9), 0xFu);
  EXPECT_EQ(encode(kE2M1, NAN), 0x7u) << "no NaN in the format: the largest number";
  EXPECT_EQ(encode(kTF32, static_cast<double>(std::bit_cast<float>(0x7F7FFFFFu)), {.satfinite = true}),
            0x7F7FE000u);
}

TEST(FloatFormats, ReluClearsNegativesAndMinusZeroButNotNan) {
  EXPECT_EQ(encode(kF16, -1.0, {.relu = true}), 0u);
  EXPECT_EQ(encode(kF16, -0.0, {.relu = true}), 0u);
  EXPECT_EQ(encode(kF16, -0.0), 0x8000u);
  EXPECT_EQ(encode(kF16, -NAN, {.relu = true}), 0x7FFFu);
  EXPECT_EQ(encode(kE4M3, -HUGE_VAL, {.satfinite = true, .relu = true}), 0u);
}

TEST(FloatFormats, PowersOfTwoOnly) {
  EXPECT_EQ(decode(kUE8M0, 0), 0x1p-127);
  EXPECT_EQ(decode(kUE8M0, 127), 1.0);
  EXPECT_EQ(decode(kUE8M0, 0xFE), 0x1p127);
  EXPECT_TRUE(std::isnan(decode(kUE8M0, 0xFF)));
  const EncodeOptions down{.rounding = Rounding::kTowardZero}, up{.rounding = Rounding::kUp};
  const EncodeOptions up_saturating{.rounding = Rounding::kUp, .satfinite = true};
  for (uint64_t bits = 0; bits < 255; ++bits) {
    const double value = decode(kUE8M0, bits);
    ASSERT_EQ(encode(kUE8M0, value, down), bits);
    ASSERT_EQ(encode(kUE8M0, value, up), bits);
    ASSERT_EQ(encode(kUE8M0, -value * 1.5, down), bits) << "the sign does not count";
    ASSERT_EQ(encode(kUE8M0, value * 1.5, up), bits + 1);
    ASSERT_EQ(encode(kUE8M0, value * 1.5, up_saturating), std::min<uint64_t>(bits + 1, 0xFE));
  }
  EXPECT_EQ(encode(kUE8M0, 0.0, up), 0u);
  EXPECT_EQ(encode(kUE8M0, HUGE_VAL, up), 0xFFu);
  EXPECT_EQ(encode(kUE8M0, HUGE_VAL, up_saturating), 0xFEu);
  EXPECT_EQ(encode(kUE8M0, NAN, up_saturating), 0xFEu + 1);
}

TEST(FloatFormats, UnsignedE4M3) {
  EXPECT_EQ(decode(kUE4M3, 0x7E), 448.0);
  EXPECT_EQ(decode(kUE4M3, 0x01), 0x1p-9);
  EXPECT_TRUE(std::isnan(decode(kUE4M3, 0x7F)));
  EXPECT_EQ(encode(kUE4M3, 448.0), 0x7Eu);
}

TEST(FloatFormats, EveryFloatTypeHasAFormatOfItsWidth) {
  for (int code = 0; code < DataType::kCount; ++code) {
    const DataType type{static_cast<DataType::Code>(code)};
    if (type.is_float()) {
      EXPECT_EQ(float_format(type).bits, type.bits()) << type.name();
    } else {
      EXPECT_THROW(float_format(type), InternalError) << type.name();
    }
  }
}

TEST(FloatFormats, ArraysAgreeWithSingleValues) {
  std::mt19937 random(7);
  std::vector<uint8_t> bytes(4096);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
  for (const auto& [name, format] : kSmallFormats) {
    const int64_t count = format->bits == 4 ? 8192 : format->bits == 16 ? 2048 : 4096;
    std::vector<float> values(static_cast<size_t>(count));
    decode_array(*format, bytes.data(), values.data(), count);
    for (int64_t i = 0; i < count; ++i) {
      uint64_t bits = bytes[static_cast<size_t>(i) % bytes.size()];
      if (format->bits == 4) bits = bytes[static_cast<size_t>(i / 2)] >> (i % 2 * 4) & 0xF;
      if (format->bits == 16)
        bits = bytes[static_cast<size_t>(2 * i)] | bytes[static_cast<size_t>(2 * i + 1)] << 8;
      const double want = decode(*format, bits);
      const float got = values[static_cast<size_t>(i)];
      if (std::isnan(want)) {
        ASSERT_TRUE(std::isnan(got)) << name;
      } else {
        ASSERT_EQ(static_cast<double>(got), want) << name << " " << i;
      }
    }
    std::vector<uint8_t> again(bytes.size());
    encode_array(*format, values.data(), again.data(), count);
    std::vector<float> values_again(values.size());
    decode_array(*format, again.data(), values_again.data(), count);
    for (size_t i = 0; i < values.size(); ++i) {
      const bool saturates = format->bits <= 8 && std::isinf(values[i]);
      if (!std::isnan(values[i]) && !saturates) {
        ASSERT_EQ(values_again[i], values[i]) << name << " " << i;
      }
    }
  }
}

}  // namespace
}  // namespace imbrex::arith
