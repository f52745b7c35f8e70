// SPDX-License-Identifier: Apache-2.0
// Whole kernels on the virtual Blackwell, against a plain loop in float64.
#include <cmath>

#include "core/float_formats.h"
#include "gemm_ptx.h"
#include "vgpu_testing.h"

namespace imbrex::vgpu {
namespace {

// Values of few significant bits whose sums stay exact, so that one wrong element shows.
std::vector<uint16_t> small_halves(int64_t count, uint32_t seed) {
  std::vector<uint16_t> values(static_cast<size_t>(count));
  for (uint16_t& v : values) {
    seed = seed * 1664525u + 1013904223u;
    v = arith::f32_to_f16(static_cast<float>(static_cast<int>(seed >> 24) % 17 - 8) * 0.125f);
  }
  return values;
}

struct Problem {
  int64_t m, n, k;
  std::vector<uint16_t> a = small_halves(m * k, 1), b = small_halves(n * k, 2);

  double expected(int64_t i, int64_t j) const {
    double sum = 0;
    for (int64_t x = 0; x < k; ++x)
      sum += double{arith::f16_to_f32(a[static_cast<size_t>(i * k + x)])} *
             double{arith::f16_to_f32(b[static_cast<size_t>(j * k + x)])};
    return sum;
  }
};

Report run_gemm(VirtualGpu& gpu, const std::string& ptx, const Problem& p, const GemmTile& tile,
                std::vector<float>& c) {
  Function gemm = gpu.load_module(ptx, "gemm.ptx").function("gemm");
  DeviceAddress da = to_device(gpu, p.a), db = to_device(gpu, p.b), dc = gpu.allocate(p.m * p.n * 4);
  auto n = static_cast<uint32_t>(p.n), k = static_cast<uint32_t>(p.k);
  void* arguments[] = {&da, &db, &dc, &n, &k};
  const Report report =
      gpu.launch(gemm, {.grid = {p.m / 128, p.n / tile.n}, .block = {128}, .arguments = arguments});
  c = from_device<float>(gpu, dc, static_cast<size_t>(p.m * p.n));
  return report;
}

class CpAsyncGemm : public testing::TestWithParam<std::tuple<int, int, TensorMath, uint64_t>> {};

TEST_P(CpAsyncGemm, EqualsThePlainLoop) {
  const auto [n, k, math, seed] = GetParam();
  const GemmTile tile{n, k};
  const Problem p{256, 2 * n, 128};
  VirtualGpu gpu({.target = "sm_100a", .seed = seed, .tensor_math = math});
  std::vector<float> c;
  const Report report = run_gemm(gpu, cp_async_gemm(tile), p, tile, c);
  ASSERT_TRUE(report.clean()) << report.format();
  for (int64_t i = 0; i < p.m; ++i)
    for (int64_t j = 0; j < p.n; ++j)
      ASSERT_EQ(c[static_cast<size_t>(i * p.n + j)], p.expected(i, j)) << i << ", " << j;
  EXPECT_EQ(report.statistics.tensor_flops, 2 * p.m * p.n * p.k);
  EXPECT_EQ(report.statistics.cp_async_bytes, (p.m * 2 + p.n * 2) * p.k * 2);
}

INSTANTIATE_TEST_SUITE_P(Tiles, CpAsyncGemm,
                         testing::Combine(testing::Values(64, 128, 256), testing::Values(16, 32, 64),
                                          testing::Values(TensorMath::kExact, TensorMath::kFast),
                                          testing::Values(0, 7)));

}  // namespace
}  // namespace imbrex::vgpu
