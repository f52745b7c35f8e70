// SPDX-License-Identifier: Apache-2.0
// Every rounding mode against the machine's own floating point, switched into that mode. The operations go
// through volatile variables, so that the compiler neither folds nor moves them.
#include "core/scalar_float.h"

#include <gtest/gtest.h>

#include <cfenv>
#include <random>
#include <vector>

namespace imbrex::arith {
namespace {

constexpr struct {
  Rounding rounding;
  int machine;
} kModes[] = {{Rounding::kNearestEven, FE_TONEAREST},
              {Rounding::kTowardZero, FE_TOWARDZERO},
              {Rounding::kDown, FE_DOWNWARD},
              {Rounding::kUp, FE_UPWARD}};

/// f(a, b, c) computed by the machine in a rounding mode.
template <typename T, typename Function>
T machine(int mode, T a, T b, T c, Function f) {
  std::fesetround(mode);
  volatile T x = a, y = b, z = c;
  volatile T result = f(x, y, z);
  std::fesetround(FE_TONEAREST);
  return result;
}

/// Operands chosen so that sums cancel, results are subnormal or overflow, and ties happen.
template <typename T, typename Bits>
class Operands {
 public:
  explicit Operands(uint64_t seed) : random_(seed) {}
  T next() {
    constexpr int kMantissa = sizeof(T) == 4 ? 23 : 52, kExponents = sizeof(T) == 4 ? 255 : 2047;
    const Bits mantissa_mask = (Bits{1} << kMantissa) - 1;
    Bits mantissa = static_cast<Bits>(random_()) & mantissa_mask;
    switch (random_() % 4) {
      case 0:
        mantissa &= ~(mantissa_mask >> (random_() % 12));
        break;  // few bits: exact results, ties
      case 1:
        mantissa |= mantissa_mask >> (random_() % kMantissa);
        break;
      default:
        break;
    }
    uint64_t exponent = random_() % kExponents;
    switch (random_() % 6) {
      case 0:
        exponent = 0;
        break;
      case 1:
        exponent = random_() % 30;
        break;
      case 2:
        exponent = kExponents - 1 - random_() % 30;
        break;
      case 3:
      case 4:
        exponent = kExponents / 2 - 20 + random_() % 40;
        break;
      default:
        break;
    }
    if (random_() % 40 == 0) exponent = kExponents, mantissa = 0;
    if (random_() % 40 == 0) exponent = 0, mantissa = 0;
    const Bits sign = static_cast<Bits>(random_() & 1) << (8 * sizeof(T) - 1);
    return std::bit_cast<T>(static_cast<Bits>(sign | static_cast<Bits>(exponent) << kMantissa | mantissa));
  }

