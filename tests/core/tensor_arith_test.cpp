// SPDX-License-Identifier: Apache-2.0
// The vectorised product against the definition, and the facts about the tensor core that its users rely on.
#include "core/tensor_arith.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "core/scalar_float.h"

namespace imbrex::arith {
namespace {

using enum TensorInstruction;

struct Case {
  int sm;
  TensorInstruction instruction;
  DataType a, b, d;
  int64_t k;
  std::optional<DataType> scale = std::nullopt;
  int scale_block = 0;

  std::string name() const {
    std::string text = std::to_string(sm) + "/" + std::to_string(static_cast<int>(instruction));
    for (DataType type : {a, b, d}) text += " " + std::string(type.name());
    return text + " k" + std::to_string(k);
  }
  TensorArith arith() const {
    const auto found = tensor_arith(sm, instruction, a, b, d, k, scale, scale_block);
    EXPECT_TRUE(found) << name();
    return found.value_or(TensorArith{});
  }
};

const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      {80, kMma, float16, float16, float32, 16},
      {80, kMma, float16, float16, float16, 8},
      {80, kMma, bfloat16, bfloat16, float32, 16},
      {80, kMma, tfloat32, tfloat32, float32, 8},
      {89, kMma, float8_e4m3, float8_e5m2, float32, 32},
      {90, kMma, float16, float16, float32, 16},
      {90, kMma, float16, float16, float32, 8},
      {90, kMma, bfloat16, bfloat16, float32, 16},
      {90, kMma, tfloat32, tfloat32, float32, 4},
      {90, kMma, float8_e4m3, float8_e4m3, float32, 32},
      {90, kMma, float8_e5m2, float8_e4m3, float16, 16},
      {90, kMma, float8_e4m3, float8_e5m2, float32, 32},
      {90, kWgmma, float16, float16, float32, 16},
      {90, kWgmma, float16, float16, float16, 16},
      {90, kWgmma, bfloat16, bfloat16, float32, 16},
      {90, kWgmma, tfloat32, tfloat32, float32, 8},
      {90, kWgmma, float8_e4m3, float8_e5m2, float32, 32},
      {90, kWgmma, float8_e5m2, float8_e5m2, float16, 32},
      {100, kTcgen05, float16, float16, float32, 16},
      {100, kTcgen05, bfloat16, bfloat16, float32, 64},
      {100, kTcgen05, tfloat32, tfloat32, float32, 8},
      {100, kTcgen05, float8_e4m3, float8_e4m3, float32, 32},
      {100, kTcgen05, float8_e4m3, float4_e2m1, float16, 32},
      {100, kTcgen05, float6_e3m2, float6_e2m3, float32, 64},
      {100, kTcgen05, float4_e2m1, float4_e2m1, float32, 32},
      {100, kMxf8f6f4, float8_e4m3, float8_e5m2, float32, 64, float8_e8m0, 32},
      {100, kMxf8f6f4, float4_e2m1, float4_e2m1, float32, 32, float8_e8m0, 32},
      {100, kMxf4, float4_e2m1, float4_e2m1, float32, 64, float8_e8m0, 32},
      {100, kMxf4, float4_e2m1, float4_e2m1, float32, 128, float8_e4m3, 16},
      {120, kMma, float8_e4m3, float8_e5m2, float32, 32},
      {120, kMma, float6_e3m2, float4_e2m1, float32, 32},
      {120, kMxf8f6f4, float8_e5m2, float6_e2m3, float32, 32, float8_e8m0, 32},
      {120, kMxf4, float4_e2m1, float4_e2m1, float32, 64, float8_e4m3, 16},
  };
  return all;
}

/// Patterns of a format from all over its range, or from a few binades around one, with zeros and, at times,
/// what is not a number.
std::vector<uint32_t> random_operands(const FloatFormat& format, int64_t count, bool narrow, bool specials,
                                      std::mt19937& random) {
  std::vector<uint32_t> patterns;
  while (static_cast<int64_t>(patterns.size()) < count) {
    uint32_t bits = static_cast<uint32_t>(random()) &
                    static_cast<uint32_t>(format.bits == 32 ? ~0u : (1u << format.bits) - 1);
    if (narrow && format.mantissa_bits != 0) {
      const double value = std::ldexp(1.0 + random() * 0x1p-32, static_cast<int>(random() % 9) - 4);
      bits = static_cast<uint32_t>(encode(format, random() & 1 ? value : -value));
    }
    if (random() % 8 == 0) bits = random() & 1 ? 0 : static_cast<uint32_t>(format.sign_mask());
    if (!std::isfinite(decode(format, bits)) && !(specials && random() % 16 == 0)) continue;
    patterns.push_back(bits);
  }
  return patterns;
}

