// SPDX-License-Identifier: Apache-2.0
// The float64 reference of matrix products: whole where that is quick, else sampled elements and a projection
// of all.
#include <algorithm>
#include <cmath>
#include <thread>
#include <tuple>
#include <vector>

#include "imbrex/registry.h"

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

/// Calls body(first, last) over disjoint parts of [0, count) on all cores.
template <class Body>
void parallel(int64_t count, Body body) {
  const int64_t workers = std::max<int64_t>(1, std::min<int64_t>(std::thread::hardware_concurrency(), count));
  std::vector<std::thread> threads;
  for (int64_t w = 0; w < workers; ++w)
    threads.emplace_back(body, count * w / workers, count * (w + 1) / workers);
  for (std::thread& thread : threads) thread.join();
}

}  // namespace

void Case::expect_matmul(const DeviceTensor& c, const DeviceTensor& a, const DeviceTensor& b,
                         double tolerance) {
  matmul = StatedMatmul{a, b, c};
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
          parallel(m, [&](int64_t first, int64_t last) {
            constexpr int64_t tile = 64;  // columns whose rows of B stay in the cache
            for (int64_t j0 = 0; j0 < n; j0 += tile)
              for (int64_t i = first; i < last; ++i)
                for (int64_t j = j0; j < std::min(j0 + tile, n); ++j) out[i * n + j] = element(i, j);
          });
        },
        tolerance);
    return;
  }
  expect_samples(
      c, [&](int64_t index) { return element(index / n, index % n); }, kSamples, tolerance);

  // Every element once more, through C v = A (B^T v) for random signs v: one wrong element shows as a wrong
  // row.
  HostTensor got = c.to_host();
  std::vector<double> sign(n), sums(m);
  for (int64_t j = 0; j < n; ++j)
    sign[j] = (seed_ * 0x9E3779B97F4A7C15u + j * 0xBF58476D1CE4E5B9u) >> 63 ? 1.0 : -1.0;
  const std::vector<double> expected = reference([&] {
    read_inputs();
    std::vector<double> folded(k), rows(m);
    for (int64_t j = 0; j < n; ++j)
      for (int64_t i = 0; i < k; ++i) folded[i] += sign[j] * right[j * k + i];
    parallel(m, [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) rows[i] = dot(left.data() + i * k, folded.data(), k);
    });
    return rows;
  });
  parallel(m, [&](int64_t first, int64_t last) {
    std::vector<double> row(n);
    for (int64_t i = first; i < last; ++i) {
      got.to_doubles(i * n, n, row.data());
      sums[i] = dot(row.data(), sign.data(), n);
    }
  });
  HostTensor projection(float64, {m});
  for (int64_t i = 0; i < m; ++i) projection.set(i, sums[i]);
  comparisons.push_back(
      compare(projection, expected, tolerance < 0 ? default_tolerance(got.dtype()) : tolerance));
}

}  // namespace imbrex