 private:
  std::mt19937_64 random_;
};

/// The addend that nearly cancels a product, so that what decides is far below.
template <typename T>
T near_minus(T product, uint64_t step) {
  T x = is_nan(product) ? T(1) : -product;
  for (uint64_t i = 0; i < step % 3; ++i) x = std::nextafter(x, T(0));
  return x;
}

void expect_f32(float got, float want, float a, float b, float c, const char* what, int mode) {
  if (is_nan(want)) {
    ASSERT_EQ(f32_bits(got), 0x7FFFFFFFu) << what;
  } else {
    ASSERT_EQ(f32_bits(got), f32_bits(want)) << what << " mode " << mode << std::hexfloat << " a=" << a
                                             << " b=" << b << " c=" << c << " want " << want;
  }
}

TEST(ScalarFloat, F32MatchesTheMachineInEveryRoundingMode) {
  Operands<float, uint32_t> operands(11);
  for (int i = 0; i < 200000; ++i) {
    const float a = operands.next(), b = operands.next();
    const float c = i % 3 == 0 ? near_minus(a * b, static_cast<uint64_t>(i)) : operands.next();
    for (const auto& [rounding, mode] : kModes) {
      const FloatMode how{.rounding = rounding};
      auto check = [&, machine_mode = mode](float got, auto f, const char* what) {
        expect_f32(got, machine(machine_mode, a, b, c, f), a, b, c, what, machine_mode);
      };
      check(
          add(a, b, how), [](float x, float y, float) { return x + y; }, "add");
      check(
          add(a, -a, how), [](float x, float, float) { return x + -x; }, "add x, -x");
      check(
          sub(a, c, how), [](float x, float, float z) { return x - z; }, "sub");
      check(
          mul(a, b, how), [](float x, float y, float) { return x * y; }, "mul");
      check(
          fma(a, b, c, how), [](float x, float y, float z) { return std::fma(x, y, z); }, "fma");
      check(
          div(a, b, how), [](float x, float y, float) { return x / y; }, "div");
      check(
          rcp(a, how), [](float x, float, float) { return 1.0f / x; }, "rcp");
      check(
          sqrt(a, how), [](float x, float, float) { return std::sqrt(x); }, "sqrt");
    }
    // The default forms are the ones without a mode.
    ASSERT_EQ(f32_bits(fma(a, b, c)), f32_bits(fma(a, b, c, FloatMode{})));
    ASSERT_EQ(f32_bits(add(a, b)), f32_bits(add(a, b, FloatMode{})));
    ASSERT_EQ(f32_bits(mul(a, b)), f32_bits(mul(a, b, FloatMode{})));
    ASSERT_EQ(f32_bits(div(a, b)), f32_bits(div(a, b, FloatMode{})));
    ASSERT_EQ(f32_bits(sqrt(a)), f32_bits(sqrt(a, FloatMode{})));
  }
}

TEST(ScalarFloat, F64MatchesTheMachineInEveryRoundingMode) {
  Operands<double, uint64_t> operands(12);
  for (int i = 0; i < 60000; ++i) {
    const double a = operands.next(), b = operands.next();
    const double c = i % 3 == 0 ? near_minus(a * b, static_cast<uint64_t>(i)) : operands.next();
    for (const auto& [rounding, mode] : kModes) {
      auto check = [&, machine_mode = mode](double got, auto f, const char* what) {
        const double want = machine(machine_mode, a, b, c, f);
        if (is_nan(want)) {
          ASSERT_EQ(f64_bits(got), 0xFFF8000000000000u) << what;
        } else {
          ASSERT_EQ(f64_bits(got), f64_bits(want))
              << what << " mode " << machine_mode << std::hexfloat << " " << a << " " << b << " " << c
              << " want " << want << " got " << got;
        }
      };
      check(
          add(a, b, rounding), [](double x, double y, double) { return x + y; }, "add");
      check(
          sub(a, a, rounding), [](double x, double, double) { return x - x; }, "sub x, x");
      check(
          sub(a, c, rounding), [](double x, double, double z) { return x - z; }, "sub");
      check(
          mul(a, b, rounding), [](double x, double y, double) { return x * y; }, "mul");
      check(
          fma(a, b, c, rounding), [](double x, double y, double z) { return std::fma(x, y, z); }, "fma");
      check(
          div(a, b, rounding), [](double x, double y, double) { return x / y; }, "div");
      check(
          rcp(a, rounding), [](double x, double, double) { return 1.0 / x; }, "rcp");
      check(
          sqrt(a, rounding), [](double x, double, double) { return std::sqrt(x); }, "sqrt");
    }
  }
}

TEST(ScalarFloat, FlushAndSaturate) {
  const float subnormal = f32_from_bits(0x00400000), smallest = 0x1p-126f;
  const FloatMode ftz{.ftz = true}, sat{.sat = true};
  EXPECT_EQ(f32_bits(add(subnormal, f32_from_bits(0x80400001), ftz)), 0u);
  EXPECT_EQ(f32_bits(mul(subnormal, 2.0f, ftz)), 0u) << "the operand is flushed first";
  EXPECT_EQ(f32_bits(mul(-smallest, 0.5f, ftz)), 0x80000000u) << "the sign stays";
  EXPECT_EQ(f32_bits(fma(subnormal, 1.0f, -subnormal, ftz)), 0u);
  EXPECT_EQ(mul(smallest, 0.5f), 0x1p-127f);
  // Just below the smallest normal number: rounded to subnormals it would reach it (measured on an H200).
  const float below_one = f32_from_bits(0x3F7FFFFF);
  EXPECT_EQ(mul(smallest, below_one), smallest);
  for (Rounding r : {Rounding::kNearestEven, Rounding::kUp, Rounding::kTowardZero})
    EXPECT_EQ(f32_bits(mul(smallest, below_one, {.rounding = r, .ftz = true})), 0u);
  EXPECT_EQ(f32_bits(mul(-smallest, below_one, {.rounding = Rounding::kDown, .ftz = true})), 0x80000000u);
  EXPECT_EQ(f32_bits(fma(smallest, below_one, 0.0f, ftz)), 0u);
  // 2^-126 less a quarter of a place of 24 bits does round up to it.
  EXPECT_EQ(mul(f32_from_bits(0x00C26506), f32_from_bits(0x3F289078), ftz), smallest);
  EXPECT_EQ(add(0.75f, 0.75f, sat), 1.0f);
  EXPECT_EQ(f32_bits(sub(0.5f, 1.0f, sat)), 0u);
  EXPECT_EQ(f32_bits(add(f32_from_bits(0x7FC00000), 1.0f, sat)), 0u) << "NaN saturates to zero";
  EXPECT_EQ(f32_bits(mul(-0.0f, 1.0f, sat)), 0u);
}

// Measured on an H200.
TEST(ScalarFloatFacts, EveryF32NanIsTheCanonicalOne) {
  const float nan = f32_from_bits(0x7FC12345), infinity = HUGE_VALF;
  for (float x : {add(nan, 1.0f), add(f32_from_bits(0xFF800001), 1.0f), add(infinity, -infinity),
                  mul(infinity, 0.0f), fma(nan, 1.0f, 1.0f), fma(1.0f, 1.0f, f32_from_bits(0xFFC12345)),
                  sqrt(-1.0f), div(0.0f, 0.0f), neg(nan), abs(f32_from_bits(0xFFC12345)),
                  min(nan, f32_from_bits(0xFFC00001)), min(nan, 1.0f, MinMaxMode{.nan = true})})
    EXPECT_EQ(f32_bits(x), 0x7FFFFFFFu);
  EXPECT_EQ(f32_bits(add(1.0f, -1.0f, FloatMode{.rounding = Rounding::kDown})), 0x80000000u);
}

TEST(ScalarFloatFacts, F64NansKeepTheirPayload) {
  const double nan = f64_from_bits(0x7FF8000000001234), other = f64_from_bits(0x7FF8000000005678);
  EXPECT_EQ(f64_bits(add(nan, 1.0)), 0x7FF8000000001234u);
  EXPECT_EQ(f64_bits(add(f64_from_bits(0x7FF0000000000001), 1.0)), 0x7FF8000000000001u);
  EXPECT_EQ(f64_bits(add(nan, other)), 0x7FF8000000005678u);
  EXPECT_EQ(f64_bits(add(HUGE_VAL, -HUGE_VAL)), 0xFFF8000000000000u);
  EXPECT_EQ(f64_bits(mul(HUGE_VAL, 0.0)), 0xFFF8000000000000u);
  EXPECT_EQ(min(nan, 1.0), 1.0);
  EXPECT_EQ(max(1.0, nan), 1.0);
}

TEST(ScalarFloatFacts, MinAndMaxOrderZerosAndSkipNan) {
  const float nan = f32_from_bits(0x7FC12345);
  EXPECT_EQ(min(nan, 1.0f), 1.0f);
  EXPECT_EQ(max(1.0f, nan), 1.0f);
  EXPECT_EQ(f32_bits(min(0.0f, -0.0f)), 0x80000000u);
  EXPECT_EQ(f32_bits(max(-0.0f, 0.0f)), 0u);
  EXPECT_EQ(f64_bits(min(0.0, -0.0)), 0x8000000000000000u);
  EXPECT_EQ(min(-3.0f, -5.0f), -5.0f);
  EXPECT_EQ(max(-3.0f, -HUGE_VALF), -3.0f);
  const MinMaxMode xorsign{.xorsign_abs = true};
  EXPECT_EQ(min(-2.0f, 3.0f, xorsign), -2.0f);
  EXPECT_EQ(max(-2.0f, -3.0f, xorsign), 3.0f);
  EXPECT_EQ(f32_bits(min(f32_from_bits(0x80400000), 1.0f, MinMaxMode{.ftz = true})), 0x80000000u);
}

TEST(ScalarFloat, TestsComparisonsAndSigns) {
  EXPECT_EQ(copysign(-1.0f, 3.0f), -3.0f) << "PTX takes the sign of its first operand";
  EXPECT_EQ(copysign(1.0, -3.0), 3.0);
  const float nan = f32_from_bits(0x7FC00000), subnormal = 0x1p-140f;
  EXPECT_TRUE(testp(FloatTest::kSubnormal, subnormal));
  EXPECT_FALSE(testp(FloatTest::kNormal, subnormal));
  EXPECT_TRUE(testp(FloatTest::kNormal, 0.0f));  // as the H200 answers
  EXPECT_TRUE(testp(FloatTest::kNumber, HUGE_VALF));
  EXPECT_FALSE(testp(FloatTest::kFinite, nan));
  EXPECT_TRUE(testp(FloatTest::kNotANumber, nan));
  EXPECT_TRUE(testp(FloatTest::kInfinite, -HUGE_VAL));

  // Each comparison on less, equal, greater, unordered.
  struct {
    Compare op;
    bool less, equal, greater, unordered;
  } rows[] = {{Compare::kEq, false, true, false, false}, {Compare::kNe, true, false, true, false},
              {Compare::kLt, true, false, false, false}, {Compare::kLe, true, true, false, false},
              {Compare::kGt, false, false, true, false}, {Compare::kGe, false, true, true, false},
              {Compare::kEqu, false, true, false, true}, {Compare::kNeu, true, false, true, true},
              {Compare::kLtu, true, false, false, true}, {Compare::kLeu, true, true, false, true},
              {Compare::kGtu, false, false, true, true}, {Compare::kGeu, false, true, true, true},
              {Compare::kNum, true, true, true, false},  {Compare::kNan, false, false, false, true}};
  for (const auto& row : rows) {
    EXPECT_EQ(compare(row.op, 1.0f, 2.0f), row.less) << static_cast<int>(row.op);
    EXPECT_EQ(compare(row.op, 2.0f, 2.0f), row.equal) << static_cast<int>(row.op);
    EXPECT_EQ(compare(row.op, 2.0f, 1.0f), row.greater) << static_cast<int>(row.op);
    EXPECT_EQ(compare(row.op, nan, 1.0f), row.unordered) << static_cast<int>(row.op);
    EXPECT_EQ(compare(row.op, 1u, 2u), row.less);
    EXPECT_EQ(compare(row.op, -1, 1), row.less);
  }
}

}  // namespace
}  // namespace imbrex::arith
