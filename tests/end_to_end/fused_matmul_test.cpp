// SPDX-License-Identifier: Apache-2.0
// imbrex::gated_matmul and imbrex::quantised_matmul against float64: all types, factors, sizes that no tile divides, and
// 200 schedules.
#include "imbrex/kernels/fused_matmul.h"

#include <gmock/gmock.h>

#include <array>
#include <cmath>

#include "grouped/fused_tiles.h"
#include "imbrex/core/error.h"
#include "imbrex/kernels/matmul.h"
#include "imbrex/runtime/compare.h"
#include "matmul/matmul_time.h"

namespace imbrex::testing {
namespace {

using ::testing::HasSubstr;

Device virtual_gpu(uint64_t seed = 1) {
  return Device::virtual_gpu(
      {.target = "sm_90a", .num_sms = 6, .seed = seed, .checks = vgpu::CheckSet::all()});
}

/// Operands that keep results of the size of one, and what becomes of them.
struct Problem {
  int64_t m, n, k;
  DataType type, c_type;
  bool is_gated, has_factors;
  Activation activation = Activation::kSilu;
};

DeviceTensor scaled(const Device& device, DataType dtype, const std::vector<int64_t>& shape, uint64_t seed,
                    double factor) {
  HostTensor host = HostTensor::random(float32, shape, seed), out(dtype, shape);
  for (int64_t i = 0; i < host.elements(); ++i) out.set(i, host.get(i) * factor);
  return DeviceTensor::from_host(device, out);
}

double activate(Activation activation, double x) {
  if (activation == Activation::kSilu) return x / (1 + std::exp(-x));
  if (activation == Activation::kRelu) return std::max(x, 0.0);
  return x;
}

void run(const Problem& p, uint64_t seed = 1, std::span<const MatmulChoice> tiles = {}) {
  SCOPED_TRACE(::testing::Message() << p.m << "x" << p.n << "x" << p.k << " " << p.type.name() << " to "
                                    << p.c_type.name() << (p.is_gated ? ", gated" : "") << ", seed " << seed);
  const Device device = virtual_gpu(seed);
  const auto& [m, n, k, type, c_type, is_gated, has_factors, activation] = p;
  const double size = 1 / std::sqrt(std::sqrt(static_cast<double>(k)));
  const DeviceTensor a = scaled(device, type, {m, k}, 10 * seed, size),
                     both = scaled(device, type, {2 * n, k}, 10 * seed + 1, size),
                     b = both.slice({0, 0}, {n, k}), up = both.slice({n, 0}, {n, k}),
                     c = DeviceTensor::empty(device, c_type, {m, n}),
                     of_a = DeviceTensor::random(device, float32, {m}, 10 * seed + 2),
                     of_b = is_gated ? DeviceTensor::random(device, float32, {2, n}, 10 * seed + 3)
                                     : DeviceTensor::random(device, float32, {n}, 10 * seed + 3);
  const bool quantises = c_type == float8_e4m3;
  const int64_t blocks = (n + 127) / 128;
  DeviceTensor wide = DeviceTensor::empty(device, float32, {blocks, m + 3});
  wide.poison();
  DeviceTensor(c).poison();
  FusedMatmulOptions options{.activation = activation};
  if (has_factors) options.scale_a = of_a, options.scale_b = of_b;
  if (quantises) options.scale_c = wide.slice({0, 0}, {blocks, m});
  const LaunchReport report =
      !tiles.empty() ? run_fused_matmul("matmul", a, b, is_gated ? &up : nullptr, c, options, tiles)
      : is_gated     ? gated_matmul(a, b, up, c, options)
                     : quantised_matmul(a, b, c, options);
  ASSERT_TRUE(report.clean()) << report.virtual_report.format();

  const std::vector<double> x = a.to_host().to_doubles(), w = both.to_host().to_doubles(),
                            got = c.to_host().to_doubles(), by_a = of_a.to_host().to_doubles(),
                            by_b = of_b.to_host().to_doubles(), scales = wide.to_host().to_doubles();
  const auto product = [&, k = k, n = n, has_factors = has_factors](int64_t i, int64_t j) {
    double sum = 0;
    for (int64_t l = 0; l < k; ++l) sum += x[i * k + l] * w[j * k + l];
    return has_factors ? sum * by_a[i] * by_b[j] : sum;
  };
  for (int64_t i = 0; i < m; ++i)
    for (int64_t block = 0; block < blocks; ++block) {
      std::vector<double> wanted;
      double largest = 0;
      for (int64_t j = block * 128; j < std::min(n, (block + 1) * 128); ++j) {
        const double gate = activate(activation, product(i, j));
        wanted.push_back(is_gated ? gate * product(i, n + j) : gate);
        largest = std::max(largest, std::abs(wanted.back()));
      }
      // Sums of float8 keep 14 bits; a result of float8 has 3 behind the first, and is rounded to bfloat16 before where it
      // is quantised behind.
      const bool is_behind = quantises && is_gated && tiles.empty() && gates_in_turns(m);
      const double unit = (type == float8_e4m3 ? 2e-3 : 1e-4) + (is_behind ? 1.0 / 512 : 0);
      double scale = 1;
      if (quantises) {
        scale = scales[block * (m + 3) + i];
        ASSERT_NEAR(scale, largest / 448, largest / 448 * unit * 4 + 1e-7) << i << " " << block;
      }
      const double rounding = quantises ? 1.0 / 16 : c_type == bfloat16 ? 1.0 / 256 : 1.0 / 2048;
      for (size_t j = 0; j < wanted.size(); ++j)
        ASSERT_NEAR(got[i * n + block * 128 + static_cast<int64_t>(j)] * scale, wanted[j],
                    std::abs(wanted[j]) * rounding * 1.05 + largest * (unit + (quantises ? 1e-5 : 0)))
            << i << " " << block << " " << j;
    }
}

TEST(FusedMatmul, Gated) {
  run({200, 264, 136, bfloat16, bfloat16, true, false});
  run({1, 8, 8, float16, float16, true, true});
  run({130, 128, 264, float16, float16, true, true, Activation::kRelu});
  run({65, 392, 256, float8_e4m3, bfloat16, true, true});
}

TEST(FusedMatmul, GatedAndQuantised) {
  run({200, 272, 136, bfloat16, float8_e4m3, true, false});
  run({3, 16, 16, float16, float8_e4m3, true, true});
  run({129, 144, 256, float8_e4m3, float8_e4m3, true, true});
}

TEST(FusedMatmul, Quantised) {
  run({200, 272, 136, bfloat16, float8_e4m3, false, false, Activation::kNone});
  run({5, 128, 64, float16, float8_e4m3, false, true, Activation::kRelu});
  run({131, 400, 272, float8_e4m3, float8_e4m3, false, true, Activation::kSilu});
}

/// k that 16 bytes do not divide: operands are copied first, with zeros behind their rows.
TEST(FusedMatmul, AnyK) {
  run({65, 136, 197, float8_e4m3, bfloat16, true, true});
  run({3, 16, 1, bfloat16, float8_e4m3, true, false});
  run({131, 144, 35, float16, float8_e4m3, false, true, Activation::kRelu});
}

TEST(FusedMatmul, EveryTile) {
  const auto each_tile = [](const Problem& p) {
    for (const auto tiles : {fused_tiles, few_row_tiles}) {
      const std::span<const MatmulChoice> all = tiles(p.is_gated, p.c_type == float8_e4m3);
      for (size_t i = 0; i < all.size(); ++i) {
        SCOPED_TRACE(all[i].text());
        run(p, 1, all.subspan(i, 1));
      }
    }
  };
  each_tile({200, 264, 72, bfloat16, bfloat16, true, true});
  each_tile({200, 272, 512, float16, float8_e4m3, true, false});  // k fills some rings
  each_tile({200, 272, 320, bfloat16, float8_e4m3, false, true});
  each_tile({9, 136, 72, bfloat16, bfloat16, true, true});  // fewer blocks of k than CTAs that divide it
}

TEST(FusedMatmul, ConsumersInTurns) {
  const std::span<const MatmulChoice> all = gated_tiles_in_turns();
  for (size_t i = 0; i < all.size(); ++i) {
    SCOPED_TRACE(all[i].text());
    run({1009, 264, 72, bfloat16, bfloat16, true, true}, 1, all.subspan(i, 1));
    run({600, 200, 64 * all[i].stages, float16, float16, true, false}, 1, all.subspan(i, 1));
    run({3, 8, 8, bfloat16, bfloat16, true, true}, 1, all.subspan(i, 1));
    run({333, 264, 197, float8_e4m3, float16, true, true}, 1, all.subspan(i, 1));
  }
  // Each of six multiprocessors has some tiles: calls as users make them, whose result may be quantised behind.
  run({1030, 272, 72, float16, bfloat16, true, true});
  run({1030, 272, 72, bfloat16, float8_e4m3, true, true});
}

TEST(FusedMatmul, TwoHundredSchedulesOfConsumersInTurns) {
  const std::span<const MatmulChoice> all = gated_tiles_in_turns();
  for (uint64_t seed = 1; seed <= 200; ++seed)
    run({360, 200, 72, bfloat16, bfloat16, true, false}, seed, all.subspan(seed % all.size(), 1));
}

TEST(FusedMatmul, QuantisedByASecondLaunch) {
  for (const Problem& p : {Problem{131, 272, 1000, bfloat16, float8_e4m3, false, true, Activation::kSilu},
                           Problem{9, 144, 264, float16, float8_e4m3, false, false, Activation::kNone},
                           Problem{1, 16, 8, bfloat16, float8_e4m3, false, true, Activation::kNone},
                           Problem{40, 400, 1040, float8_e4m3, float8_e4m3, false, true, Activation::kRelu},
                           Problem{17, 144, 328, bfloat16, float8_e4m3, true, true}})
    for (const MatmulChoice& candidate : matmul_candidates()) {
      // One in four of them, with one part and with as many as may be.
      if (candidate.method != MatmulChoice::Method::kParts ||
          (candidate.block_m + candidate.block_n) % 32 != 0)
        continue;
      for (const int parts : {1, p.k > 500 ? 5 : 2}) {
        MatmulChoice choice = candidate;
        choice.parts = parts;
        choice.ctas = 6;
        if (cluster_ctas(choice) > 4) continue;  // of six multiprocessors
        SCOPED_TRACE(choice.text());
        run(p, 1, {&choice, 1});
      }
    }
  const MatmulChoice chosen = choose_in_parts(70, 144, 1000, 6);
  EXPECT_THAT(chosen.text(), HasSubstr("hopper_matmul_parts"));
  for (uint64_t seed = 1; seed <= 100; ++seed)
    run({70, 144, 1000, bfloat16, float8_e4m3, false, true, Activation::kNone}, seed, {&chosen, 1});
}

TEST(FusedMatmul, FewRowsHaveTheTileThatFillsAWave) {
  const auto tile = [](bool is_gated, bool quantises, int64_t m, int64_t n) -> std::string {
    const std::span<const MatmulChoice> tiles = tile_of_few_rows(is_gated, quantises, m, n, 132);
    return tiles.empty() ? "" : tiles.front().text();
  };
  EXPECT_THAT(tile(false, true, 16, 4096), HasSubstr("block_m=16 block_n=64 "));
  EXPECT_THAT(tile(false, true, 16, 14336), HasSubstr("block_m=16 block_n=128 "));
  EXPECT_THAT(tile(false, true, 32, 8192), HasSubstr("block_m=32 block_n=64 "));
  EXPECT_THAT(tile(false, true, 64, 4096),
              HasSubstr("block_m=64 block_n=64 block_k=64 stages=12 cluster_n=2"));
  EXPECT_THAT(tile(false, true, 64, 14336), HasSubstr("cluster_n=4"));
  EXPECT_THAT(tile(false, true, 128, 4096), HasSubstr("split_k=2"));
  EXPECT_THAT(tile(false, true, 128, 8192), HasSubstr("block_m=128 block_n=64 "));
  EXPECT_THAT(tile(false, true, 128, 14336), HasSubstr("hopper_matmul_h8 block_m=128 block_n=128 "));
  EXPECT_EQ(tile(false, true, 128, 16384), "");  // more clusters of four than run at once
  EXPECT_THAT(tile(true, false, 128, 4096),
              HasSubstr("block_m=128 block_n=64 block_k=64 stages=5 cluster_n=1 split_k=2"));
  EXPECT_THAT(tile(true, true, 64, 14336), HasSubstr("cluster_n=2"));
  for (const bool is_gated : {false, true}) EXPECT_EQ(tile(is_gated, true, 129, 4096), "");
}

TEST(FusedMatmul, FewColumnsTakeTwoLaunches) {
  constexpr int kH200 = 132;
  EXPECT_TRUE(takes_two_launches(false, 256, 4096, 4096, kH200));
  EXPECT_TRUE(takes_two_launches(false, 128, 8192, 8192, kH200));
  EXPECT_TRUE(takes_two_launches(true, 128, 4096, 14336, kH200));
  EXPECT_FALSE(takes_two_launches(true, 128, 4096, 4096, kH200));
  EXPECT_FALSE(takes_two_launches(false, 64, 4096, 4096, kH200));
  EXPECT_FALSE(takes_two_launches(false, 128, 4096, 512, kH200));
  EXPECT_FALSE(takes_two_launches(false, 128, 14336, 8192, kH200));
  EXPECT_THAT(choose_in_parts(128, 4096, 14336, kH200).text(), HasSubstr("block_n=160 "));
  // The virtual GPU's six multiprocessors: calls as users make them.
  run({73, 144, 4096, bfloat16, float8_e4m3, false, true, Activation::kNone});
  run({70, 128, 8192, bfloat16, float8_e4m3, true, true});
  run({66, 192, 8200, float16, float8_e4m3, true, false});
}

TEST(FusedMatmul, ScalesOfWholeRows) {
  for (const auto& [type, is_gated] : {std::pair{bfloat16, false}, {float16, true}, {float8_e4m3, false}}) {
    constexpr int64_t kM = 70, kN = 272, kK = 264;
    const Device device = virtual_gpu();
    const double size = 1 / std::sqrt(std::sqrt(static_cast<double>(kK)));
    const DeviceTensor a = scaled(device, type, {kM, kK}, 1, size),
                       b = scaled(device, type, {kN, kK}, 2, size),
                       up = scaled(device, type, {kN, kK}, 3, size),
                       of_a = DeviceTensor::random(device, float32, {kM}, 4),
                       c = DeviceTensor::empty(device, float8_e4m3, {kM, kN}),
                       scale = DeviceTensor::empty(device, float32, {kM});
    DeviceTensor(c).poison(), DeviceTensor(scale).poison();
    const FusedMatmulOptions options{.activation = Activation::kSilu, .scale_a = of_a, .scale_c = scale};
    const LaunchReport report =
        is_gated ? gated_matmul(a, b, up, c, options) : quantised_matmul(a, b, c, options);
    ASSERT_TRUE(report.clean()) << report.virtual_report.format();
    const std::vector<double> x = a.to_host().to_doubles(), y = b.to_host().to_doubles(),
                              z = up.to_host().to_doubles(), by_a = of_a.to_host().to_doubles(),
                              got = c.to_host().to_doubles(), scales = scale.to_host().to_doubles();
    for (int64_t i = 0; i < kM; ++i) {
      std::vector<double> wanted;
      double largest = 0;
      for (int64_t j = 0; j < kN; ++j) {
        double of_b = 0, of_up = 0;
        for (int64_t l = 0; l < kK; ++l)
          of_b += x[i * kK + l] * y[j * kK + l], of_up += x[i * kK + l] * z[j * kK + l];
        wanted.push_back(activate(Activation::kSilu, of_b * by_a[i]) * (is_gated ? of_up * by_a[i] : 1));
        largest = std::max(largest, std::abs(wanted.back()));
      }
      const double unit = type == float8_e4m3 ? 2e-3 : 1e-4;
      ASSERT_NEAR(scales[i], largest / 448, largest / 448 * (1.0 / 200 + unit * 4)) << i;
      for (int64_t j = 0; j < kN; ++j)
        ASSERT_NEAR(got[i * kN + j] * scales[i], wanted[j],
                    std::abs(wanted[j]) * (1.0 / 16 + 1.0 / 200) + largest * (unit + 1e-5))
            << i << " " << j;
    }
  }
}

TEST(FusedMatmul, RowsOfZerosHaveTheScaleOne) {
  const Device device = virtual_gpu();
  const DeviceTensor a = scaled(device, bfloat16, {4, 64}, 1, 0),
                     b = DeviceTensor::random(device, bfloat16, {16, 64}, 1),
                     c = DeviceTensor::empty(device, float8_e4m3, {4, 16}),
                     scale = DeviceTensor::empty(device, float32, {1, 4});
  EXPECT_TRUE(quantised_matmul(a, b, c, {.scale_c = scale}).clean());
  EXPECT_EQ(scale.to_host().to_doubles(), std::vector<double>(4, 1.0));
  EXPECT_EQ(c.to_host().to_doubles(), std::vector<double>(64, 0.0));
}

TEST(FusedMatmul, TwoHundredSchedules) {
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    run({70, 144, 72, bfloat16, float8_e4m3, true, true}, seed);
    run({20, 16, 136, float16, float16, true, false}, seed + 100);
  }
}

TEST(FusedMatmul, TwoHundredSchedulesOfScalesOfBlocks) {
  constexpr int64_t kM = 70, kN = 136, kK = 272, kBlocks = 3;
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(seed);
    const Device device = virtual_gpu(seed);
    const DeviceTensor a = scaled(device, float8_e4m3, {kM, kK}, seed, 1),
                       b = scaled(device, float8_e4m3, {kN, kK}, seed + 1000, 1),
                       of_a = DeviceTensor::random(device, float32, {kBlocks, kM}, seed + 2000),
                       of_b = DeviceTensor::random(device, float32, {2, kBlocks}, seed + 3000),
                       c = DeviceTensor::empty(device, float16, {kM, kN});
    DeviceTensor(c).poison();
    const LaunchReport report = matmul(a, b, c, {.scale_a = of_a, .scale_b = of_b});
    ASSERT_TRUE(report.clean()) << report.virtual_report.format();
    const std::vector<double> x = a.to_host().to_doubles(), w = b.to_host().to_doubles(),
                              by_a = of_a.to_host().to_doubles(), by_b = of_b.to_host().to_doubles(),
                              got = c.to_host().to_doubles();
    for (size_t at = seed % 7; at < got.size(); at += 7) {
      const auto i = static_cast<int64_t>(at) / kN, j = static_cast<int64_t>(at) % kN;
      double sum = 0, size = 0;
      for (int64_t l = 0; l < kK; ++l) {
        const double term =
            x[i * kK + l] * w[j * kK + l] * by_a[l / 128 * kM + i] * by_b[j / 128 * kBlocks + l / 128];
        sum += term, size += std::abs(term);
      }
      ASSERT_NEAR(got[at], sum, size * 1e-3 + std::abs(sum) / 1024) << i << " " << j;
    }
  }
}