template <typename T>
std::vector<T> packed(const std::vector<uint32_t>& patterns) {
  return {patterns.begin(), patterns.end()};
}

/// Runs multiply_accumulate on patterns held a word each.
std::vector<uint32_t> run(const TensorArith& arith, MatrixShape shape, const std::vector<uint32_t>& a,
                          const std::vector<uint32_t>& b, const std::vector<uint32_t>& c,
                          const TensorModifiers& modifiers = {}) {
  const auto a8 = packed<uint8_t>(a), b8 = packed<uint8_t>(b);
  const auto a16 = packed<uint16_t>(a), b16 = packed<uint16_t>(b);
  auto pick = [](const FloatFormat& format, const auto& bytes, const auto& halves,
                 const auto& words) -> const void* {
    if (format.bits <= 8) return bytes.data();
    if (format.bits == 16) return halves.data();
    return words.data();
  };
  const void* left = pick(arith.a_format, a8, a16, a);
  const void* right = pick(arith.b_format, b8, b16, b);
  if (arith.result_bytes() == 2) {
    auto d = packed<uint16_t>(c);
    multiply_accumulate(arith, shape, left, right, d.data(), d.data(), modifiers);  // in place
    return {d.begin(), d.end()};
  }
  std::vector<uint32_t> d(c.size());
  multiply_accumulate(arith, shape, left, right, c.data(), d.data(), modifiers);
  // The same in place in a wider matrix, of which the rest stays as it is.
  constexpr uint32_t kUntouched = 0xABABABAB;
  TensorModifiers in_wider = modifiers;
  in_wider.pitch = shape.n + 5;
  std::vector<uint32_t> wide(static_cast<size_t>(shape.m * in_wider.pitch), kUntouched), expected = wide;
  for (int64_t row = 0; row < shape.m; ++row) {
    std::copy_n(c.begin() + row * shape.n, shape.n, wide.begin() + row * in_wider.pitch);
    std::copy_n(d.begin() + row * shape.n, shape.n, expected.begin() + row * in_wider.pitch);
  }
  multiply_accumulate(arith, shape, left, right, wide.data(), wide.data(), in_wider);
  EXPECT_EQ(wide, expected);
  return d;
}

TEST(TensorArithmetic, WholeMatricesAgreeWithTheDefinitionOutputByOutput) {
  std::mt19937 random(5);
  for (const Case& one : cases()) {
    const TensorArith arith = one.arith();
    for (int round = 0; round < 6; ++round) {
      const bool narrow = round % 2 == 0, specials = round >= 4;
      const MatrixShape shape{5, 3 + 17 * round, one.k};
      const auto a = random_operands(arith.a_format, shape.m * shape.k, narrow, specials, random);
      const auto b = random_operands(arith.b_format, shape.n * shape.k, narrow, specials, random);
      const FloatFormat& result = arith.result_bytes() == 2 ? kF16 : kF32;
      const auto c = random_operands(result, shape.m * shape.n, narrow, specials, random);
      TensorModifiers modifiers{
          .negate_a = round == 1, .negate_b = round == 2, .scale_input_d = round == 3 ? 3 : 0};
      std::vector<uint8_t> a_scales, b_scales;
      if (arith.scale_block != 0) {
        // Near one, so that the results do not all overflow; or anything at all.
        auto scales = [&](int64_t rows) {
          auto patterns = random_operands(arith.scale_format, rows * shape.k / arith.scale_block, narrow,
                                          specials, random);
          if (narrow && arith.scale_format.mantissa_bits == 0)
            for (uint32_t& bits : patterns) bits = bits == 0xFF ? bits : 120 + bits % 16;
          return packed<uint8_t>(patterns);
        };
        a_scales = scales(shape.m);
        b_scales = scales(shape.n);
        modifiers.a_scales = a_scales.data();
        modifiers.b_scales = b_scales.data();
      }
      const auto d = run(arith, shape, a, b, c, modifiers);
      for (int64_t m = 0; m < shape.m; ++m)
        for (int64_t n = 0; n < shape.n; ++n) {
          TensorModifiers row = modifiers;
          if (arith.scale_block != 0) {
            row.a_scales += m * (shape.k / arith.scale_block);
            row.b_scales += n * (shape.k / arith.scale_block);
          }
          const auto at = static_cast<size_t>(m * shape.n + n);
          ASSERT_EQ(d[at], dot_accumulate(arith, shape.k, a.data() + m * shape.k, b.data() + n * shape.k,
                                          c[at], row))
              << one.name() << " round " << round << " at " << m << "," << n << std::hex << " c=" << c[at];
        }
    }
  }
}

