// SPDX-License-Identifier: Apache-2.0
#include "runtime/verify/projections.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "core/float_formats.h"
#include "runtime/host/parallel.h"

namespace imbrex {
namespace {

// Chi-square with four degrees of freedom: exp(-x / 2) (1 + x / 2) = 1e-12.
constexpr double kLimit = 62.2;
static_assert(kProjections == 4);
constexpr uint64_t kExponent = uint64_t{0x7FF} << 52;  // of a double

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
  const double smallest = std::ldexp(1.0, format.min_exponent()),
               last_place = std::ldexp(1.0, -format.mantissa_bits);
  std::vector<double> distances(static_cast<size_t>(m)), sums(distances.size());
  runtime::parallel_rows(m, [&](int64_t first, int64_t last) {
    std::vector<double> row(static_cast<size_t>(n));
    for (int64_t i = first; i < last; ++i) {
      c.to_doubles(i * n, n, row.data());
      // Independent sums in one loop, so that none waits for its own last addition.
      double squares = 0, units = 0, sum[kProjections] = {};
      for (int64_t j = 0; j < n; ++j) {
        const double x = row[j];
        // Powers of two below the elements, no smaller than that of the smallest normal one.
        const double power =
            std::max(std::bit_cast<double>(std::bit_cast<uint64_t>(x) & kExponent), smallest);
        squares += x * x;
        units += power * power;
        for (int p = 0; p < kProjections; ++p) sum[p] += signs[p * n + j] * x;
      }
      const auto terms = static_cast<double>(k);
      const double cuts = (terms / 16 + std::sqrt(terms)) * std::ldexp(1.0, -24);
      const double variance = units * last_place * last_place / 12 + cuts * cuts * squares;
      double distance = 0;
      for (int p = 0; p < kProjections; ++p) {
        const double error = sum[p] - expected[p * m + i];
        distance += error * error / variance;
      }
      sums[i] = sum[0];
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
