// SPDX-License-Identifier: Apache-2.0
// cuda/ as nvcc 13.0 compiled it: vectors, reductions, scans, histograms, cooperative grids and clusters.
#include <algorithm>
#include <numeric>

#include "foreign_testing.h"

namespace imbrex::vgpu {
namespace {

class Cuda : public ForeignSeeds {};
INSTANTIATE_TEST_SUITE_P(Seeds, Cuda, testing::Values(0, 1, 2, 3));

TEST_P(Cuda, VectorsWithTails) {
  for (const std::string target : {"sm_80", "sm_90a", "sm_100a"})
    for (const int n : {1, 2, 1022, 3003}) {
      Foreign kernel("cuda_vector." + target, seed());
      const auto x = kernel.uniform<float>(n);
      const auto h = kernel.uniform<Half>(n / 2 * 2);
      const Half limit(0.25);
      const float scale = -1.5f;  // struct Scale
      const DeviceAddress y = kernel.output(n * 4), dh = h.empty() ? kernel.output(4) : kernel.input(h);
      kernel.run({.grid = {3}, .block = {128}}, kernel.input(x), y, dh, n, scale, limit);
      std::vector<double> scaled, expected;
      for (const float v : x) scaled.push_back(value(v) * value(scale));
      for (const Half v : h) expected.push_back(std::abs(value(v)) * value(v) + std::min(value(v), 0.25));
      expect_close(kernel.read<float>(y, n), scaled, 0, 1e-6);
      expect_close(kernel.read<Half>(dh, n / 2 * 2), expected, 0x1p-10, 0x1p-20);
    }
}

struct Summary {
  double sum;
  float largest;
  int at;
};

TEST_P(Cuda, ReductionInOneLaunch) {
  for (const int n : {1, 1000, 5001}) {
    Foreign kernel("cuda_reduction.sm_80", seed());
    const auto x = kernel.uniform<float>(n);
    const int blocks = 5;
    const DeviceAddress partial = kernel.output(blocks * 16), result = kernel.output(16),
                        finished = kernel.input(std::vector<unsigned>{0});
    kernel.run({.grid = {blocks}, .block = {160}}, kernel.input(x), n, partial, finished, result);
    const Summary s = kernel.read<Summary>(result, 1)[0];
    const auto largest = std::max_element(x.begin(), x.end());
    EXPECT_NEAR(s.sum, std::accumulate(x.begin(), x.end(), 0.0), 1e-9);
    EXPECT_EQ(s.largest, *largest);
    EXPECT_EQ(s.at, largest - x.begin());
    EXPECT_EQ(kernel.read<unsigned>(finished, 1)[0], 0u);  // ready for the next launch
  }
}

TEST_P(Cuda, ScanLooksBackOverOtherBlocks) {
  for (const int n : {1, 128, 4000}) {
    Foreign kernel("cuda_scan.sm_80", seed());
    std::vector<int> x = kernel.integers(n, -100, 1000);
    const int blocks = (n + 127) / 128;
    const DeviceAddress out = kernel.output(n * 4), next = kernel.input(std::vector<unsigned>{0}),
                        published = kernel.input(std::vector<int64_t>(static_cast<size_t>(blocks)));
    kernel.run({.grid = {blocks}, .block = {128}}, kernel.input(x), out, n, next, published);
    std::partial_sum(x.begin(), x.end(), x.begin());
    EXPECT_EQ(kernel.read<int>(out, n), x);
  }
}

template <class T>
void check_transposition(uint64_t seed, int rows, int columns) {
  Foreign kernel("cuda_transpose.sm_90a", seed);
  std::vector<T> x(static_cast<size_t>(rows * columns));
  for (T& v : x) v = static_cast<T>(kernel.integers(1, -30000, 30000)[0]);
  const int bytes = sizeof(T);
  const DeviceAddress out = kernel.output(rows * columns * bytes);
  kernel.run({.grid = {(columns + 31) / 32, (rows + 31) / 32}, .block = {32, 8}}, kernel.input(x), out, rows,
             columns, bytes);
  std::vector<T> expected;
  for (int c = 0; c < columns; ++c)
    for (int r = 0; r < rows; ++r) expected.push_back(x[static_cast<size_t>(r * columns + c)]);
  EXPECT_EQ(kernel.read<T>(out, rows * columns), expected);
}

TEST_P(Cuda, TransposesAnyElement) {
  check_transposition<int16_t>(seed(), 33, 70);
  check_transposition<float>(seed(), 64, 32);
  check_transposition<double>(seed(), 5, 61);
}

TEST_P(Cuda, HistogramOfWarpsThatAgree) {
  for (const int bins : {7, 100}) {
    Foreign kernel("cuda_histogram.sm_100a", seed());
    const int n = 3000;
    std::vector<uint8_t> x;
    for (const int v : kernel.integers(n, 0, 255)) x.push_back(static_cast<uint8_t>(v));
    const DeviceAddress counts = kernel.input(std::vector<unsigned>(static_cast<size_t>(bins)));
    kernel.run({.grid = {4}, .block = {96}, .dynamic_shared_bytes = bins * 4}, kernel.input(x), n, counts,
               bins);
    std::vector<unsigned> expected(static_cast<size_t>(bins));
    for (const uint8_t v : x) ++expected[static_cast<size_t>(v % bins)];
    EXPECT_EQ(kernel.read<unsigned>(counts, bins), expected);
  }
}

TEST_P(Cuda, CooperativeGridsWaitForOneAnother) {
  for (const int n : {10, 5000}) {
    Foreign kernel("cuda_cooperative.sm_80", seed());
    const auto x = kernel.uniform<float>(n);
    const DeviceAddress dx = kernel.input(x), sum = kernel.input(std::vector<double>{0});
    kernel.run({.grid = {6}, .block = {64}, .cooperative = true}, dx, n, sum);
    double square_sum = 0;
    for (const float v : x) square_sum += value(v) * value(v);
    std::vector<double> expected;
    for (const float v : x) expected.push_back(value(v) / std::sqrt(square_sum));
    expect_close(kernel.read<float>(dx, n), expected, 1e-5, 0);
  }
}

/// Not under seed 2, which keeps a warp back for which the others spin for 15 seconds.
TEST(CudaTiles, OfFourWarpsCollect) {
  for (const uint64_t seed : {0, 1, 3, 4}) {
    const int rounds = seed % 2 == 0 ? 5 : 1;
    Foreign kernel("cuda_tile_collectives.sm_90a", seed);
    const std::vector<int> x = kernel.integers(512, 0, 5);
    const DeviceAddress out = kernel.output(512 * 4);
    kernel.run({.grid = {2}, .block = {256}}, kernel.input(x), out, rounds);
    std::vector<int> expected;
    for (size_t tile = 0; tile < 4; ++tile) {
      const std::vector<int> of_tile(x.begin() + static_cast<int64_t>(tile) * 128,
                                     x.begin() + static_cast<int64_t>(tile + 1) * 128);
      int sum = 0;
      for (int i = 0; i < rounds; ++i) {
        for (const int v : of_tile) sum += v + i;
        if (std::ranges::any_of(of_tile, [&](int v) { return v == i; })) sum += 1000;
        if (std::ranges::all_of(of_tile, [&](int v) { return v >= i; })) sum += 100000;
        sum += of_tile[static_cast<size_t>(37 * i % 128)];
      }
      expected.insert(expected.end(), 128, sum);
    }
    EXPECT_EQ(kernel.read<int>(out, 512), expected);
  }
}

TEST(CudaLaunch, CooperativeGridsMustFit) {
  Foreign kernel("cuda_cooperative.sm_80", 0, {.num_sms = 2});
  EXPECT_THROW(
      kernel.run({.grid = {1000}, .block = {64}, .cooperative = true}, DeviceAddress{0}, 0, DeviceAddress{0}),
      std::exception);
}

TEST_P(Cuda, ClusterSharesAHistogram) {
  Foreign kernel("cuda_cluster_histogram.sm_90a", seed());
  const int n = 2000, bins_per_cta = 13, bins = 4 * bins_per_cta;
  const std::vector<int> x = kernel.integers(n, 0, bins - 1);
  const DeviceAddress counts = kernel.input(std::vector<int>(bins));
  kernel.run({.grid = {8}, .block = {64}, .dynamic_shared_bytes = bins_per_cta * 4}, kernel.input(x), n,
             counts, bins_per_cta);
  std::vector<int> expected(bins);
  for (const int v : x) ++expected[static_cast<size_t>(v)];
  EXPECT_EQ(kernel.read<int>(counts, bins), expected);
}

struct BFloat16 {
  uint16_t bits = 0;
  BFloat16() = default;
  explicit BFloat16(double x) : bits(static_cast<uint16_t>(arith::encode(arith::kBF16, x))) {}
};
using vgpu::value;
double value(BFloat16 x) { return static_cast<double>(arith::bf16_to_f32(x.bits)); }

TEST_P(Cuda, SoftmaxOfARowPerWarp) {
  for (const int columns : {1, 31, 500}) {
    Foreign kernel("cuda_row_softmax.sm_90a", seed());
    const int rows = 7;
    const auto x = kernel.uniform<BFloat16>(rows * columns, -5, 5);
    const DeviceAddress out = kernel.output(rows * columns * 2);
    kernel.run({.grid = {2}, .block = {32, 4}}, kernel.input(x), out, rows, columns);
    const auto result = kernel.read<BFloat16>(out, rows * columns);
    for (int r = 0; r < rows; ++r) {
      double total = 0;
      for (int c = 0; c < columns; ++c) total += std::exp(value(x[static_cast<size_t>(r * columns + c)]));
      for (int c = 0; c < columns; ++c) {
        const size_t i = static_cast<size_t>(r * columns + c);
        const double expected = std::exp(value(x[i])) / total;
        ASSERT_LE(std::abs(value(result[i]) - expected), 0x1p-7 * expected) << r << ", " << c;
      }
    }
  }
}

TEST_P(Cuda, BulkCopiesOnBarriersOfLibcudacxx) {
  Foreign kernel("cuda_stream_copy.sm_90a", seed());
  const int chunks = 7, n = chunks * 512;
  const auto x = kernel.uniform<float>(n);
  const DeviceAddress out = kernel.output(n * 4);
  kernel.run({.grid = {2}, .block = {96}}, kernel.input(x), out, chunks, 3.0f);
  std::vector<double> expected;
  for (const float v : x) expected.push_back(value(v) * 3);
  expect_close(kernel.read<float>(out, n), expected, 1e-6, 0);
}

}  // namespace
}  // namespace imbrex::vgpu