/// Small operands are kept from one product to the next: here the same patterns come again as other numbers, in other
/// shapes, negated, or with one of them changed.
TEST(TensorArithmetic, PatternsThatComeAgainMeanWhatTheProductSays) {
  std::mt19937 random(7);
  const auto patterns = random_operands(kF16, 16 * 16, true, false, random);
  const std::vector<Case> kinds = {{90, kMma, float16, float16, float32, 16},
                                   {90, kMma, bfloat16, bfloat16, float32, 16},
                                   {90, kMma, float16, float16, float32, 8}};
  for (int round = 0; round < 200; ++round) {
    const Case& one = kinds[random() % kinds.size()];
    const TensorArith arith = one.arith();
    const MatrixShape shape{random() % 2 == 0 ? 16 : 8, random() % 2 == 0 ? 16 : 8, one.k};
    std::vector<uint32_t> a(patterns.begin(), patterns.begin() + shape.m * shape.k);
    std::vector<uint32_t> b(patterns.begin(), patterns.begin() + shape.n * shape.k);
    if (random() % 4 == 0) a.back() ^= 1;
    const std::vector<uint32_t> c(static_cast<size_t>(shape.m * shape.n), 0x3F800000);
    const TensorModifiers modifiers{.negate_a = random() % 4 == 0, .negate_b = random() % 4 == 0};
    const auto d = run(arith, shape, a, b, c, modifiers);
    for (int64_t m = 0; m < shape.m; ++m)
      for (int64_t n = 0; n < shape.n; ++n) {
        const auto at = static_cast<size_t>(m * shape.n + n);
        ASSERT_EQ(d[at], dot_accumulate(arith, shape.k, a.data() + m * shape.k, b.data() + n * shape.k, c[at],
                                        modifiers))
            << one.name() << " round " << round << " at " << m << "," << n;
      }
  }
}

/// Products and addends where single precision only just holds what the sum needs, and where it does not.
TEST(TensorArithmetic, ExponentsFarFromZeroAgreeWithTheDefinition) {
  std::mt19937 random(6);
  const auto number = [&](const FloatFormat& format, int exponent) {
    const double value = std::ldexp(1.0 + random() * 0x1p-32, exponent + static_cast<int>(random() % 5) - 2);
    return random() % 4 == 0 ? 0 : static_cast<uint32_t>(encode(format, random() & 1 ? value : -value));
  };
  for (const DataType type : {bfloat16, tfloat32})
    for (const int of_a : {-52, -49, 0, 49, 52})
      for (const int of_b : {-53, -48, 0, 50})
        for (const int of_c : {-140, -127, -104, -100, 0, 70, 100, 126}) {
          const Case one{90, kWgmma, type, type, float32, type == bfloat16 ? 32 : 16};
          const TensorArith arith = one.arith();
          const MatrixShape shape{2, 83, one.k};
          std::vector<uint32_t> a, b, c;
          for (int64_t i = 0; i < shape.m * shape.k; ++i) a.push_back(number(arith.a_format, of_a));
          for (int64_t i = 0; i < shape.n * shape.k; ++i) b.push_back(number(arith.b_format, of_b));
          for (int64_t i = 0; i < shape.m * shape.n; ++i) c.push_back(number(kF32, of_c));
          const auto d = run(arith, shape, a, b, c);
          for (int64_t m = 0; m < shape.m; ++m)
            for (int64_t n = 0; n < shape.n; ++n) {
              const auto at = static_cast<size_t>(m * shape.n + n);
              ASSERT_EQ(d[at],
                        dot_accumulate(arith, one.k, a.data() + m * one.k, b.data() + n * one.k, c[at]))
                  << one.name() << " " << of_a << " " << of_b << " " << of_c << " at " << m << "," << n;
            }
        }
}

