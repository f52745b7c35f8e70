// SPDX-License-Identifier: Apache-2.0
// The float64 reference of matrix products: whole where that is quick, else sampled elements and projections
// of all rows.
#include <algorithm>
#include <cmath>
#include <tuple>
#include <vector>

#include "imbrex/runtime/registry.h"
#include "runtime/host/parallel.h"
#include "runtime/verify/projections.h"

namespace imbrex {
namespace {

constexpr int64_t kWholeUpTo = int64_t{1} << 31;  // multiply-adds; about a second on two cores
constexpr int64_t kSamples = 16384;

/// sum over k of a[k] * b[k]. Eight partial sums, so that it vectorises.
double dot(const double* a, const double* b, int64_t k) {
  double sums[8] = {};
  int64_t i = 0;
  for (; i + 8 <= k; i += 8)
    for (int j = 0; j < 8; ++j) sums[j] += a[i + j] * b[i + j];
  double rest = 0;
  for (; i < k; ++i) rest += a[i] * b[i];
  return rest + ((sums[0] + sums[4]) + (sums[1] + sums[5])) + ((sums[2] + sums[6]) + (sums[3] + sums[7]));
}

}  // namespace

void Case::expect_matmul(const DeviceTensor& c, const DeviceTensor& a, const DeviceTensor& b,
                         double tolerance) {
  matmul = StatedMatmul{a, b, c};
  flop = 2.0 * static_cast<double>(c.shape().at(0) * c.shape().at(1)) * static_cast<double>(a.shape().at(1));
  if (!is_launched_) return;
  std::vector<double> left, right;  // read when a reference has to be made
  expect_product(
      c, a.shape().at(1),
      [&]() -> MatmulOperands {
        if (left.empty()) left = values(a), right = values(b);
        return {left, right};
      },
      tolerance);
}

void Case::expect_matmul(const DeviceTensor& c, std::span<const double> left, std::span<const double> right,
                         double tolerance) {
  if (!is_launched_) return;
  const int64_t k = static_cast<int64_t>(left.size()) / c.shape().at(0);
  expect_product(
      c, k,
      [&]() -> MatmulOperands {
        return {left, right};
      },
      tolerance);
}

void Case::expect_product(const DeviceTensor& c, int64_t k, const std::function<MatmulOperands()>& operands,
                          double tolerance) {
  const int64_t m = c.shape().at(0), n = c.shape().at(1);
  std::span<const double> left, right;
  auto read_inputs = [&] { std::tie(left, right) = operands(); };
  auto element = [&](int64_t i, int64_t j) {
    if (left.empty()) read_inputs();
    return dot(left.data() + i * k, right.data() + j * k, k);
  };
  if (m * n * k <= kWholeUpTo) {
    expect(
        c,
        [&](std::span<double> out) {
          read_inputs();
          runtime::parallel_rows(m, [&](int64_t first, int64_t last) {
            constexpr int64_t tile = 64;  // columns whose rows of B stay in the cache
            for (int64_t j0 = 0; j0 < n; j0 += tile)
              for (int64_t i = first; i < last; ++i)
                for (int64_t j = j0; j < std::min(j0 + tile, n); ++j) out[i * n + j] = element(i, j);
          });
        },
        tolerance);
    return;
  }
  const HostTensor got = c.to_host();
  compare_samples(got, kSamples, tolerance, [&](std::span<const int64_t> indices) {
    read_inputs();
    std::vector<double> values(indices.size());
    runtime::parallel_rows(static_cast<int64_t>(indices.size()), [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) values[i] = element(indices[i] / n, indices[i] % n);
    });
    return values;
  });

  // Every element once more, through the projections of its row.
  const std::vector<double> signs = projection_signs(seed_, n);
  const std::vector<double> expected = reference([&] {
    read_inputs();
    std::vector<double> folded(static_cast<size_t>(kProjections * k)),
        sums(static_cast<size_t>(kProjections * m));
    runtime::parallel_rows(k, [&](int64_t first, int64_t last) {
      for (int64_t j = 0; j < n; ++j)
        for (int p = 0; p < kProjections; ++p)
          for (int64_t i = first; i < last; ++i) folded[p * k + i] += signs[p * n + j] * right[j * k + i];
    });
    runtime::parallel_rows(m, [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i)
        for (int p = 0; p < kProjections; ++p)
          sums[p * m + i] = dot(left.data() + i * k, folded.data() + p * k, k);
    });
    return sums;
  });
  comparisons.push_back(compare_projections(got, expected, signs, k));
}

}  // namespace imbrex
