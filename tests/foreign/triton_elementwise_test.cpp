// SPDX-License-Identifier: Apache-2.0
// triton/elementwise.py as Triton 3.6 compiled it: every Triton kernel ends with two pointers to scratch
// memory, unused.
#include <algorithm>

#include "foreign_testing.h"

namespace imbrex::vgpu {
namespace {

constexpr DeviceAddress kNoScratch = 0;

class TritonElementwise : public ForeignSeeds {};
INSTANTIATE_TEST_SUITE_P(Seeds, TritonElementwise, testing::Values(0, 1, 2, 3));

TEST_P(TritonElementwise, GeluOfScaledSum) {
  for (const int n : {1, 31, 512, 3001}) {
    Foreign kernel("triton_gelu_add.sm_90a", seed());
    const auto x = kernel.uniform<float>(n, -3, 3);
    const auto y = kernel.uniform<Half>(n, -3, 3);
    const DeviceAddress out = kernel.output(n * 4);
    kernel.run({.grid = {(n + 511) / 512}}, kernel.input(x), kernel.input(y), out, n, 0.75f, kNoScratch,
               kNoScratch);
    std::vector<double> expected;
    for (size_t i = 0; i < x.size(); ++i) {
      const double v = value(x[i]) * 0.75 + value(y[i]);
      expected.push_back(0.5 * v * (1 + std::erf(v * std::sqrt(0.5))));
    }
    expect_close(kernel.read<float>(out, n), expected, 1e-5, 1e-6);
  }
}

TEST_P(TritonElementwise, Softmax) {
  for (const std::string target : {"sm_80", "sm_100a"})
    for (const int columns : {1, 100, 777, 1024}) {
      Foreign kernel("triton_softmax." + target, seed());
      const int rows = 5, stride = columns + 3;
      const auto x = kernel.uniform<float>(rows * stride, -8, 8);
      const DeviceAddress out = kernel.output(rows * stride * 4);
      kernel.run({.grid = {rows}}, kernel.input(x), out, columns, stride, kNoScratch, kNoScratch);
      const auto result = kernel.read<float>(out, rows * stride);
      for (int r = 0; r < rows; ++r) {
        const auto row = x.begin() + r * stride;
        double total = 0;
        for (int c = 0; c < columns; ++c) total += std::exp(value(row[c]));
        std::vector<double> expected;
        for (int c = 0; c < columns; ++c) expected.push_back(std::exp(value(row[c])) / total);
        const auto first = result.begin() + r * stride;
        expect_close(std::vector<float>(first, first + columns), expected, 1e-5, 0);
        EXPECT_TRUE(std::all_of(first + columns, first + stride, [](float v) { return std::isnan(v); }));
      }
    }
}

TEST_P(TritonElementwise, LayerNorm) {
  for (const std::string target : {"sm_80", "sm_100a"})
    for (const int columns : {5, 512, 1111}) {
      Foreign kernel("triton_layer_norm." + target, seed());
      const int rows = 3;
      const auto x = kernel.uniform<Half>(rows * columns, -2, 3);
      const auto gain = kernel.uniform<float>(columns), bias = kernel.uniform<float>(columns);
      const DeviceAddress out = kernel.output(rows * columns * 2), means = kernel.output(rows * 4);
      kernel.run({.grid = {rows}}, kernel.input(x), kernel.input(gain), kernel.input(bias), out, means,
                 columns, 1e-5f, kNoScratch, kNoScratch);
      std::vector<double> expected, expected_means;
      for (int r = 0; r < rows; ++r) {
        const auto row = x.begin() + r * columns;
        double mean = 0, variance = 0;
        for (int c = 0; c < columns; ++c) mean += value(row[c]) / columns;
        for (int c = 0; c < columns; ++c) variance += std::pow(value(row[c]) - mean, 2) / columns;
        expected_means.push_back(mean);
        for (size_t c = 0; c < gain.size(); ++c)
          expected.push_back((value(row[static_cast<int>(c)]) - mean) / std::sqrt(variance + 1e-5) *
                                 value(gain[c]) +
                             value(bias[c]));
      }
      expect_close(kernel.read<Half>(out, rows * columns), expected, 0x1p-10, 1e-5);
      expect_close(kernel.read<float>(means, rows), expected_means, 1e-5, 1e-6);
    }
}

TEST_P(TritonElementwise, LinearRecurrenceByAssociativeScan) {
  for (const int columns : {1, 33, 200, 256}) {
    Foreign kernel("triton_linear_recurrence.sm_80", seed());
    const int rows = 6;
    const auto decay = kernel.uniform<float>(rows * columns, 0.5, 1),
               v = kernel.uniform<float>(rows * columns);
    const DeviceAddress out = kernel.output(rows * columns * 4);
    kernel.run({.grid = {rows / 2}}, kernel.input(decay), kernel.input(v), out, columns, kNoScratch,
               kNoScratch);
    std::vector<double> expected;
    for (size_t i = 0; i < v.size(); ++i)
      expected.push_back((i % static_cast<size_t>(columns) == 0 ? 0 : value(decay[i]) * expected.back()) +
                         value(v[i]));
    expect_close(kernel.read<float>(out, rows * columns), expected, 1e-5, 1e-5);
  }
}

TEST_P(TritonElementwise, HistogramAndExtremesByAtomics) {
  for (const int n : {7, 512, 4099}) {
    Foreign kernel("triton_histogram_and_extremes.sm_90a", seed());
    const std::vector<int> x = kernel.integers(n, 3, 60);
    const DeviceAddress bins = kernel.input(std::vector<int>(64, 1000)),
                        extremes = kernel.input(std::vector<int>{-5, 100});
    kernel.run({.grid = {(n + 511) / 512}}, kernel.input(x), bins, extremes, n, kNoScratch, kNoScratch);
    std::vector<int> expected(64, 1000);
    for (const int v : x) ++expected[static_cast<size_t>(v)];
    EXPECT_EQ(kernel.read<int>(bins, 64), expected);
    const auto [least, most] = std::minmax_element(x.begin(), x.end());
    EXPECT_EQ(kernel.read<int>(extremes, 2), (std::vector<int>{*most, *least}));
  }
}

TEST_P(TritonElementwise, SortsRows) {
  Foreign kernel("triton_sort_rows.sm_100a", seed());
  std::vector<int> x = kernel.integers(3 * 256, -1000, 1000);
  const DeviceAddress out = kernel.output(3 * 256 * 4);
  kernel.run({.grid = {3}}, kernel.input(x), out, kNoScratch, kNoScratch);
  for (int r = 0; r < 3; ++r) std::sort(x.begin() + r * 256, x.begin() + (r + 1) * 256);
  EXPECT_EQ(kernel.read<int>(out, 3 * 256), x);
}

}  // namespace
}  // namespace imbrex::vgpu