/// A row times a column in f16 or bf16, given as numbers.
uint32_t dot(const Case& one, const std::vector<double>& a, const std::vector<double>& b, float c) {
  const TensorArith arith = one.arith();
  std::vector<uint32_t> x(static_cast<size_t>(one.k)), y(static_cast<size_t>(one.k));
  for (size_t i = 0; i < a.size(); ++i) x[i] = static_cast<uint32_t>(encode(arith.a_format, a[i]));
  for (size_t i = 0; i < b.size(); ++i) y[i] = static_cast<uint32_t>(encode(arith.b_format, b[i]));
  return dot_accumulate(arith, one.k, x.data(), y.data(), f32_bits(c));
}
const Case kHopperF16{90, kWgmma, float16, float16, float32, 16};
const Case kHopperBf16{90, kWgmma, bfloat16, bfloat16, float32, 16};
const Case kHopperFp8{90, kWgmma, float8_e4m3, float8_e4m3, float32, 32};

TEST(TensorFacts, A100CutsWhatHopperStillSees) {
  const std::vector<double> tiny(16, 0x1p-12), tiny_b(16, 0x1p-13);  // sixteen products of 2^-25
  const Case ampere{80, kMma, float16, float16, float32, 16}, hopper{90, kMma, float16, float16, float32, 16};
  EXPECT_EQ(dot(ampere, tiny, tiny_b, 1.0f), f32_bits(1.0f));
  EXPECT_EQ(dot(hopper, tiny, tiny_b, 1.0f), f32_bits(1.0f + 0x1p-21f));
}

TEST(TensorFacts, SplittingTheDepthChangesTheResult) {
  // One product of 2^-24 in each half: together they reach the last place of c = 1, one at a time they do
  // not.
  const Case whole{90, kMma, float16, float16, float32, 16}, half{90, kMma, float16, float16, float32, 8};
  std::vector<double> a(16, 0.0);
  a[0] = a[8] = 0x1p-12;
  EXPECT_EQ(dot(whole, a, a, 1.0f), f32_bits(1.0f + 0x1p-23f));
  const std::vector<double> first{0x1p-12};
  EXPECT_EQ(dot(half, first, first, f32_from_bits(dot(half, first, first, 1.0f))), f32_bits(1.0f));
}

TEST(TensorFacts, OneAlignmentForTheWholeBlock) {
  // A term below the grid of +B and -B is gone wherever the three stand.
  for (size_t i = 0; i < 16; ++i)
    for (size_t j = 0; j < 16; ++j) {
      const size_t s = (std::max(i, j) + 1) % 16;
      if (i == j || s == i || s == j) continue;
      std::vector<double> a(16, 0.0);
      a[i] = 16384;
      a[j] = -16384;
      a[s] = 0x1p-20;
      EXPECT_EQ(dot(kHopperF16, a, std::vector<double>(16, 1.0), 0.0f), 0u);
    }
}

TEST(TensorFacts, AZeroResultIsPlusZero) {
  EXPECT_EQ(dot(kHopperF16, {-0.0}, {1.0}, -0.0f), 0u);
  EXPECT_EQ(dot(kHopperF16, {1.0, 1.0}, {1.0, -1.0}, -0.0f), 0u);
  EXPECT_EQ(dot(kHopperBf16, {0x1p-70}, {-0x1p-80}, 0.0f), 0u) << "a sum of -2^-150, cut";
}

TEST(TensorFacts, OnlyTheSumOverflows) {
  EXPECT_EQ(dot(kHopperBf16, {0x1p127, 0x1p127}, {0x1p100, -0x1p100}, 0.0f), 0u);
  EXPECT_EQ(dot(kHopperBf16, {0x1p127}, {2.0}, -0x1p127f), f32_bits(0x1p127f));
  EXPECT_EQ(dot(kHopperBf16, {0x1p127}, {1.0}, f32_from_bits(0x7EFFFFFF)), 0x7F7FFFFFu);
  EXPECT_EQ(dot(kHopperBf16, {0x1p127, 0x1p127}, {1.0, 1.0}, 0.0f), 0x7F800000u);
}

