// SPDX-License-Identifier: Apache-2.0
// A model of the time that each kernel with each of its tiles takes, fitted to measurements on an H200
// (bench_hopper --json; docs/performance.md says how well it chooses).
#include "matmul/matmul_choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>

#include "imbrex/lang/scalar.h"

namespace imbrex {
namespace {

using Method = MatmulChoice::Method;

/// Kernels and tiles among which to choose: each is a candidate of its kernel's space(), where tests see to
/// it that it is right and assembles without spills.
constexpr MatmulChoice general(int block_m, int block_n, int stages, int consumers, int splits, int pair = 1,
                               int across = 1) {
  return {.method = Method::kGeneral,
          .block_m = block_m,
          .block_n = block_n,
          .stages = stages,
          .consumers = consumers,
          .pair = pair,
          .across = across,
          .splits = splits};
}
constexpr MatmulChoice transposed(int block_m, int block_n, int stages, int consumers, int splits,
                                  int pair = 1, int across = 1) {
  MatmulChoice choice = general(block_m, block_n, stages, consumers, splits, pair, across);
  choice.is_transposed = true;
  return choice;
}
constexpr MatmulChoice tight(MatmulChoice choice) {
  choice.is_tight = true;
  return choice;
}
constexpr MatmulChoice large(int block_m, int block_n, int stages, int store_stages) {
  return {.method = Method::kLarge,
          .block_m = block_m,
          .block_n = block_n,
          .stages = stages,
          .store_stages = store_stages,
          .pair = 2};
}
/// As many columns of wgmma as there are rows of A.
constexpr MatmulChoice skinny(int block_m, int stages, int pair) {
  return {.method = Method::kSkinny,
          .block_m = block_m,
          .block_n = 64,
          .block_k = 128,
          .stages = stages,
          .consumers = 1,
          .pair = pair,
          .is_transposed = true};
}
constexpr MatmulChoice kCandidates[] = {skinny(8, 10, 1),
                                        skinny(16, 9, 1),
                                        skinny(32, 8, 2),
                                        skinny(64, 6, 2),
                                        large(128, 256, 4, 2),
                                        large(128, 192, 5, 1),
                                        large(128, 128, 5, 2),
                                        general(64, 128, 8, 1, 1),
                                        general(128, 80, 7, 2, 1),
                                        general(128, 128, 6, 2, 1),
                                        general(128, 176, 5, 2, 1),
                                        general(128, 208, 4, 2, 1),
                                        general(128, 256, 4, 2, 1),
                                        general(192, 128, 5, 3, 1),
                                        tight(general(192, 160, 4, 3, 1)),
                                        transposed(96, 64, 10, 1, 1),
                                        transposed(128, 64, 8, 1, 1),
                                        transposed(200, 64, 6, 1, 1),
                                        transposed(80, 128, 8, 2, 1),
                                        transposed(104, 128, 7, 2, 1),
                                        transposed(232, 128, 4, 2, 1),
                                        transposed(104, 192, 5, 3, 1),
                                        general(128, 128, 6, 2, 1, 2),
                                        general(128, 224, 4, 2, 1, 2),
                                        general(128, 112, 6, 2, 1, 2, 2),
                                        general(128, 176, 5, 2, 1, 2, 2),
                                        transposed(64, 128, 8, 2, 1, 1, 2),
                                        transposed(128, 128, 6, 2, 1, 1, 2),
                                        transposed(200, 128, 5, 2, 1, 1, 2),
                                        transposed(128, 256, 4, 2, 1, 2),
                                        transposed(208, 128, 4, 2, 1, 2, 2),
                                        transposed(112, 192, 5, 3, 1, 2, 2),
                                        tight(transposed(80, 192, 6, 3, 1, 2, 2)),
                                        transposed(96, 192, 5, 3, 1, 4, 2),
                                        general(64, 128, 6, 1, 2),
                                        transposed(64, 64, 8, 1, 2),
                                        transposed(128, 128, 5, 2, 2),
                                        general(128, 96, 6, 2, 3),
                                        general(64, 128, 6, 1, 4)};

// ------------------------------------------------------------------------------------------------ the model
//
// Fitted to 45 shapes times up to 70 candidates, 2643 measurements: what is chosen takes 2 to 3 % longer than
// the best of all on average. Large products run at the clock that power allows, which the model does not
// know.

constexpr double kClock = 1860;                // MHz
constexpr double kL2BytesPerClock = 85;        // what a multiprocessor gets from the L2 cache, when all ask
constexpr double kSparseBytes = 45;            // of operands that do not fit and are read but a few times
constexpr double kFits = 40e6, kFewTimes = 6;  // bytes; times
// More of it where rows of 128 bytes lie in two lines of memory, and where they begin within a sector of 32.
constexpr double kCrookedRows = 1.57, kCrookedSectors = 3.2;
constexpr double kLoadClocks = 1760;              // from asking for a stage until it is there
constexpr double kSharedUse = 0.9;                // of shared memory's clocks, that nothing hides
constexpr double kMemory = 4.35e6;                // bytes a microsecond
constexpr double kLaunch = 1.85;                  // microseconds
constexpr double kTile = 0.62, kTileArea = 0.26;  // microseconds: a tile's start and end, and of 128 x 256
constexpr double kSumArea = 4.7;                  // microseconds: adding up the parts of such a tile
constexpr double kCluster = 0.9;                  // microseconds: CTAs that start together
constexpr double kBlockNorm = 6.8, kMemoryNorm = 2.8;

/// What takes as long as all of these together, which overlap but for what they disturb each other: a norm.
double overlapped(std::initializer_list<double> parts, double norm) {
  double sum = 0;
  for (double part : parts) sum += std::pow(part, norm);
  return std::pow(sum, 1 / norm);
}

/// The tensor cores' clocks over what their rate gives: what is loaded more often costs power, and with it
/// clock.
double slowness(const MatmulChoice& c) {
  const int area = c.block_m * c.block_n;
  return (c.method == Method::kSkinny || area >= 30'000 ? 1
          : area >= 22'000                              ? 1.02
                                                        : 1.03) *
         (c.pair * c.across == 1 ? 1.06 : 1);
}

/// Clusters that run at once: where they are of more than two, not every multiprocessor finds a place.
int64_t clusters_at_once(int ctas, int multiprocessors) {
  const int64_t all = std::max(multiprocessors / ctas, 1);
  return ctas <= 2 ? all : std::max<int64_t>(all * 15 / 16, 1);
}

struct Shape {
  int64_t m, n, k;
};

/// In clusters' tiles, as all that follows.
int64_t tiles_of(const MatmulChoice& c, const Shape& p) {
  return cdiv(p.m, c.block_m * (c.is_transposed ? c.across : c.pair)) *
         cdiv(p.n, c.block_n * (c.is_transposed ? c.pair : c.across));
}

double microseconds(const MatmulChoice& c, const Shape& p, int multiprocessors) {
  const int cluster = c.pair * c.across * c.splits;
  const int64_t tiles = tiles_of(c, p), waves = cdiv(tiles, clusters_at_once(cluster, multiprocessors));
  const auto k_blocks = static_cast<double>(cdiv(cdiv(p.k, 64), c.splits));
  // Of 64 of k, X giving wgmma's rows and Y its columns. Clocks of the tensor cores, of shared memory, 128
  // bytes each, where 64 rows of X meet all of Y, and of the L2 cache.
  const double x = c.is_transposed ? c.block_n : c.block_m, y = c.is_transposed ? c.block_m : c.block_n;
  const double share = x * y / (128 * 256);
  const double tensor = x * y / 32 * slowness(c), shared = (2 * x + y * (1 + x / 64)) * kSharedUse;
  const double block_bytes = (x / c.across + y / c.pair) * 128,
               operands = 2.0 * static_cast<double>((p.m + p.n) * p.k);
  const bool is_sparse = operands > kFits &&
                         static_cast<double>(tiles * cluster) * k_blocks * block_bytes < kFewTimes * operands;
  const double loads = block_bytes / (is_sparse ? kSparseBytes : kL2BytesPerClock) *
                       (p.k % 64 == 0   ? 1
                        : p.k % 16 == 0 ? kCrookedRows
                                        : kCrookedSectors);
  const double busy = overlapped({tensor, shared, loads}, kBlockNorm);
  // A stage is asked for when the one that has its place has been used.
  const double block = overlapped({busy, (kLoadClocks + busy) / (c.stages * c.block_k / 64)}, kBlockNorm);
  double time =
      kLaunch + static_cast<double>(waves) * (k_blocks * block / kClock + kTile + kTileArea * share);
  if (c.splits > 1) time += kSumArea * share * (c.splits - 1) / c.splits;
  if (cluster > 1) time += kCluster * (cluster > 2 ? 1.5 : 1);
  const double memory = kLaunch + (operands + 2.0 * static_cast<double>(p.m * p.n)) / kMemory;
  return c.method == Method::kSkinny ? std::max(time, memory) : overlapped({time, memory}, kMemoryNorm);
}

bool is_possible(const MatmulChoice& c, const Shape& p, bool has_tma_rows, bool is_plain,
                 int multiprocessors) {
  if (c.pair * c.across * c.splits > multiprocessors) return false;
  if (c.is_tight && !is_plain) return false;
  if (c.method == Method::kSkinny) return p.m <= c.block_m;
  if (c.method == Method::kLarge) return has_tma_rows;
  return c.splits <= cdiv(p.k, 64);
}

}  // namespace

MatmulChoice choose_matmul(int64_t m, int64_t n, int64_t k, bool has_tma_rows, bool is_plain,
                           int multiprocessors) {
  const Shape p{m, n, k};
  MatmulChoice best;
  double least = 0;
  for (const MatmulChoice& candidate : kCandidates) {
    if (!is_possible(candidate, p, has_tma_rows, is_plain, multiprocessors)) continue;
    const double time = microseconds(candidate, p, multiprocessors);
    if (best.block_m > 0 && time >= least) continue;
    best = candidate;
    least = time;
  }
  // No more CTAs than the waves need: those left dark leave their power to the others. (The kernel sees to it
  // where a single wave is not full, so that any such m finds it compiled.)
  const int cluster = best.pair * best.across * best.splits;
  const int64_t at_once = clusters_at_once(cluster, multiprocessors),
                tiles = std::max(tiles_of(best, p), at_once);
  if (best.method != Method::kSkinny)
    best.ctas = static_cast<int>(cluster * cdiv(tiles, cdiv(tiles, at_once)));
  return best;
}

std::string MatmulChoice::text() const {
  switch (method) {
    case Method::kSkinny:
      return fmt::format("hopper_matmul_skinny block_m={} block_k={} stages={} ctas={}", block_m, block_k,
                         stages, pair);
    case Method::kLarge:
      return fmt::format("hopper_matmul_h7 block_m={} block_n={} stages={} store_stages={} ctas={}", block_m,
                         block_n, stages, store_stages, ctas);
    default:
      return fmt::format(
          "hopper_matmul_h8 block_m={} block_n={} stages={} consumers={} splits={} pair={} across={} "
          "is_transposed={} ctas={}",
          block_m, block_n, stages, consumers, splits, pair, across, int{is_transposed}, ctas);
  }
}

}  // namespace imbrex
