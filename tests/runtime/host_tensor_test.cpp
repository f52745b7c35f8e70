// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>

#include "imbrex/device_tensor.h"
#include "imbrex/error.h"

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
    if (dtype.bits() % 8 != 0 || dtype == float8_e8m0) continue;
    HostTensor t(dtype, {2});
    t.set(0, 1), t.set(1, dtype.is_bool() ? 0 : 2);
    EXPECT_EQ(t.to_doubles(), (std::vector<double>{1, dtype.is_bool() ? 0.0 : 2.0})) << dtype.name();
  }
}

TEST(HostTensor, NegativeExtentsAreRefused) { EXPECT_THROW(HostTensor(float32, {4, -1}), LaunchError); }

}  // namespace
}  // namespace imbrex
