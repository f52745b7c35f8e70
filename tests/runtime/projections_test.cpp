// SPDX-License-Identifier: Apache-2.0
#include "runtime/verify/projections.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace imbrex {
namespace {

struct Product {
  HostTensor c;                  // rounded
  std::vector<double> expected;  // projections of what was rounded
  std::vector<double> signs;
};

/// Sums of k products, as normal numbers of that deviation; `bias` of their size is lost.
Product product(DataType dtype, int64_t m, int64_t n, int64_t k, uint64_t seed, double bias = 0) {
  const HostTensor exact = HostTensor::random(float64, {m, n}, seed, std::sqrt(static_cast<double>(k)));
  Product p{HostTensor(dtype, {m, n}), std::vector<double>(kProjections * m), projection_signs(seed, n)};
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) {
      const double x = exact.get(i * n + j);
      p.c.set(i * n + j, x * (1 - bias));
      for (int64_t v = 0; v < kProjections; ++v) p.expected[v * m + i] += p.signs[v * n + j] * x;
    }
  return p;
}

TEST(Projections, RoundingPasses) {
  for (DataType dtype : {float16, bfloat16, float32})
    for (uint64_t seed = 0; seed < 8; ++seed) {
      const Product p = product(dtype, 700, 257, 2048, seed);
      const Comparison comparison = compare_projections(p.c, p.expected, p.signs, 2048);
      EXPECT_TRUE(comparison.passed) << comparison.format();
      EXPECT_EQ(comparison.checked, 700);
      // Neither may the limit be out of reach: of so many rows, one strays by a good part of it.
      if (dtype != float32) {
        EXPECT_GT(comparison.max_rel_err, 0.4 * comparison.tolerance);
      }
    }
}

TEST(Projections, SumsCutByTensorCoresPass) {
  const Product p = product(bfloat16, 300, 500, 8192, 3, 8192.0 / 16 * std::ldexp(1.0, -24));
  EXPECT_TRUE(compare_projections(p.c, p.expected, p.signs, 8192).passed);
}

TEST(Projections, OneWrongElementFails) {
  // Five standard deviations of a row of 2049 are four fifths of one element's: 0.075 of unit roundings each.
  const int64_t n = 2049;
  const double error = 5 * 0.075 * std::sqrt(static_cast<double>(n));
  for (uint64_t seed = 0; seed < 8; ++seed) {
    Product p = product(bfloat16, 50, n, 2048, seed);
    const int64_t at = 31 * n + 77;
    p.c.set(at, p.c.get(at) + error);
    const Comparison comparison = compare_projections(p.c, p.expected, p.signs, 2048);
    EXPECT_EQ(comparison.failed, 1) << comparison.format();
    EXPECT_EQ(comparison.worst, std::vector<int64_t>{31});
  }
}

TEST(Projections, AnElementNeverWrittenFails) {
  Product p = product(float16, 9, 33, 64, 1);
  p.c.set(4 * 33, std::numeric_limits<double>::quiet_NaN());
  EXPECT_EQ(compare_projections(p.c, p.expected, p.signs, 64).failed, 1);
}

TEST(Projections, SwappedColumnsFail) {
  Product p = product(bfloat16, 20, 300, 512, 5);
  for (int64_t i = 0; i < 20; ++i) {
    const double x = p.c.get(i * 300 + 10), y = p.c.get(i * 300 + 200);
    p.c.set(i * 300 + 10, y);
    p.c.set(i * 300 + 200, x);
  }
  EXPECT_GT(compare_projections(p.c, p.expected, p.signs, 512).failed, 10);  // some swaps change no sum
}

}  // namespace
}  // namespace imbrex
