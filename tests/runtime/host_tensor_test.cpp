// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "imbrex/core/error.h"
#include "imbrex/runtime/host_tensor.h"
#include "imbrex/runtime/scale_factors.h"

namespace imbrex {
namespace {

TEST(HostTensor, RandomNumbersAreNormal) {
  const int64_t n = 200000;
  std::vector<double> values = HostTensor::random(float32, {n}, 7).to_doubles();
  double mean = 0, variance = 0, fourth = 0;
  for (double v : values) mean += v / n;
  for (double v : values) variance += (v - mean) * (v - mean) / n, fourth += std::pow(v - mean, 4) / n;
  EXPECT_NEAR(mean, 0, 0.01);
  EXPECT_NEAR(variance, 1, 0.02);
  EXPECT_NEAR(fourth / (variance * variance), 3, 0.1);
}

TEST(HostTensor, SeedsDecideAndDiffer) {
  auto bytes = [](uint64_t seed) {
    HostTensor t = HostTensor::random(float16, {1000}, seed);
    return std::vector<std::byte>(t.bytes().begin(), t.bytes().end());
  };
  EXPECT_EQ(bytes(1), bytes(1));
  EXPECT_NE(bytes(1), bytes(2));
  // Neighbouring seeds give unrelated streams, not shifted ones.
  std::vector<double> a = HostTensor::random(float32, {1000}, 1).to_doubles();
  std::vector<double> b = HostTensor::random(float32, {1000}, 2).to_doubles();
  int equal = 0;
  for (int i = 4; i + 4 < 1000; ++i)
    for (int shift = -4; shift <= 4; ++shift) equal += a[i] == b[i + shift];
  EXPECT_LT(equal, 20);
}

TEST(HostTensor, SetRoundsAndSaturates) {
  HostTensor h(float16, {1}), i(int8, {1}), u(uint8, {1});
  h.set(0, 1.0 + 0x1p-11);  // a tie: to even
  EXPECT_EQ(h.get(0), 1.0);
  h.set(0, 1.0 + 0x1.8p-11);
  EXPECT_EQ(h.get(0), 1.0 + 0x1p-10);
  i.set(0, -1000);
  EXPECT_EQ(i.get(0), -128);
  u.set(0, -5);
  EXPECT_EQ(u.get(0), 0);
  u.set(0, 254.9);
  EXPECT_EQ(u.get(0), 254);
}

TEST(HostTensor, EveryTypeReadsBackWhatItHolds) {
  for (int code = 0; code < DataType::kCount; ++code) {
    DataType dtype{static_cast<DataType::Code>(code)};
    if (dtype == float8_e8m0) continue;
    HostTensor t(dtype, {2});
    t.set(0, 1), t.set(1, dtype.is_bool() ? 0 : 2);
    // Integers of few bits stop at their largest.
    const int magnitude_bits = dtype.bits() - (dtype.is_signed() ? 1 : 0);
    const double largest = dtype.is_integer() ? std::ldexp(1, magnitude_bits) - 1 : 2;
    EXPECT_EQ(t.to_doubles(),
              (std::vector<double>{std::min(1.0, largest), dtype.is_bool() ? 0 : std::min(2.0, largest)}))
        << dtype.name();
  }
}

TEST(HostTensor, ElementsOfLessThanAByteArePacked) {
  HostTensor four(float4_e2m1, {5}), six(float6_e3m2, {4});
  const double values[] = {0.5, -6, 1.5, 3, -1};
  for (int i = 0; i < 5; ++i) four.set(i, values[i]);
  EXPECT_EQ(four.bytes().size(), 3u);
  EXPECT_EQ(four.bytes()[0], std::byte{0xF1});  // the even one below
  for (int i = 0; i < 5; ++i) EXPECT_EQ(four.get(i), values[i]);
  for (int i = 0; i < 4; ++i) six.set(i, values[i]);
  EXPECT_EQ(six.bytes().size(), 3u);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(six.get(i), values[i]);
  six.set(1, 28);  // leaves its neighbours
  EXPECT_EQ(six.to_doubles(), (std::vector<double>{0.5, 28, 1.5, 3}));
}

TEST(HostTensor, IntegersOfLessThanAByte) {
  for (int bits = 1; bits < 8; ++bits)
    for (bool is_signed : {false, true}) {
      const DataType dtype = *DataType::from_name((is_signed ? "int" : "uint") + std::to_string(bits));
      const int low = is_signed ? -(1 << (bits - 1)) : 0, high = low + (1 << bits) - 1;
      HostTensor t(dtype, {1 << bits});
      EXPECT_EQ(t.bytes().size(), static_cast<size_t>(((1 << bits) * bits + 7) / 8));
      for (int i = low; i <= high; ++i) t.set(i - low, i);
      for (int i = low; i <= high; ++i) EXPECT_EQ(t.get(i - low), i) << dtype.name();
      t.set(0, 1000), t.set(1, -1000);
      EXPECT_EQ(t.get(0), high);
      EXPECT_EQ(t.get(1), low);
      const HostTensor drawn = HostTensor::random(dtype, {2000}, 1);
      const std::vector<double> numbers = drawn.to_doubles();
      EXPECT_EQ(*std::min_element(numbers.begin(), numbers.end()), low);
      EXPECT_EQ(*std::max_element(numbers.begin(), numbers.end()), high);
    }
}

TEST(HostTensor, ScaleFactorsAreMagnitudes) {
  const HostTensor powers = HostTensor::random(float8_e8m0, {1000}, 1),
                   fractions = HostTensor::random(float8_ue4m3, {1000}, 2);
  int large = 0;
  for (double x : powers.to_doubles()) {
    EXPECT_EQ(std::exp2(std::round(std::log2(x))), x);
    large += x >= 1;
  }
  EXPECT_GT(large, 100);
  for (double x : fractions.to_doubles()) EXPECT_GE(x, 0);
}

TEST(ScaleFactors, TilesOf128RowsAnd4Blocks) {
  const int64_t rows = 300, blocks = 9;
  const HostTensor factors = HostTensor::random(float8_e8m0, {rows, blocks}, 3);
  const HostTensor tiled = tile_scale_factors(factors);
  EXPECT_EQ(tiled.shape(), (std::vector<int64_t>{3, 3, 2, 256}));
  std::vector<std::byte> left(tiled.bytes().begin(), tiled.bytes().end());
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t f = 0; f < blocks; ++f) {
      const int64_t at = (r / 128 * 3 + f / 4) * 512 + r % 32 * 16 + r / 32 % 4 * 4 + f % 4;
      EXPECT_EQ(left[at], factors.bytes()[r * blocks + f]);
      left[at] = std::byte{0};
    }
  for (std::byte b : left) EXPECT_EQ(b, std::byte{0});  // what fills up the last tiles
  EXPECT_THROW(tile_scale_factors(HostTensor(float32, {4, 4})), LaunchError);
}

TEST(HostTensor, NegativeExtentsAreRefused) { EXPECT_THROW(HostTensor(float32, {4, -1}), LaunchError); }

}  // namespace
}  // namespace imbrex
