// SPDX-License-Identifier: Apache-2.0
// The figures of the tiling article, each from our own tools (docs/tiling.md states them, docs/notes/tiling-article.md compares).
#include <gtest/gtest.h>

#include "imbrex/core/error.h"
#include "imbrex/inspect/banks.h"
#include "imbrex/inspect/tiling.h"

namespace imbrex {
namespace {

/// The article rounds the A100: 312 TFLOPS and 2 TB/s.
GpuModel article_a100() {
  GpuModel gpu = gpu_model("a100");
  gpu.hbm_bytes_per_second = 2e12;
  return gpu;
}

TEST(Article, RidgeOfTheA100) {
  const Roofline r = roofline(article_a100(), float16, 1e12, {.hbm = 1e9});
  EXPECT_NEAR(r.peak, 312e12, 0.2e12);
  EXPECT_NEAR(r.levels[0].ridge, 156, 0.1);
}

TEST(Article, IntensityOfA128By128Tile) { EXPECT_DOUBLE_EQ(MatmulTile{}.intensity(), 64); }

TEST(Article, SharedMemoryOfTheTwoTiles) {
  EXPECT_EQ(MatmulTile{}.shared_bytes(), 32768);
  const MatmulTile large{.block_m = 256, .block_n = 256, .block_k = 64, .stages = 3};
  EXPECT_EQ(large.shared_bytes(), 196608);
  EXPECT_FALSE(occupancy("sm_80", large.resources()).is_feasible());  // 164 KB per SM
  EXPECT_TRUE(occupancy("sm_90a", {.threads = 512, .shared_bytes = large.shared_bytes()}).is_feasible());
}

// The article divides 164 KB by 32 KB and finds 5 CTAs. Every CTA also takes a kilobyte of the system's: 4.
TEST(Article, FourCtasOfThe32KilobyteTileNotFive) {
  EXPECT_EQ(
      occupancy("sm_80", {.threads = 128, .registers_per_thread = 32, .shared_bytes = 32768}).ctas_per_sm, 4);
}

// The calculator shows 48 registers, for 1024 threads per CTA.
TEST(Article, RegistersOfTheCalculator) {
  EXPECT_EQ((MatmulTile{.threads = 1024}.registers_per_thread()), 48);
  // With the 256 threads that mma.sync kernels of this tile have it is 96.
  EXPECT_EQ((MatmulTile{.threads = 256}.registers_per_thread()), 96);
}

// Its calculator also shows an occupancy of 100 %: 2 CTAs of 1024 threads take 2 * 1024 * 48 = 98304
// registers of 65536.
TEST(Article, TheCalculatorsFullOccupancyDoesNotFitTheRegisterFile) {
  const Occupancy o = occupancy("sm_80", MatmulTile{.threads = 1024}.resources());
  EXPECT_EQ(o.ctas_per_sm, 1);
  EXPECT_DOUBLE_EQ(o.fraction, 0.5);
}

TEST(Article, BankConflictTable) {
  auto degree = [](int64_t stride) {
    WarpAccess access;
    for (int lane = 0; lane < 32; ++lane) access.addresses.push_back(lane * stride * 4);
    return bank_report(access).degree;
  };
  EXPECT_EQ(degree(1), 1);
  EXPECT_EQ(degree(2), 2);
  EXPECT_EQ(degree(32), 32);
  // The article's swizzle, bank = (row ^ col) mod 32, on a column of 32 rows of 32 words.
  WarpAccess column;
  for (int row = 0; row < 32; ++row) column.addresses.push_back((row * 32 + (row ^ 5)) * 4);
  EXPECT_EQ(bank_report(column).degree, 1);
}

// "2K / element size" is the limit of its formula only when M and N are much larger than K; and it counts
// every matrix once, which is what a perfect cache would do. Without reuse it is half an operation a byte, as
// its step 1 says.
TEST(Article, NaiveIntensity) {
  const MatmulShape shape;
  EXPECT_DOUBLE_EQ(shape.flops() / static_cast<double>(shape.m * shape.n * 2 * shape.k * 2), 0.5);
  const Traffic best = matmul_traffic(shape, {});
  EXPECT_NEAR(shape.flops() / best.hbm, 1365.3, 0.1);
  const MatmulShape wide{.m = 1 << 20, .n = 1 << 20, .k = 64};
  const Traffic once = matmul_traffic(wide, {});
  // A and B are a small part of C's bytes then: 2 K / element size of C.
  EXPECT_NEAR(wide.flops() / once.hbm, 2.0 * 64 / 2, 0.1);
}

TEST(Article, TileTrafficIsTheFormulas) {
  const MatmulShape shape;
  const MatmulTile tile{.block_m = 128, .block_n = 128, .block_k = 32, .result = float16};
  const Traffic traffic = matmul_traffic(shape, tile);
  const double result = 4096.0 * 4096 * 2;
  EXPECT_DOUBLE_EQ(shape.flops() / (traffic.l2 - result), 64);
  // Multicast to pairs along n halves A's share.
  MatmulTile pair = tile;
  pair.cluster_n = 2;
  EXPECT_DOUBLE_EQ((matmul_traffic(shape, pair).l2 - result) / (traffic.l2 - result), 0.75);
}

// "About 10 times faster and 1000 times smaller at each level."
TEST(Article, StepsBetweenTheLevels) {
  const GpuModel a100 = gpu_model("a100");
  const double shared = 164.0 * 1024 * a100.sms, registers = 256.0 * 1024 * a100.sms;
  EXPECT_NEAR(a100.l2_bytes_per_second / a100.hbm_bytes_per_second, 2.5, 0.1);
  EXPECT_NEAR(a100.shared_bytes_per_second() / a100.l2_bytes_per_second, 3.9, 0.1);
  EXPECT_NEAR(a100.register_bytes_per_second() / a100.shared_bytes_per_second(), 12, 0.1);
  EXPECT_NEAR(static_cast<double>(a100.hbm_bytes) / static_cast<double>(a100.l2_bytes), 1907, 10);
  EXPECT_NEAR(static_cast<double>(a100.l2_bytes) / shared, 2.3, 0.1);
  EXPECT_GT(registers, shared);
}

TEST(Article, LevelsOfThreeChips) {
  struct Row {
    const char* gpu;
    double hbm_gb, hbm, l2_mib, l2, latency_hbm, latency_l2, latency_shared;
  };
  for (const Row& row :
       {Row{"a100", 80, 2.0e12, 40, 5e12, 400, 200, 30}, Row{"h200", 141, 4.8e12, 60, 9.4e12, 600, 275, 30},
        Row{"b200", 180, 7.7e12, 126, 18e12, 800, 300, 30}}) {
    const GpuModel gpu = gpu_model(row.gpu);
    EXPECT_NEAR(static_cast<double>(gpu.hbm_bytes), row.hbm_gb * 1e9, 1e9) << row.gpu;
    EXPECT_NEAR(gpu.hbm_bytes_per_second, row.hbm, 0.05e12) << row.gpu;
    EXPECT_DOUBLE_EQ(static_cast<double>(gpu.l2_bytes), row.l2_mib * 1048576) << row.gpu;
    EXPECT_DOUBLE_EQ(gpu.l2_bytes_per_second, row.l2) << row.gpu;
    EXPECT_EQ(gpu.hbm_latency_cycles, row.latency_hbm) << row.gpu;
    EXPECT_EQ(gpu.l2_latency_cycles, row.latency_l2) << row.gpu;
    EXPECT_EQ(gpu.shared_latency_cycles, row.latency_shared) << row.gpu;
    EXPECT_EQ(gpu.shared_bytes_per_clock, 128) << row.gpu;
  }
}

// Bandwidth times latency: what an SM must have in flight for HBM to deliver at its full rate.
TEST(Article, BytesInFlight) {
  auto kilobytes = [](const char* name) {
    const GpuModel gpu = gpu_model(name);
    return gpu.hbm_bytes_per_second / (gpu.sms * gpu.clock_ghz * 1e9) * gpu.hbm_latency_cycles / 1e3;
  };
  EXPECT_NEAR(kilobytes("a100"), 5.4, 0.05);
  EXPECT_NEAR(kilobytes("h200"), 11.9, 0.05);
  EXPECT_NEAR(kilobytes("b200"), 22.4, 0.05);
}

// How long a stage keeps the tensor cores of an H200's SM busy.
TEST(Article, ClocksOfAStage) {
  const GpuModel gpu = gpu_model("h200");
  const double flop_per_clock = gpu.peak(float16) / (gpu.sms * gpu.clock_ghz * 1e9);
  EXPECT_NEAR(2 * 128 * 256 * 64 / flop_per_clock, 1024, 1e-6);
  EXPECT_NEAR(2 * 128 * 128 * 64 / flop_per_clock, 512, 1e-6);
}

// "30 % of the peak" with tiles and no tensor cores.
TEST(Article, CudaCoresAreSixPercentOfTheTensorCores) {
  const GpuModel a100 = gpu_model("a100");
  EXPECT_NEAR(a100.peak(float32) / a100.peak(float16), 0.0625, 1e-3);
}

TEST(Article, BadInput) {
  EXPECT_THROW((MatmulTile{.block_m = -128}.intensity()), LaunchError);
  EXPECT_THROW(matmul_traffic({.m = 0}, {}), LaunchError);
  EXPECT_THROW(gpu_model("a101"), LaunchError);
  EXPECT_THROW(roofline(gpu_model("a100"), float8_e4m3, 1, {.hbm = 1}), LaunchError);
  EXPECT_THROW(roofline(gpu_model("a100"), float16, 1, {.hbm = -1}), LaunchError);
}

}  // namespace
}  // namespace imbrex
