// SPDX-License-Identifier: Apache-2.0
// Products fused with their collectives, on a virtual node: against float64, for sizes that ranks do not divide, under many
// schedules, and what they say of calls that do not fit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <optional>
#include <vector>

#include "../skip.h"
#include "gpu_counts.h"
#include "imbrex/core/error.h"
#include "imbrex/parallel.h"
#include "imbrex/runtime.h"
#include "ranks/fused_products.h"

namespace imbrex::parallel {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

vgpu::Options options(uint64_t seed) {
  vgpu::Options options{.target = "sm_90a", .num_sms = 3, .seed = seed};
  options.memory_bytes = int64_t{1} << 26;
  return options;
}

struct Sizes {
  int64_t m, n, k;  // k: of each rank
};

/// Rows of a matrix, as a dense one; one row of zeros where there are none.
HostTensor rows_of(const HostTensor& matrix, const RowsOfRank& rows) {
  const int64_t columns = matrix.shape()[1];
  HostTensor part(matrix.dtype(), {rows.count, columns});
  for (int64_t i = 0; i < rows.count * columns; ++i) part.set(i, matrix.get(rows.first * columns + i));
  return part;
}

/// a b^T in float64, added to `sum`.
void add_product(std::vector<double>& sum, const HostTensor& a, const HostTensor& b) {
  const int64_t m = a.shape()[0], n = b.shape()[0], k = a.shape()[1];
  const std::vector<double> x = a.to_doubles(), w = b.to_doubles();
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j)
      for (int64_t l = 0; l < k; ++l)
        sum[static_cast<size_t>(i * n + j)] +=
            x[static_cast<size_t>(i * k + l)] * w[static_cast<size_t>(j * k + l)];
}

/// The sums, or with `steps` relu(sum + bias), compared with what a rank got. `roundings`: of results that were rounded on
/// the way, each as large as some sqrt(k).
void expect_close(const HostTensor& got, const std::vector<double>& sums, int64_t first_row,
                  const HostTensor& bias, double roundings, int64_t k, bool steps = true) {
  const int64_t n = got.shape()[1];
  const double unit = got.dtype() == float16 ? 1.0 / 1024 : 1.0 / 128;
  // Tensor cores cut each of k / 16 partial sums, which are about as large as sqrt(k), to 24 bits.
  const double cut = std::ceil(static_cast<double>(k) / 16) * std::sqrt(static_cast<double>(k)) * 0x1p-23;
  for (int64_t i = 0; i < got.elements(); ++i) {
    const double sum = sums[static_cast<size_t>(first_row * n + i)];
    const double wanted = steps ? std::max(sum + bias.get(i % n), 0.0) : sum;
    ASSERT_NEAR(got.get(i), wanted,
                cut + unit * (std::abs(wanted) + roundings * 2 * std::sqrt(static_cast<double>(k)) + 0.1))
        << "row " << i / n << " of the rank's, column " << i % n;
  }
}

/// On the virtual node; says what was found there.
void expect_clean(const LaunchReport& report) {
  EXPECT_TRUE(report.clean()) << report.virtual_report.format();
}

