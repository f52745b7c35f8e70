// SPDX-License-Identifier: Apache-2.0
#include "core/scalar_cvt.h"

#include <gtest/gtest.h>

#include <cfenv>
#include <cmath>
#include <random>
#include <vector>

#include "imbrex/core/error.h"

namespace imbrex::arith {
namespace {

constexpr struct {
  Rounding rounding;
  int machine;
} kModes[] = {{Rounding::kNearestEven, FE_TONEAREST},
              {Rounding::kTowardZero, FE_TOWARDZERO},
              {Rounding::kDown, FE_DOWNWARD},
              {Rounding::kUp, FE_UPWARD}};

/// nearbyint of the machine in a rounding mode.
template <typename T>
T machine_integral(int mode, T x) {
  std::fesetround(mode);
  volatile T operand = x;
  volatile T result = std::nearbyint(operand);
  std::fesetround(FE_TONEAREST);
  return result;
}
/// A conversion of the machine in a rounding mode.
template <typename To, typename From>
To machine_cast(int mode, From x) {
  std::fesetround(mode);
  volatile From operand = x;
  volatile To result = static_cast<To>(operand);
  std::fesetround(FE_TONEAREST);
  return result;
}

std::vector<uint64_t> integers() {
  std::vector<uint64_t> values;
  for (int bit = 0; bit < 64; ++bit)
    for (int64_t d = -2; d <= 2; ++d) values.push_back((uint64_t{1} << bit) + static_cast<uint64_t>(d));
  std::mt19937_64 random(31);
  for (int i = 0; i < 2000; ++i) {
    const uint64_t x = random() >> (random() % 64);
    values.push_back(x);
    values.push_back(x & ~(uint64_t{0x7FF} >> (random() % 11)) & ~uint64_t{1});
    values.push_back((x | 0x3FF) + (random() % 3));
  }
  return values;
}

TEST(ScalarCvt, IntegersToFloatInEveryMode) {
  for (uint64_t bits : integers())
    for (const auto& [rounding, mode] : kModes) {
      const auto value = static_cast<int64_t>(bits);
      ASSERT_EQ(int_to_f32(bits, rounding), machine_cast<float>(mode, bits)) << bits << " mode " << mode;
      ASSERT_EQ(int_to_f32(value, rounding), machine_cast<float>(mode, value)) << value << " mode " << mode;
      ASSERT_EQ(int_to_f64(value, rounding), machine_cast<double>(mode, value)) << value << " mode " << mode;
      // x86 has no unsigned conversion; what the compiler makes of it is only right to nearest.
      const auto exact = static_cast<long double>(bits);  // 64 bits fit
      ASSERT_EQ(int_to_f64(bits, rounding), machine_cast<double>(mode, exact)) << bits << " mode " << mode;
      if (bits >> 53 == 0) {
        ASSERT_EQ(cvt({float16, uint64, rounding}, bits),
                  encode(kF16, static_cast<double>(bits), {.rounding = rounding}));
      }
    }
}

TEST(ScalarCvt, RoundsToIntegralInEveryMode) {
  std::mt19937_64 random(32);
  for (int i = 0; i < 200000; ++i) {
    double x = std::ldexp(static_cast<double>(static_cast<int64_t>(random())),
                          -63 + static_cast<int>(random() % 60) - 4);
    if (i % 4 == 0) x = std::floor(x) + 0.5;
    const auto f = static_cast<float>(x);
    for (const auto& [rounding, mode] : kModes) {
      ASSERT_EQ(f64_bits(round_to_integral(x, rounding)), f64_bits(machine_integral(mode, x))) << x;
      ASSERT_EQ(f32_bits(round_to_integral(f, rounding)), f32_bits(machine_integral(mode, f))) << f;
    }
  }
  EXPECT_EQ(f32_bits(round_to_integral(-0.25f, Rounding::kNearestEven)), 0x80000000u);
  EXPECT_EQ(round_to_integral(HUGE_VALF, Rounding::kDown), HUGE_VALF);
}

// Measured on an H200.
TEST(ScalarCvtFacts, FloatToIntegerSaturatesAndNanIsZeroOrTheTopBit) {
  const float nan = f32_from_bits(0x7FC12345);
  EXPECT_EQ((float_to_int<int32_t>(nan)), 0);
  EXPECT_EQ((float_to_int<uint32_t>(nan)), 0u);
  EXPECT_EQ((float_to_int<int16_t>(nan)), 0);
  EXPECT_EQ((float_to_int<int64_t>(nan)), INT64_MIN);
  EXPECT_EQ((float_to_int<int32_t>(HUGE_VALF)), INT32_MAX);
  EXPECT_EQ((float_to_int<int32_t>(-HUGE_VALF)), INT32_MIN);
  EXPECT_EQ((float_to_int<uint32_t>(-1.0f)), 0u);
  EXPECT_EQ((float_to_int<uint32_t>(0x1p32f)), UINT32_MAX);
  EXPECT_EQ((float_to_int<int32_t>(0x1p31f)), INT32_MAX);
  EXPECT_EQ((float_to_int<int32_t>(0.5f, Rounding::kNearestEven)), 0);
  EXPECT_EQ((float_to_int<int32_t>(1.5f, Rounding::kNearestEven)), 2);
  EXPECT_EQ((float_to_int<int16_t>(65535.0f)), INT16_MAX);
}

TEST(ScalarCvt, FloatToIntegerAtTheEdgesOfEveryType) {
  EXPECT_EQ((float_to_int<int64_t>(0x1.fffffep62f)), 0x7FFFFF8000000000);
  EXPECT_EQ((float_to_int<int64_t>(0x1p63f)), INT64_MAX);
  EXPECT_EQ((float_to_int<int64_t>(-0x1p63)), INT64_MIN);
  EXPECT_EQ((float_to_int<uint64_t>(0x1.fffffep63f)), 0xFFFFFF0000000000u);
  EXPECT_EQ((float_to_int<uint64_t>(0x1p64)), UINT64_MAX);
  EXPECT_EQ((float_to_int<int32_t>(2147483646.75)), 2147483646);
  EXPECT_EQ((float_to_int<int32_t>(-2147483648.75)), INT32_MIN);
  EXPECT_EQ((float_to_int<int8_t>(127.9f)), 127);
  EXPECT_EQ((float_to_int<uint8_t>(255.5f, Rounding::kUp)), 255);
  EXPECT_EQ((float_to_int<uint32_t>(-0.25f, Rounding::kDown)), 0u);
  EXPECT_EQ((float_to_int<int32_t>(-0.25f, Rounding::kDown)), -1);
}

TEST(ScalarCvt, IntegerToInteger) {
  EXPECT_EQ(cvt({int32, int8}, 0x80), 0xFFFFFF80u) << "sign extended";
  EXPECT_EQ(cvt({int64, uint32}, 0x80000000), 0x80000000u);
  EXPECT_EQ(cvt({uint16, int32}, 0xFFFF8000), 0x8000u) << "cut";
  EXPECT_EQ(cvt({.to = int8, .from = int32, .sat = true}, 300), 127u);
  EXPECT_EQ(cvt({.to = uint8, .from = int32, .sat = true}, static_cast<uint32_t>(-5)), 0u);
  EXPECT_EQ(cvt({.to = int32, .from = uint64, .sat = true}, UINT64_MAX), 0x7FFFFFFFu);
  EXPECT_EQ((clamp_to<int8_t>(-300)), -128);
  EXPECT_EQ((clamp_to<uint64_t>(int64_t{-1})), 0u);
  EXPECT_EQ((clamp_to<int64_t>(UINT64_MAX)), INT64_MAX);
}

TEST(ScalarCvt, FloatToFloat) {
  const uint64_t third = f64_bits(1.0 / 3);
  EXPECT_EQ(cvt({float32, float64}, third), f32_bits(static_cast<float>(1.0 / 3)));
  EXPECT_EQ(cvt({float32, float64, Rounding::kUp}, third), f32_bits(static_cast<float>(1.0 / 3)));
  EXPECT_EQ(cvt({float32, float64, Rounding::kDown}, third), f32_bits(static_cast<float>(1.0 / 3)) - 1);
  EXPECT_EQ(cvt({float32, float64, Rounding::kTowardZero}, f64_bits(1e300)), 0x7F7FFFFFu);
  EXPECT_EQ(cvt({float16, float64}, f64_bits(1.0 + 0x1p-11 + 0x1p-40)), 0x3C01u) << "one rounding, not two";
  EXPECT_EQ(
      cvt({.to = float32, .from = float32, .rounding = Rounding::kUp, .integral = true}, f32_bits(0.25f)),
      f32_bits(1.0f));
  EXPECT_EQ(cvt({.to = float32, .from = float32, .sat = true}, f32_bits(1.5f)), f32_bits(1.0f));
  EXPECT_EQ(cvt({.to = float32, .from = float32, .ftz = true}, 0x80000001), 0x80000000u);
  EXPECT_EQ(cvt({.to = bfloat16, .from = float16}, 0x3C00), 0x3F80u);
  EXPECT_EQ(cvt({.to = int32, .from = float16}, 0x4500), 5u);
  EXPECT_EQ(cvt({.to = int32, .from = bfloat16, .rounding = Rounding::kTowardZero}, 0x40B8), 5u);
  EXPECT_EQ(cvt({.to = float16, .from = int32}, static_cast<uint32_t>(-3)), 0xC200u);
  EXPECT_EQ(cvt({.to = bfloat16, .from = float8_e8m0}, 0x00), 0x0040u) << "2^-127 is a subnormal bf16";
  EXPECT_EQ(cvt({.to = bfloat16, .from = float8_e8m0}, 0xFF), 0x7FFFu);
  EXPECT_EQ(cvt({.to = float16, .from = float4_e2m1}, 0xF), 0xC600u);
  EXPECT_THROW(cvt({boolean, float32}, 0), InternalError);
}

// Measured on an H200.
TEST(ScalarCvtFacts, NanPayloads) {
  EXPECT_EQ(cvt({float64, float32}, 0x7FC12345), 0x7FF82468A0000000u);
  EXPECT_EQ(cvt({float32, float64}, 0xFFF8000000001234), 0xFFC00000u);
  EXPECT_EQ(cvt({float32, float16}, 0x7E01), 0x7FFFFFFFu);
  EXPECT_EQ(cvt({float32, bfloat16}, 0x7F81), 0x7F810000u);
  EXPECT_EQ(cvt({float16, float64}, 0xFFF0000000000001), 0xFE00u);
  EXPECT_EQ(cvt({float16, float64}, 0x7FF8FC0000000000), 0x7E3Fu);
  EXPECT_EQ(cvt({bfloat16, float64}, 0xFFF7FFFFFFFFFFFF), 0xFFFFu);
  EXPECT_EQ(cvt({.to = float64, .from = float32, .ftz = true}, 0xFFC12345), 0x7FFFFFFFE0000000u);
  EXPECT_EQ(cvt_rna_tf32(f32_from_bits(0x7F800001)), 0x7F800000u);
  EXPECT_EQ(cvt_rna_tf32(f32_from_bits(0x7FC12345), true), 0x7FC10000u);
}

TEST(ScalarCvt, StochasticRoundingAddsBelowTheLastPlace) {
  // 1 + 3/8 of the last place of f16: it rounds up for the largest 3/8 of the random numbers.
  const float x = 1.0f + 3 * 0x1p-13f;
  int up = 0;
  for (uint32_t random = 0; random < 8192; ++random)
    up += encode_stochastic(kF16, x, random, 13, false, false) == 0x3C01;
  EXPECT_EQ(up, 8192 * 3 / 8);
  EXPECT_EQ(encode_stochastic(kF16, x, 8191, 13, false, false), 0x3C01u);
  EXPECT_EQ(encode_stochastic(kF16, -x, 8191, 13, false, false), 0xBC01u) << "away from zero";
  EXPECT_EQ(encode_stochastic(kF16, 1.0f, 8191, 13, false, false), 0x3C00u) << "exact values stay";
  EXPECT_EQ(encode_stochastic(kE4M3, 1e9f, 0, 16, true, false), 0x7Eu);
  EXPECT_EQ(encode_stochastic(kE2M1, -1.2f, 255, 8, true, true), 0u);
  EXPECT_EQ(encode_stochastic(kBF16, f32_from_bits(0x7FC00000), 5, 16, false, false), 0x7FFFu);
  EXPECT_EQ(encode_stochastic(kF16, 0.0f, 8191, 13, false, false), 0u);
}

TEST(ScalarCvt, PacksSaturatedIntegers) {
  EXPECT_EQ(cvt_pack(40000, -40000, 0x1234, 16, true), 0x7FFF8000u);
  EXPECT_EQ(cvt_pack(70000, -1, 0, 16, false), 0xFFFF0000u);
  EXPECT_EQ(cvt_pack(300, -7, 0xAABB, 8, true), 0xAABB7FF9u);
  EXPECT_EQ(cvt_pack(9, 3, 0x12345678, 4, true), 0x34567873u);
}

}  // namespace
}  // namespace imbrex::arith
