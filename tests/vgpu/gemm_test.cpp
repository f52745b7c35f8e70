// SPDX-License-Identifier: Apache-2.0
// Whole kernels on the virtual Blackwell, against a plain loop over exact sums.
#include <fmt/format.h>

#include "../param_name.h"
#include "core/float_formats.h"
#include "gemm_ptx.h"
#include "vgpu_testing.h"

namespace imbrex::vgpu {
void PrintTo(TensorMath math, std::ostream* out) { *out << (math == TensorMath::kFast ? "fast" : "exact"); }
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

  /// The whole result in row order. Exact in f32, whatever the order of additions.
  std::vector<float> expected() const {
    std::vector<float> fa(a.size()), ft(b.size()), c(static_cast<size_t>(m * n), 0.0f);
    for (size_t i = 0; i < a.size(); ++i) fa[i] = arith::f16_to_f32(a[i]);
    for (int64_t j = 0; j < n; ++j)
      for (int64_t x = 0; x < k; ++x)
        ft[static_cast<size_t>(x * n + j)] = arith::f16_to_f32(b[static_cast<size_t>(j * k + x)]);
    for (int64_t i = 0; i < m; ++i)
      for (int64_t x = 0; x < k; ++x)
        for (int64_t j = 0; j < n; ++j)
          c[static_cast<size_t>(i * n + j)] +=
              fa[static_cast<size_t>(i * k + x)] * ft[static_cast<size_t>(x * n + j)];
    return c;
  }
};

void expect_equal(const Problem& p, const std::vector<float>& c) {
  const std::vector<float> expected = p.expected();
  for (int64_t i = 0; i < p.m; ++i)
    for (int64_t j = 0; j < p.n; ++j)
      ASSERT_EQ(c[static_cast<size_t>(i * p.n + j)], expected[static_cast<size_t>(i * p.n + j)])
          << i << ", " << j;
}

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

class CpAsyncGemmTiles : public testing::TestWithParam<std::tuple<int, int, TensorMath, uint64_t>> {};

TEST_P(CpAsyncGemmTiles, EqualsThePlainLoop) {
  const auto [n, k, math, seed] = GetParam();
  const GemmTile tile{n, k};
  const Problem p{256, 2 * n, 128};
  VirtualGpu gpu({.target = "sm_100a", .seed = seed, .tensor_math = math});
  std::vector<float> c;
  const Report report = run_gemm(gpu, cp_async_gemm(tile), p, tile, c);
  ASSERT_TRUE(report.clean()) << report.format();
  expect_equal(p, c);
  EXPECT_EQ(report.statistics.tensor_flops, 2 * p.m * p.n * p.k);
  EXPECT_EQ(report.statistics.cp_async_bytes, (p.m * 2 + p.n * 2) * p.k * 2);
}

INSTANTIATE_TEST_SUITE_P(Each, CpAsyncGemmTiles,
                         testing::Combine(testing::Values(64, 128, 256), testing::Values(16, 32, 64),
                                          testing::Values(TensorMath::kExact, TensorMath::kFast),
                                          testing::Values(0, 7)),
                         ParamName());

TEST(CpAsyncGemm, WithoutTheWaitTheTilesAreReadTooEarly) {
  const GemmTile tile{128, 64};
  const Problem p{128, 128, 128};
  for (uint64_t seed : {0, 1, 2}) {
    VirtualGpu gpu({.target = "sm_100a", .seed = seed});
    std::vector<float> c;
    const Report report = run_gemm(gpu, cp_async_gemm(tile, false), p, tile, c);
    ASSERT_FALSE(report.findings.empty());
  }
}

TEST(CpAsyncGemm, WithoutTheProxyFenceTheTensorCoreMayNotSeeTheTiles) {
  const GemmTile tile{128, 64};
  const Problem p{128, 128, 128};
  VirtualGpu gpu({.target = "sm_100a"});
  std::vector<float> c;
  const Report report = run_gemm(gpu, cp_async_gemm(tile, true, false), p, tile, c);
  ASSERT_FALSE(report.findings.empty());
  EXPECT_EQ(report.findings[0].kind, FindingKind::kMissingProxyFence) << report.format();
}

// ---- TMA, pairs, stolen tiles
// -----------------------------------------------------------------------------------

struct TmaCase {
  GemmTile tile;
  int stages;
  bool pair, steal;
};

Report run_tma_gemm(VirtualGpu& gpu, const TmaCase& s, const Problem& p, std::vector<float>& c) {
  Function gemm = gpu.load_module(tma_gemm(s.tile, s.stages, s.pair, s.steal), "gemm.ptx").function("gemm");
  DeviceAddress da = to_device(gpu, p.a), db = to_device(gpu, p.b), dc = gpu.allocate(p.m * p.n * 4);
  const auto map = [&](DeviceAddress address, int64_t rows, int64_t box_rows) {
    const uint64_t dims[] = {static_cast<uint64_t>(p.k), static_cast<uint64_t>(rows)};
    const uint64_t strides[] = {static_cast<uint64_t>(p.k) * 2};
    const uint32_t box[] = {64, static_cast<uint32_t>(box_rows)};
    return encode_tensor_map({.type = TensorMapType::kFloat16,
                              .address = address,
                              .dims = dims,
                              .strides_bytes = strides,
                              .box = box,
                              .swizzle = TensorMapSwizzle::k128B});
  };
  TensorMap a = map(da, p.m, 128), b = map(db, p.n, s.pair ? s.tile.n / 2 : s.tile.n);
  auto n = static_cast<uint32_t>(p.n), k = static_cast<uint32_t>(p.k);
  void* arguments[] = {&a, &b, &dc, &n, &k};
  const Report report =
      gpu.launch(gemm, {.grid = {p.m / 128, p.n / s.tile.n}, .block = {128}, .arguments = arguments});
  c = from_device<float>(gpu, dc, static_cast<size_t>(p.m * p.n));
  return report;
}

class TmaGemm : public testing::TestWithParam<std::tuple<int, bool, bool, uint64_t>> {};

TEST_P(TmaGemm, EqualsThePlainLoop) {
  const auto [n, pair, steal, seed] = GetParam();
  const TmaCase s{{n, 64}, 3, pair, steal};
  const Problem p{512, 2 * n, 320};
  // Few SMs, so that most of the grid is left to be stolen.
  VirtualGpu gpu({.target = "sm_100a", .num_sms = 2, .seed = seed, .tensor_math = TensorMath::kFast});
  std::vector<float> c;
  const Report report = run_tma_gemm(gpu, s, p, c);
  ASSERT_TRUE(report.clean()) << report.format();
  expect_equal(p, c);
  EXPECT_EQ(report.statistics.tensor_flops, 2 * p.m * p.n * p.k);
  if (steal) {
    EXPECT_LT(report.statistics.ctas, p.m / 128 * (p.n / n)) << "nobody stole";
  }
}

std::string tma_gemm_name(const testing::TestParamInfo<TmaGemm::ParamType>& info) {
  const auto [n, pair, steal, seed] = info.param;
  return fmt::format("{}{}{}_seed_{}", n, pair ? "_pair" : "", steal ? "_steal" : "", seed);
}

INSTANTIATE_TEST_SUITE_P(Kernels, TmaGemm,
                         testing::Combine(testing::Values(64, 256), testing::Bool(), testing::Bool(),
                                          testing::Values(0, 1, 5)),
                         tma_gemm_name);

}  // namespace
}  // namespace imbrex::vgpu