/// Calls of different sizes one after the other, with the same memory and signals.
void check_gathered(const Ranks& where, const std::vector<Sizes>& calls, DataType dtype, uint64_t seed,
                    const MatmulChoice* choice = nullptr, int64_t chunk_k = 0,
                    Carrier carrier = Carrier::kKernel) {
  const int ranks = where.count();
  std::vector<std::vector<HostTensor>> results(calls.size());
  for (auto& of_call : results) of_call.resize(static_cast<size_t>(ranks));
  const auto x_of = [&](size_t call) {
    return HostTensor::random(dtype, {calls[call].m, calls[call].k}, 100 * seed + call + 1);
  };
  const auto b_of = [&](size_t call, int rank) {
    return HostTensor::random(dtype, {calls[call].n, calls[call].k},
                              100 * seed + 10 * call + static_cast<uint64_t>(rank) + 11);
  };
  const auto bias_of = [&](size_t call) {
    return HostTensor::random(float32, {calls[call].n}, seed + call + 7);
  };
  FusedSizes largest{.m = 1, .k = 1, .dtype = dtype};
  for (const Sizes& s : calls) largest.m = std::max(largest.m, s.m), largest.k = std::max(largest.k, s.k);
  run_ranks(where, [&](Communicator& communicator) {
    const auto rank = static_cast<size_t>(communicator.rank());
    const Device& device = communicator.device();
    std::optional<GatheredProduct> of_choice;
    std::optional<AllGatherMatmul> chosen;
    if (choice != nullptr)
      of_choice.emplace(communicator, largest, SourceLocation::current());
    else
      chosen.emplace(communicator, largest);
    for (size_t call = 0; call < calls.size(); ++call) {
      const Sizes& s = calls[call];
      const DeviceTensor x = DeviceTensor::from_host(
          device, rows_of(x_of(call), RowsOfRank::of(s.m, ranks, communicator.rank())));
      const DeviceTensor b = DeviceTensor::from_host(device, b_of(call, communicator.rank()));
      FusedOptions steps{.bias = DeviceTensor::from_host(device, bias_of(call)),
                         .activation = Activation::kRelu};
      DeviceTensor c = DeviceTensor::empty(device, dtype, {s.m, s.n});
      c.poison();
      expect_clean(choice != nullptr ? of_choice->run(Until::kLaunched, *choice, x, b, c, steps,
                                                      SourceLocation::current(), carrier, chunk_k)
                                     : (*chosen)(x, b, c, steps));
      communicator.synchronize();
      results[call][rank] = c.to_host();
    }
  });
  for (size_t call = 0; call < calls.size(); ++call)
    for (int rank = 0; rank < ranks; ++rank) {
      SCOPED_TRACE(::testing::Message()
                   << "call " << call << ", rank " << rank << " of " << ranks << ", seed " << seed);
      const Sizes& s = calls[call];
      std::vector<double> sums(static_cast<size_t>(s.m * s.n));
      add_product(sums, x_of(call), b_of(call, rank));
      expect_close(results[call][static_cast<size_t>(rank)], sums, 0, bias_of(call), 0, s.k);
    }
}

