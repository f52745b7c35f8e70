// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "imbrex/runtime/compare.h"

namespace imbrex {
namespace {

HostTensor tensor(std::vector<double> values, std::vector<int64_t> shape) {
  HostTensor t(float32, std::move(shape));
  for (size_t i = 0; i < values.size(); ++i) t.set(static_cast<int64_t>(i), values[i]);
  return t;
}

TEST(Compare, FindsTheWorstElementByIndex) {
  HostTensor got = tensor({1, 2, 3, 4, 5.5, 6}, {2, 3});
  std::vector<double> expected{1, 2, 3, 4, 5, 6};
  Comparison c = compare(got, expected, 0.01);
  EXPECT_FALSE(c.passed);
  EXPECT_EQ(c.failed, 1);
  EXPECT_EQ(c.worst, (std::vector<int64_t>{1, 1}));
  EXPECT_DOUBLE_EQ(c.max_rel_err, 0.1);
}

TEST(Compare, NearZeroIsJudgedOnTheResultsOwnScale) {
  std::vector<double> expected{1000, -1000, 0};
  EXPECT_TRUE(compare(tensor({1000, -1000, 1e-3}, {3}), expected, 1e-5).passed);
  EXPECT_FALSE(compare(tensor({1000, -1000, 1}, {3}), expected, 1e-5).passed);
}

TEST(Compare, NanPassesOnlyAgainstNan) {
  const double nan = std::numeric_limits<double>::quiet_NaN(), inf = std::numeric_limits<double>::infinity();
  EXPECT_FALSE(compare(tensor({nan, 1}, {2}), std::vector<double>{1, 1}, 1).passed);
  EXPECT_FALSE(compare(tensor({1, 1}, {2}), std::vector<double>{nan, 1}, 1).passed);
  EXPECT_FALSE(compare(tensor({inf, 1}, {2}), std::vector<double>{1e30, 1}, 1).passed);
  EXPECT_TRUE(compare(tensor({nan, inf}, {2}), std::vector<double>{nan, inf}, 0).passed);
}

TEST(Compare, PoisonIsNanInEveryFloatType) {
  for (DataType dtype : {float16, bfloat16, float32, float64, float8_e4m3, float8_e5m2}) {
    HostTensor t(dtype, {1});
    for (std::byte& b : t.bytes()) b = std::byte{0xFF};
    EXPECT_TRUE(std::isnan(t.get(0))) << dtype.name();
  }
}

TEST(Compare, SamplesAreComparedAtTheirIndices) {
  HostTensor got = tensor({10, 11, 12, 13}, {2, 2});
  EXPECT_TRUE(compare_at(got, std::vector<int64_t>{1, 3}, std::vector<double>{11, 13}, 0).passed);
  Comparison c = compare_at(got, std::vector<int64_t>{1, 2}, std::vector<double>{11, 13}, 0);
  EXPECT_EQ(c.worst, (std::vector<int64_t>{1, 0}));
}

TEST(Compare, EachElementHasABoundOfItsOwn) {
  const HostTensor got = tensor({10, 1.25, -3, 0.5}, {2, 2});
  const std::vector<int64_t> all{0, 1, 2, 3};
  const auto compared = [&](double allowed_of_the_last) {
    return compare_at(got, all, std::vector<Bounded>{{10.5, 1}, {1, 0.5}, {-3, 0}, {0, allowed_of_the_last}});
  };
  const Comparison c = compared(0.75), wrong = compared(0.25);
  EXPECT_TRUE(c.passed);
  EXPECT_EQ(c.worst, (std::vector<int64_t>{1, 1}));  // two thirds of its bound; the others half, and nothing
  EXPECT_NEAR(c.max_rel_err / c.tolerance, 2. / 3, 1e-12);
  EXPECT_FALSE(wrong.passed);
  EXPECT_EQ(wrong.failed, 1);
  EXPECT_FALSE(compare_at(got, std::vector<int64_t>{2}, std::vector<Bounded>{{-3.001, 0}}).passed);
}
/// Where nothing may be off, the worst is the one that is farthest off.
TEST(Compare, OfExactResultsTheWorstIsTheFarthest) {
  const Comparison c = compare(tensor({1, 2, 3}, {3}), std::vector<double>{1, 2.5, 5}, 0);
  EXPECT_EQ(c.failed, 2);
  EXPECT_EQ(c.worst, (std::vector<int64_t>{2}));
}

}  // namespace
}  // namespace imbrex
