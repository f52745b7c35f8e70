// SPDX-License-Identifier: Apache-2.0
#include "runtime/projections.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/float_formats.h"
#include "runtime/parallel_rows.h"

namespace imbrex {
namespace {

// Chi-square with four degrees of freedom: exp(-x / 2) (1 + x / 2) = 1e-12.
constexpr double kLimit = 62.2;
static_assert(kProjections == 4);

}  // namespace

std::vector<double> projection_signs(uint64_t seed, int64_t n) {
  std::vector<double> signs(static_cast<size_t>(kProjections * n));
  uint64_t state = seed;
  for (double& sign : signs) {  // splitmix64
    uint64_t x = state += 0x9E3779B97F4A7C15u;
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    sign = (x ^ x >> 31) >> 63 ? 1.0 : -1.0;
  }
  return signs;
}

Comparison compare_projections(const HostTensor& c, std::span<const double> expected,
                               std::span<const double> signs, int64_t k) {
  const int64_t m = c.shape().at(0), n = c.shape().at(1);
  const arith::FloatFormat& format = arith::float_format(c.dtype());
  std::vector<double> distances(static_cast<size_t>(m)), sums(distances.size());
  parallel_rows(m, [&](int64_t first, int64_t last) {
    std::vector<double> row(static_cast<size_t>(n));
    for (int64_t i = first; i < last; ++i) {
      c.to_doubles(i * n, n, row.data());
      double squares = 0, variance = 0;
      for (double x : row) {
        squares += x * x;
        const int exponent = x == 0 ? format.min_exponent() : std::max(std::ilogb(x), format.min_exponent());
        const double unit = std::ldexp(1.0, exponent - format.mantissa_bits);
        variance += unit * unit / 12;
      }
      const auto terms = static_cast<double>(k);
      const double cuts = (terms / 16 + std::sqrt(terms)) * std::ldexp(1.0, -24);
      variance += cuts * cuts * squares;
      double distance = 0;
      for (int p = 0; p < kProjections; ++p) {
        double sum = 0;
        for (int64_t j = 0; j < n; ++j) sum += signs[p * n + j] * row[j];
        const double error = sum - expected[p * m + i];
        distance += error * error / variance;
        if (p == 0) sums[i] = sum;
      }
      distances[i] = std::isfinite(distance) ? distance : std::numeric_limits<double>::infinity();
    }
  });
  Comparison result;
  result.tolerance = default_tolerance(c.dtype());
  result.elements = result.checked = m;
  int64_t worst = 0;
  for (int64_t i = 0; i < m; ++i) {
    result.failed += distances[i] > kLimit;
    if (distances[i] > distances[worst]) worst = i;
  }
  result.max_rel_err = result.tolerance * std::sqrt(distances[worst] / kLimit);
  result.worst = {worst};
  result.expected = expected[worst];
  result.got = sums[worst];
  result.passed = result.failed == 0;
  return result;
}

}  // namespace imbrex
