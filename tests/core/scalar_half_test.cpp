// SPDX-License-Identifier: Apache-2.0
// f16 and bf16 against exact arithmetic: sums and products of halves are exact in a long double (64 bits) or
// nearly so, and are rounded by the format's own definition after being made odd.
#include "core/scalar_half.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "core/scalar_int.h"

namespace imbrex::arith {
namespace {

#ifdef __SIZEOF_FLOAT128__
using Quad = __float128;
#else
using Quad = long double;
#endif
static_assert(sizeof(Quad) == 16 && static_cast<Quad>(1) + static_cast<Quad>(0x1p-112) != 1,
              "no quad precision here");

/// The exact a * b + c, as a double rounded to odd: quad precision has bits to spare for every pair of halves
/// but the widest apart, where its own last bit is made sticky.
double exact(double a, double b, double c) {
  const Quad product = static_cast<Quad>(a) * static_cast<Quad>(b);  // exact: 22 bits
  const Quad sum = product + static_cast<Quad>(c);
  const Quad lost = (product - (sum - static_cast<Quad>(c))) +
                    (static_cast<Quad>(c) - (sum - (sum - static_cast<Quad>(c))));
  auto nearest = static_cast<double>(sum);
  Quad error = sum - static_cast<Quad>(nearest);
  if (error == 0) error = lost;
  return detail::to_odd(nearest, error > 0 ? 1.0 : error < 0 ? -1.0 : 0.0);
}

struct Half {
  const char* name;
  const FloatFormat* format;
  uint16_t (*add)(uint16_t, uint16_t);
  uint16_t (*sub)(uint16_t, uint16_t);
  uint16_t (*mul)(uint16_t, uint16_t);
  uint16_t (*fma)(uint16_t, uint16_t, uint16_t);
  uint16_t (*min)(uint16_t, uint16_t);
  uint16_t (*max)(uint16_t, uint16_t);
};
const Half kHalves[] = {{"f16", &kF16, add_f16, sub_f16, mul_f16, fma_f16, min_f16, max_f16},
                        {"bf16", &kBF16, add_bf16, sub_bf16, mul_bf16, fma_bf16, min_bf16, max_bf16}};

TEST(ScalarHalf, RoundsOnceFromTheExactResult) {
  std::mt19937 random(21);
  for (const Half& half : kHalves) {
    const FloatFormat& f = *half.format;
    for (int i = 0; i < 700000; ++i) {
      const uint32_t bits = static_cast<uint32_t>(random()), more = static_cast<uint32_t>(random());
      const auto a = static_cast<uint16_t>(bits), b = static_cast<uint16_t>(bits >> 16);
      auto c = static_cast<uint16_t>(more);
      // Often an addend near the product, or a half of its last place away from a tie.
      if (more >> 30 == 0) c = static_cast<uint16_t>(half.mul(a, b) ^ 0x8000 ^ (more >> 16 & 3));
      if (more >> 30 == 1)
        c = static_cast<uint16_t>(half.mul(a, b) -
                                  (static_cast<uint32_t>(f.mantissa_bits + 1) << f.mantissa_bits));
      const double x = decode(f, a), y = decode(f, b), z = decode(f, c);
      ASSERT_EQ(half.add(a, b), encode(f, exact(x, 1, y))) << half.name << std::hex << " " << a << " " << b;
      ASSERT_EQ(half.sub(a, b), encode(f, exact(x, 1, -y))) << half.name << std::hex << " " << a << " " << b;
      ASSERT_EQ(half.mul(a, b), encode(f, x * y)) << half.name << std::hex << " " << a << " " << b;
      ASSERT_EQ(half.fma(a, b, c), encode(f, exact(x, y, z)))
          << half.name << std::hex << " " << a << " " << b << " " << c;
      const bool nan_a = std::isnan(x), nan_b = std::isnan(y);
      if (nan_a || nan_b) {
        const uint16_t other = nan_a ? b : a;
        ASSERT_EQ(half.min(a, b), nan_a && nan_b ? 0x7FFF : other);
        ASSERT_EQ(half.max(a, b), nan_a && nan_b ? 0x7FFF : other);
      } else {
        ASSERT_EQ(half.min(a, b), x < y || (x == y && std::signbit(x)) ? a : b);
        ASSERT_EQ(half.max(a, b), x > y || (x == y && !std::signbit(x)) ? a : b);
      }
    }
  }
}

// Measured on an H200; the first half of a pair is the upper one.
TEST(ScalarHalfFacts, PairsAsTheHardwareGivesThem) {
  EXPECT_EQ(each_half<uint16_t>(0x7E057C00, 0x3C00FC00, add_f16), 0x7FFF7FFFu);
  EXPECT_EQ(each_half<uint16_t>(0x7FC57F80, 0x3F80FF80, add_bf16), 0x7FFF7FFFu);
  EXPECT_EQ(each_half<uint16_t>(0x7E057E05, 0x3C007E06, [](uint16_t a, uint16_t b) { return min_f16(a, b); }),
            0x3C007FFFu);
  EXPECT_EQ(
      each_half<uint16_t>(0x7FC57FC5, 0x3F807FC6, [](uint16_t a, uint16_t b) { return min_bf16(a, b); }),
      0x3F807FFFu);
  EXPECT_EQ(fma_f16(0x7C00, 0x0000, 0), 0x7FFF) << "inf * 0";
  EXPECT_EQ(fma_f16(0x0001, 0x3C00, 0), 0x0001) << "subnormals are kept";
  EXPECT_EQ(fma_bf16(0x0001, 0x3F80, 0), 0x0001);
  EXPECT_EQ(relu_f16(fma_f16(0xBC00, 0x3C00, 0)), 0);
  EXPECT_EQ(relu_f16(fma_f16(0x7E00, 0x3C00, 0)), 0x7FFF) << ".relu keeps NaN";
  EXPECT_EQ(mul_bf16(0x7F7F, 0x4000), 0x7F80);
}

TEST(ScalarHalf, Modifiers) {
  EXPECT_EQ(relu_f16(0x8000), 0);
  EXPECT_EQ(relu_bf16(0xFF80), 0) << "-inf";
  EXPECT_EQ(relu_bf16(0x7FFF), 0x7FFF);
  EXPECT_EQ(flush_f16(0x83FF), 0x8000);
  EXPECT_EQ(flush_f16(0x0400), 0x0400);
  // Recorded on an H200: below the smallest normal number before rounding to subnormals.
  EXPECT_EQ(mul_f16(0xA06A, 0x1F3F), 0x8400);
  EXPECT_EQ(mul_ftz_f16(0xA06A, 0x1F3F), 0x8000);
  EXPECT_EQ(fma_ftz_f16(0xA06A, 0x1F3F, 0), 0x8000);
  EXPECT_EQ(mul_ftz_f16(0x0400, 0x3C00), 0x0400);
  EXPECT_EQ(mul_ftz_f16(0x03FF, 0x4400), 0) << "operands are flushed";
  EXPECT_EQ(saturate_f16(0x4000), 0x3C00);
  EXPECT_EQ(saturate_f16(0xC000), 0);
  EXPECT_EQ(saturate_f16(0x7E00), 0);
  EXPECT_EQ(neg_f16(0x7E00), 0x7FFF);
  EXPECT_EQ(neg_bf16(0x3F80), 0xBF80);
  EXPECT_EQ(abs_f16(0xBC00), 0x3C00);
  EXPECT_EQ(min_f16(0x7E00, 0x3C00, MinMaxMode{.nan = true}), 0x7FFF);
  EXPECT_EQ(max_bf16(0xC000, 0x3F80, MinMaxMode{.xorsign_abs = true}), 0xC000);
  EXPECT_EQ(fma_oob_f16(kOutOfBoundsNan, 0x3C00, 0x3C00), 0);
  EXPECT_EQ(fma_oob_f16(0x3C00, 0xFFF7, 0x3C00), 0);
  EXPECT_EQ(fma_oob_f16(0x3C00, 0x7FFF, 0x3C00), 0x7FFF);
  EXPECT_EQ(fma_oob_bf16(0x3F80, 0x3F80, 0x3F80), 0x4000);
}

}  // namespace
}  // namespace imbrex::arith