TEST(TensorFacts, InvalidSumsGiveTheCanonicalNan) {
  EXPECT_EQ(dot(kHopperF16, {HUGE_VAL}, {0.0}, 0.0f), 0x7FFFFFFFu);
  EXPECT_EQ(dot(kHopperF16, {HUGE_VAL, HUGE_VAL}, {1.0, -1.0}, 0.0f), 0x7FFFFFFFu);
  EXPECT_EQ(dot(kHopperF16, {HUGE_VAL}, {-1.0}, 0.0f), 0xFF800000u);
  EXPECT_EQ(dot(kHopperF16, {1.0}, {1.0}, f32_from_bits(0xFFC00005)), 0x7FFFFFFFu);
  const TensorArith tf32 = Case{90, kWgmma, tfloat32, tfloat32, float32, 8}.arith();
  const uint32_t a[8] = {0x7F800001}, b[8] = {0x3F800000};
  EXPECT_EQ(dot_accumulate(tf32, 8, a, b, 0), 0x7F800000u) << "a payload in the dropped bits is an infinity";
}

TEST(TensorFacts, ZeroTimesLargeDoesNotRaiseTheExponent) {
  EXPECT_EQ(dot(kHopperBf16, {0.0, 0x1p-60}, {0x1p127, 0x1p-60}, 0.0f), f32_bits(0x1p-120f));
  // A subnormal factor counts with its type's smallest exponent: 2^-133 * 2^127 cuts at 2^-24.
  EXPECT_EQ(dot(kHopperBf16, {0x1p-133, 0x1p-24}, {0x1p127, 1.0}, 0.0f), f32_bits(0x1p-6f + 0x1p-24f));
  EXPECT_EQ(dot(kHopperBf16, {0x1p-133, 0x1p-25}, {0x1p127, 1.0}, 0.0f), f32_bits(0x1p-6f));
}

TEST(TensorFacts, HopperFp8KeepsThirteenFractionBits) {
  EXPECT_EQ(dot(kHopperFp8, {}, {}, 1.0f + 0x1p-13f), f32_bits(1.0f + 0x1p-13f));
  EXPECT_EQ(dot(kHopperFp8, {}, {}, 1.0f + 0x1p-14f), f32_bits(1.0f));
  EXPECT_EQ(dot(kHopperFp8, {2.0}, {-1.0}, 1.0f + 0x1p-13f), f32_bits(-1.0f));
  EXPECT_EQ(dot(kHopperFp8, {}, {}, f32_from_bits(0x007FFFFF)), 0x007FFC00u);
  EXPECT_EQ(dot(kHopperFp8, {}, {}, 0x1p-149f), 0u);
}

TEST(TensorFacts, HopperFp8MmaIsEmulatedAndKeepsTheAddend) {
  const Case emulated{90, kMma, float8_e4m3, float8_e4m3, float32, 32};
  EXPECT_EQ(dot(emulated, {}, {}, 1.0f + 0x1p-23f), f32_bits(1.0f + 0x1p-23f));
  EXPECT_EQ(dot(emulated, {1.0}, {1.0}, 0x1p-24f), f32_bits(1.0f)) << "the addition rounds to nearest even";
  EXPECT_EQ(dot(emulated, {1.0}, {1.0}, 1.5f * 0x1p-24f), f32_bits(1.0f + 0x1p-23f));
}

TEST(TensorFacts, HopperFp8MmaWidensSubnormalsToF16) {
  const Case emulated{90, kMma, float8_e4m3, float8_e5m2, float32, 32};
  // 2^-9 is subnormal in e4m3, normal in f16: its product has exponent 6, not 9, and the grid is 2^-19.
  EXPECT_EQ(dot(emulated, {0x1p-9, 0x1p-6}, {0x1p15, 0x1p-11}, 0.0f), f32_bits(0x1p6f + 0x1p-17f));
}

TEST(TensorFacts, ExponentFloorsOfHopper) {
  // Sixteen products that sum to 2^-149: eight of 2^-153 + 2^-g, eight of 2^-153 - 2^-g. The grid is 2^-158.
  for (int g = 154; g <= 160; ++g) {
    std::vector<double> a, b(16, 0x1p-83);
    for (int i = 0; i < 16; ++i) a.push_back(0x1p-70 + (i < 8 ? 1 : -1) * std::ldexp(1.0, -70 - (g - 153)));
    EXPECT_EQ(dot(kHopperBf16, a, b, 0.0f), g <= 158 ? 1u : 0u) << g;
  }
  // f16 results: the tie 2^-25 is broken by a 2^-g down to 2^-46.
  for (int g = 26; g <= 48; ++g) {
    const Case half{90, kWgmma, float16, float16, float16, 16};
    EXPECT_EQ(dot(half, {0x1p-12, std::ldexp(1.0, -(g / 2))}, {0x1p-13, std::ldexp(1.0, -(g - g / 2))}, 0.0f),
              g <= 46 ? 1u : 0u);
  }
}