void check_scattered(const Ranks& where, const std::vector<Sizes>& calls, DataType dtype, uint64_t seed,
                     const MatmulChoice* choice = nullptr, bool to_all = false,
                     Carrier carrier = Carrier::kKernel) {
  const int ranks = where.count();
  std::vector<std::vector<HostTensor>> results(calls.size());
  for (auto& of_call : results) of_call.resize(static_cast<size_t>(ranks));
  const auto operand = [&](size_t call, int rank, bool is_b) {
    const Sizes& s = calls[call];
    return HostTensor::random(dtype, {is_b ? s.n : s.m, s.k},
                              100 * seed + 20 * call + static_cast<uint64_t>(2 * rank + is_b) + 1);
  };
  const auto bias_of = [&](size_t call) {
    return HostTensor::random(float32, {calls[call].n}, seed + call + 7);
  };
  const bool has_steps = choice != nullptr || seed % 2 == 1;  // without, few rows are added up apart
  FusedSizes largest{.m = 1, .n = 1, .dtype = dtype};
  for (const Sizes& s : calls) largest.m = std::max(largest.m, s.m), largest.n = std::max(largest.n, s.n);
  run_ranks(where, [&](Communicator& communicator) {
    const auto rank = static_cast<size_t>(communicator.rank());
    const Device& device = communicator.device();
    std::optional<ScatteredProduct> of_choice;
    std::optional<MatmulReduceScatter> scatter;
    std::optional<MatmulAllReduce> reduce;
    if (choice != nullptr)
      of_choice.emplace(communicator, largest, SourceLocation::current());
    else if (to_all)
      reduce.emplace(communicator, largest);
    else
      scatter.emplace(communicator, largest);
    for (size_t call = 0; call < calls.size(); ++call) {
      const Sizes& s = calls[call];
      const DeviceTensor a = DeviceTensor::from_host(device, operand(call, communicator.rank(), false));
      const DeviceTensor b = DeviceTensor::from_host(device, operand(call, communicator.rank(), true));
      FusedOptions steps;
      if (has_steps)
        steps = {.bias = DeviceTensor::from_host(device, bias_of(call)), .activation = Activation::kRelu};
      const RowsOfRank mine = RowsOfRank::of(s.m, ranks, communicator.rank());
      SymmetricTensor all;
      if (to_all) all = communicator.symmetric(dtype, {s.m, s.n});
      DeviceTensor y = to_all ? all.mine() : DeviceTensor::empty(device, dtype, {mine.count, s.n});
      y.poison();
      if (to_all) communicator.barrier();  // others store there, too
      if (choice != nullptr)
        expect_clean(of_choice->run(Until::kLaunched, *choice, a, b, y, steps, SourceLocation::current(),
                                    carrier, to_all ? &all : nullptr));
      else
        expect_clean(to_all ? (*reduce)(a, b, all, steps) : (*scatter)(a, b, y, steps));
      communicator.synchronize();
      results[call][rank] = y.to_host();
    }
  });
  for (size_t call = 0; call < calls.size(); ++call) {
    const Sizes& s = calls[call];
    std::vector<double> sums(static_cast<size_t>(s.m * s.n));
    for (int rank = 0; rank < ranks; ++rank)
      add_product(sums, operand(call, rank, false), operand(call, rank, true));
    for (int rank = 0; rank < ranks; ++rank) {
      SCOPED_TRACE(::testing::Message()
                   << "call " << call << ", rank " << rank << " of " << ranks << ", seed " << seed);
      const HostTensor& got = results[call][static_cast<size_t>(rank)];
      expect_close(got, sums, to_all ? 0 : RowsOfRank::of(s.m, ranks, rank).first, bias_of(call), ranks, s.k,
                   has_steps);
      if (to_all) {
        EXPECT_EQ(got.to_doubles(), results[call][0].to_doubles());
      }
    }
  }
}

MatmulChoice tiles(int block_m, int block_n, int consumers, int cluster_m, int cluster_n, int split_k,
                   bool swap_ab) {
  MatmulChoice choice;
  choice.block_m = block_m;
  choice.block_n = block_n;
  choice.stages = 3;
  choice.consumers = consumers;
  choice.cluster_m = cluster_m;
  choice.cluster_n = cluster_n;
  choice.split_k = split_k;
  choice.swap_ab = swap_ab;
  choice.ctas = 4;
  return choice;
}

// ---- sizes

TEST(RowsOfRank, AreDealtOutEvenlyAndTheLastMayHaveNone) {
  EXPECT_EQ(RowsOfRank::of(10, 4, 0).count, 3);
  EXPECT_EQ(RowsOfRank::of(10, 4, 3).first, 9);
  EXPECT_EQ(RowsOfRank::of(10, 4, 3).count, 1);
  EXPECT_EQ(RowsOfRank::of(5, 4, 2).count, 1);
  EXPECT_EQ(RowsOfRank::of(5, 4, 3).count, 0);
}

TEST(AllGatherMatmul, MultipliesTheRowsOfAllRanks) {
  for (const int ranks : {1, 2, 3, 4, 8})
    check_gathered(Ranks::virtual_node(ranks, options(static_cast<uint64_t>(ranks))),
                   {{67, 40, 136}, {5, 72, 64}, {24, 24, 72}, {301, 24, 72}},
                   ranks % 2 == 0 ? bfloat16 : float16, static_cast<uint64_t>(ranks));
}