TEST(FusedMatmul, RefusesWhatDoesNotFit) {
  const Device device = virtual_gpu();
  const auto tensor = [&](DataType dtype, std::vector<int64_t> shape) {
    return DeviceTensor::empty(device, dtype, std::move(shape));
  };
  const DeviceTensor a = tensor(bfloat16, {64, 64}), b = tensor(bfloat16, {32, 64}),
                     c = tensor(bfloat16, {64, 32}), c8 = tensor(float8_e4m3, {64, 32}),
                     scale = tensor(float32, {1, 64});
  const auto refusal = [&](const auto& call) -> std::string {
    try {
      call();
    } catch (const LaunchError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(refusal([&] { gated_matmul(a, b, b, c); }), "");
  EXPECT_THAT(refusal([&] {
                gated_matmul(a, b, tensor(bfloat16, {32, 32}), c);
              }),
              HasSubstr("gated_matmul: up is [32, 32], not [32, 64]"));
  EXPECT_THAT(refusal([&] {
                gated_matmul(a, b, b, tensor(float32, {64, 32}));
              }),
              HasSubstr("c is of float32"));
  const DeviceTensor square = tensor(bfloat16, {64, 64});
  EXPECT_THAT(refusal([&] {
                gated_matmul(a, square, tensor(bfloat16, {64, 64}), square);
              }),
              HasSubstr("c and b share memory"));
  EXPECT_THAT(refusal([&] {
                gated_matmul(tensor(bfloat16, {0, 64}), b, b, tensor(bfloat16, {0, 32}));
              }),
              HasSubstr("a has an extent of 0"));
  EXPECT_THAT(refusal([&] {
                gated_matmul(a, b, tensor(float16, {32, 64}), c);
              }),
              HasSubstr("a and up are not of one type"));
  EXPECT_THAT(refusal([&] { gated_matmul(a, b, b, c8); }), HasSubstr("scale_c is null"));
  EXPECT_THAT(refusal([&] { gated_matmul(a, b, b, c, {.scale_c = scale}); }),
              HasSubstr("c is not quantised"));
  EXPECT_THAT(refusal([&] { quantised_matmul(a, b, c, {}); }), HasSubstr("scale_c is null"));
  EXPECT_THAT(refusal([&] {
                quantised_matmul(a, b, c8, {.scale_c = tensor(float32, {2, 64})});
              }),
              HasSubstr("scale_c is [2, 64], not [1, 64]"));
  EXPECT_THAT(refusal([&] { quantised_matmul(a, b, c8, {.scale_c = tensor(float32, {63})}); }),
              HasSubstr("scale_c is [63], not [64]"));
  EXPECT_THAT(
      refusal([&] { quantised_matmul(a, b, c8, {.scale_b = tensor(float32, {31}), .scale_c = scale}); }),
      HasSubstr("scale_b is neither one float32 nor dense float32 [32]"));
}

}  // namespace
}  // namespace imbrex::testing