TEST(TensorFacts, ScaleFactorsMultiplyTheProducts) {
  const Case mx{100, kMxf8f6f4, float8_e4m3, float8_e4m3, float32, 32, float8_e8m0, 32};
  const Case nv{100, kMxf4, float4_e2m1, float4_e2m1, float32, 64, float8_e4m3, 16};
  const TensorArith mx_arith = mx.arith(), nv_arith = nv.arith();
  std::vector<uint32_t> ones(32, 0x38);  // 1.0 in e4m3
  const uint8_t two[] = {128}, half[] = {126}, nan[] = {0xFF};
  EXPECT_EQ(dot_accumulate(mx_arith, 32, ones.data(), ones.data(), 0, {.a_scales = two, .b_scales = two}),
            f32_bits(128.0f));
  EXPECT_EQ(dot_accumulate(mx_arith, 32, ones.data(), ones.data(), 0, {.a_scales = half, .b_scales = two}),
            f32_bits(32.0f));
  EXPECT_EQ(dot_accumulate(mx_arith, 32, ones.data(), ones.data(), 0, {.a_scales = nan, .b_scales = two}),
            0x7FFFFFFFu);
  std::vector<uint32_t> sixes(64, 0x7);                                                  // 6.0 in e2m1
  const uint8_t scales[] = {0x38, 0x40, 0x3C, 0x00}, unit[] = {0x38, 0x38, 0x38, 0x38};  // 1, 2, 1.5, 0
  EXPECT_EQ(dot_accumulate(nv_arith, 64, sixes.data(), sixes.data(), f32_bits(1.0f),
                           {.a_scales = scales, .b_scales = unit}),
            f32_bits(16 * 36 * 4.5f + 1.0f));
}

TEST(TensorFacts, UnknownCombinationsHaveNoModel) {
  EXPECT_FALSE(tensor_arith(80, kWgmma, float16, float16, float32, 16));
  EXPECT_FALSE(tensor_arith(80, kMma, float8_e4m3, float8_e4m3, float32, 32));
  EXPECT_FALSE(tensor_arith(90, kWgmma, bfloat16, bfloat16, float16, 16)) << "bf16 has no f16 result";
  EXPECT_FALSE(tensor_arith(90, kWgmma, float16, bfloat16, float32, 16));
  EXPECT_FALSE(tensor_arith(90, kWgmma, float16, float16, float32, 24)) << "not a whole number of blocks";
  EXPECT_FALSE(tensor_arith(100, kMxf4, float4_e2m1, float4_e2m1, float32, 64)) << "no scales";
  EXPECT_FALSE(tensor_arith(100, kTcgen05, float16, float16, float32, 16, float8_e8m0, 32))
      << "scales not wanted";
}

TEST(TensorFacts, IntegersWrapOrClampOnceAtTheEnd) {
  const int16_t a[] = {127, 127, -127, -127}, b[] = {127, 127, 127, 127};
  const int32_t top = INT32_MAX;
  int32_t d = 0;
  multiply_accumulate_int({1, 1, 4}, a, b, &top, &d, true);
  EXPECT_EQ(d, INT32_MAX) << "the sum passes the limit on the way and comes back";
  multiply_accumulate_int({1, 1, 2}, a, b, &top, &d, true);
  EXPECT_EQ(d, INT32_MAX);
  multiply_accumulate_int({1, 1, 2}, a, b, &top, &d, false);
  EXPECT_EQ(d, static_cast<int32_t>(0x7FFFFFFFu + 2 * 127 * 127));
}

TEST(TensorFacts, SingleBitsCount) {
  const uint32_t a[] = {0xFF, 0x1}, b[] = {0x0F, 0x3};
  const int32_t c = 10;
  int32_t d = 0;
  multiply_accumulate_bits({1, 1, 2}, a, b, &c, &d, false);
  EXPECT_EQ(d, 10 + 4 + 1);
  multiply_accumulate_bits({1, 1, 2}, a, b, &c, &d, true);
  EXPECT_EQ(d, 10 + 4 + 1);
}

}  // namespace
}  // namespace imbrex::arith