TEST(AllGatherMatmul, HoldsForEveryKindOfTile) {
  int seed = 0;
  for (const MatmulChoice& choice :
       {tiles(64, 64, 1, 1, 1, 1, false), tiles(128, 64, 2, 1, 1, 1, false), tiles(64, 64, 1, 2, 1, 1, false),
        tiles(64, 64, 1, 1, 2, 1, false), tiles(64, 64, 1, 1, 1, 2, false), tiles(32, 64, 1, 1, 1, 1, true),
        tiles(64, 64, 1, 2, 2, 1, true)})
    check_gathered(Ranks::virtual_node(2, options(3)), {{200, 72, 392}}, bfloat16,
                   static_cast<uint64_t>(++seed), &choice, 128);
}

TEST(AllGatherMatmul, IsMadeOfTilesThatLeaveRoomForWhatCarriesRows) {
  vgpu::Options machine = options(1);
  machine.num_sms = 132;
  run_ranks(Ranks::virtual_node(2, machine), [](Communicator& ranks) {
    const int64_t m = 1001, k = 264;
    const Device& device = ranks.device();
    AllGatherMatmul product(ranks, {.m = m, .k = k});
    const int64_t rows = RowsOfRank::of(m, 2, ranks.rank()).count;
    for (const int64_t n : {520, 700, 1100})  // for 520 of 96 columns, stored as 64 and 32
      product.prepare(DeviceTensor::empty(device, bfloat16, {rows, k}),
                      DeviceTensor::empty(device, bfloat16, {n, k}),
                      DeviceTensor::empty(device, bfloat16, {m, n}));
  });
}

TEST(AllGatherMatmul, IsCleanUnderFiftySeeds) {
  const MatmulChoice choice = tiles(64, 64, 1, 1, 1, 1, false);
  for (uint64_t seed = 0; seed < 50; ++seed)
    check_gathered(Ranks::virtual_node(seed % 2 == 0 ? 2 : 3, options(seed)), {{70, 24, 136}, {9, 24, 72}},
                   float16, seed, &choice, 128);
}

// Copy engines carry what is large; here they are asked for. On a virtual node a kernel stands for each copy, and is checked.

TEST(AllGatherMatmul, TakesRowsThatCopyEnginesBring) {
  const MatmulChoice choice = tiles(64, 64, 1, 1, 1, 1, false);
  for (const int ranks : {1, 2, 3, 8})
    check_gathered(Ranks::virtual_node(ranks, options(static_cast<uint64_t>(ranks))),
                   {{64 * ranks - (ranks > 1), 40, 136}, {128 * ranks, 24, 72}, {64 * ranks, 72, 64}},
                   ranks % 2 == 0 ? bfloat16 : float16, static_cast<uint64_t>(ranks), &choice, 0,
                   Carrier::kCopyEngines);
  const MatmulChoice pairs = tiles(64, 64, 1, 2, 1, 1, false);
  for (uint64_t seed = 0; seed < 20; ++seed)
    check_gathered(Ranks::virtual_node(2, options(seed)), {{256, 24, 136}, {128, 24, 72}}, float16, seed,
                   &pairs, 0, Carrier::kCopyEngines);
}

TEST(MatmulReduceScatter, AddsUpWhatCopyEnginesBring) {
  for (const bool to_all : {false, true}) {
    const MatmulChoice choice = tiles(64, 64, 1, 1, 1, 1, false);
    for (const int ranks : {1, 2, 3, 8})
      check_scattered(Ranks::virtual_node(ranks, options(static_cast<uint64_t>(ranks))),
                      {{67, 48, 136}, {5, 72, 64}, {301, 20, 72}}, ranks % 2 == 0 ? bfloat16 : float16,
                      static_cast<uint64_t>(ranks), &choice, to_all, Carrier::kCopyEngines);
    for (uint64_t seed = 0; seed < 20; ++seed)
      check_scattered(Ranks::virtual_node(seed % 2 == 0 ? 2 : 3, options(seed)),
                      {{140, 24, 72}, {9, 32, 392}}, float16, seed, &choice, to_all, Carrier::kCopyEngines);
    for (const MatmulChoice& other : {tiles(128, 64, 2, 1, 1, 1, false), tiles(64, 64, 1, 2, 2, 1, true)})
      check_scattered(Ranks::virtual_node(2, options(3)), {{200, 144, 392}}, bfloat16, 5, &other, to_all,
                      Carrier::kCopyEngines);
  }
}

TEST(MatmulReduceScatter, AddsUpTheProductsOfAllRanks) {
  for (const int ranks : {1, 2, 3, 4, 8})
    check_scattered(Ranks::virtual_node(ranks, options(static_cast<uint64_t>(ranks))),
                    {{67, 40, 136}, {5, 72, 64}, {301, 20, 72}}, ranks % 2 == 0 ? bfloat16 : float16,
                    static_cast<uint64_t>(ranks));
}

TEST(MatmulReduceScatter, HoldsForEveryKindOfTile) {
  int seed = 0;
  for (const MatmulChoice& choice :
       {tiles(64, 64, 1, 1, 1, 1, false), tiles(128, 64, 2, 1, 1, 1, false), tiles(64, 64, 1, 2, 1, 1, false),
        tiles(64, 64, 1, 1, 2, 1, false), tiles(64, 64, 1, 1, 1, 2, false), tiles(32, 64, 1, 1, 1, 1, true),
        tiles(64, 64, 1, 2, 2, 1, true)})
    check_scattered(Ranks::virtual_node(2, options(3)), {{200, 144, 392}}, bfloat16,
                    static_cast<uint64_t>(++seed), &choice);
}

TEST(MatmulReduceScatter, IsCleanUnderFiftySeeds) {
  const MatmulChoice choice = tiles(64, 64, 1, 1, 1, 1, false);
  for (uint64_t seed = 0; seed < 50; ++seed)
    check_scattered(Ranks::virtual_node(seed % 2 == 0 ? 2 : 3, options(seed)), {{140, 24, 72}, {9, 32, 392}},
                    float16, seed, &choice);
}

TEST(MatmulAllReduce, GivesAllRanksTheSameSums) {
  for (const int ranks : {1, 2, 3, 4, 8})
    check_scattered(Ranks::virtual_node(ranks, options(static_cast<uint64_t>(ranks))),
                    {{67, 48, 136}, {5, 72, 64}, {301, 20, 72}}, ranks % 2 == 0 ? bfloat16 : float16,
                    static_cast<uint64_t>(ranks), nullptr, true);
}

TEST(MatmulAllReduce, HoldsForEveryKindOfTile) {
  int seed = 0;
  for (const MatmulChoice& choice :
       {tiles(64, 64, 1, 1, 1, 1, false), tiles(128, 64, 2, 1, 1, 1, false), tiles(64, 64, 1, 2, 1, 1, false),
        tiles(64, 64, 1, 1, 1, 2, false), tiles(64, 64, 1, 2, 2, 1, true)})
    check_scattered(Ranks::virtual_node(2, options(3)), {{200, 144, 392}}, bfloat16,
                    static_cast<uint64_t>(++seed), &choice, true);
}

TEST(MatmulAllReduce, IsCleanUnderFiftySeeds) {
  const MatmulChoice choice = tiles(64, 64, 1, 1, 1, 1, false);
  for (uint64_t seed = 0; seed < 50; ++seed)
    check_scattered(Ranks::virtual_node(seed % 2 == 0 ? 2 : 3, options(seed)), {{140, 24, 72}, {9, 32, 392}},
                    float16, seed, &choice, true);
}

// ---- calls that do not fit

std::string error_of(const std::function<void(Communicator&)>& body) {
  std::string error;
  run_ranks(Ranks::virtual_node(1, options(0)), [&](Communicator& communicator) {
    try {
      body(communicator);
    } catch (const LaunchError& thrown) {
      error = thrown.what();
    }
  });
  return error;
}

TEST(FusedMatmul, SaysWhatDoesNotFit) {
  const auto gather = [](std::vector<int64_t> x, std::vector<int64_t> b, std::vector<int64_t> c,
                         DataType type = bfloat16) {
    return error_of([=](Communicator& communicator) {
      const Device& device = communicator.device();
      AllGatherMatmul product(communicator, {.m = 32, .k = 64});
      product(DeviceTensor::empty(device, type, x), DeviceTensor::empty(device, type, b),
              DeviceTensor::empty(device, type, c));
    });
  };
  EXPECT_THAT(gather({32, 64}, {16, 72}, {32, 16}),
              AllOf(HasSubstr("inner sizes differ"), HasSubstr("[16, 72]")));
  EXPECT_THAT(gather({32, 64}, {16, 64}, {32, 24}), HasSubstr("a column per row of b"));
  EXPECT_THAT(gather({31, 64}, {16, 64}, {32, 16}), HasSubstr("rank 0 of 1 has 32 of 32 rows, x has 31"));
  EXPECT_THAT(gather({32, 60}, {16, 60}, {32, 16}), HasSubstr("k is not a multiple of 8"));
  EXPECT_THAT(gather({64, 64}, {16, 64}, {64, 16}), HasSubstr("made for 32 rows of 64"));
  EXPECT_THAT(gather({32, 64}, {16, 64}, {32, 16}, float32), HasSubstr("not all float16 or all bfloat16"));
  EXPECT_THAT(gather({32}, {16, 64}, {32, 16}), HasSubstr("x is not a dense matrix"));
  EXPECT_THAT(error_of([](Communicator& communicator) {
                const Device& device = communicator.device();
                MatmulReduceScatter product(communicator, {.m = 32, .n = 16});
                product(DeviceTensor::empty(device, bfloat16, {32, 64}),
                        DeviceTensor::empty(device, bfloat16, {16, 64}),
                        DeviceTensor::empty(device, bfloat16, {30, 16}));
              }),
              HasSubstr("rank 0 of 1 has 32 of 32 rows, y has 30"));
}

TEST(FusedMatmul, WithoutPeersProductAndCollectiveRunOneAfterTheOther) {
  setenv("IMBREX_NO_PEERS", "1", 1);
  for (const int ranks : {1, 2, 3, 5}) {
    const Ranks where = Ranks::virtual_node(ranks, options(1));
    check_gathered(where, {{1, 24, 8}, {67, 40, 136}, {128, 136, 72}}, bfloat16, 1);
    check_scattered(where, {{1, 24, 8}, {67, 40, 136}, {128, 136, 72}}, float16, 2);
    check_scattered(where, {{1, 24, 8}, {67, 40, 136}, {128, 136, 72}}, bfloat16, 3);
    check_scattered(where, {{1, 24, 8}, {67, 40, 136}}, bfloat16, 5, nullptr, true);
  }
  unsetenv("IMBREX_NO_PEERS");
}

// ---- the same on GPUs

TEST(OnTwoGpus, ProductsFusedWithCollectivesAreRight) {
  if (Ranks::cuda_devices() < 2) IMBREX_SKIP(two_gpus);
  if (!Device::cuda(0).can_run("sm_90a")) IMBREX_SKIP(hopper);
  for (const int ranks : gpu_counts())
    for (const DataType dtype : {float16, bfloat16}) {
      const Ranks where = Ranks::cuda(ranks).patience(20);
      const std::vector<Sizes> calls{{1, 24, 8}, {67, 40, 136}, {1000, 136, 520}, {5, 520, 4096}};
      check_gathered(where, calls, dtype, 1);
      check_scattered(where, calls, dtype, 2);
      check_scattered(where, calls, dtype, 3, nullptr, true);
      // By copy engines, the second of the calls with the memory and signals of the first.
      const std::vector<Sizes> large{{1024 * ranks, 264, 520}, {512 * ranks - 1, 136, 4096}};
      const MatmulChoice choice = tiles(128, 128, 2, 2, 1, 1, false);
      check_gathered(where, large, dtype, 4, &choice, 0, Carrier::kCopyEngines);
      for (const bool to_all : {false, true})
        check_scattered(where, large, dtype, 5, &choice, to_all, Carrier::kCopyEngines);
    }
}

}  // namespace
}  // namespace imbrex::parallel
