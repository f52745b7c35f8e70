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

/// Kernels and tiles among which to choose: each is a candidate of its kernel's space(), so that the tests
/// have verified it and assembled it without spills.
constexpr MatmulChoice general(int block_m, int block_n, int stages, int consumers, int split_k,
                               int cluster_m = 1, int cluster_n = 1) {
  return {.method = Method::kGeneral,
          .block_m = block_m,
          .block_n = block_n,
          .stages = stages,
          .consumers = consumers,
          .cluster_m = cluster_m,
          .cluster_n = cluster_n,
          .split_k = split_k};
}
constexpr MatmulChoice swapped(int block_m, int block_n, int stages, int consumers, int split_k,
                               int cluster_m = 1, int cluster_n = 1) {
  MatmulChoice choice = general(block_m, block_n, stages, consumers, split_k, cluster_m, cluster_n);
  choice.swap_ab = true;
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
          .cluster_m = 2};
}
/// As many columns of wgmma as there are rows of A.
constexpr MatmulChoice skinny(int block_m, int stages, int cluster_n) {
  return {.method = Method::kSkinny,
          .block_m = block_m,
          .block_n = 64,
          .block_k = 128,
          .stages = stages,
          .consumers = 1,
          .cluster_n = cluster_n,
          .swap_ab = true};
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
                                        swapped(96, 64, 10, 1, 1),
                                        swapped(128, 64, 8, 1, 1),
                                        swapped(200, 64, 6, 1, 1),
                                        swapped(80, 128, 8, 2, 1),
                                        swapped(104, 128, 7, 2, 1),
                                        swapped(232, 128, 4, 2, 1),
                                        swapped(104, 192, 5, 3, 1),
                                        general(128, 128, 6, 2, 1, 2),
                                        general(128, 224, 4, 2, 1, 2),
                                        general(128, 112, 6, 2, 1, 2, 2),
                                        general(128, 176, 5, 2, 1, 2, 2),
                                        swapped(64, 128, 8, 2, 1, 2),
                                        swapped(128, 128, 6, 2, 1, 2),
                                        swapped(200, 128, 5, 2, 1, 2),
                                        swapped(128, 256, 4, 2, 1, 1, 2),
                                        swapped(208, 128, 4, 2, 1, 2, 2),
                                        swapped(112, 192, 5, 3, 1, 2, 2),
                                        tight(swapped(80, 192, 6, 3, 1, 2, 2)),
                                        swapped(96, 192, 5, 3, 1, 2, 4),
                                        general(64, 128, 6, 1, 2),
                                        swapped(64, 64, 8, 1, 2),
                                        swapped(128, 128, 5, 2, 2),
                                        general(128, 96, 6, 2, 3),
                                        general(64, 128, 6, 1, 4)};

// ---- the model
//
// Fitted to 45 shapes times up to 70 candidates, 2643 measurements: on average the choice takes 2 to 3 %
// longer than the best of all. Large products run at the clock that power allows, which the model does not
// know.

constexpr double kClock = 1860;          // MHz
constexpr double kL2BytesPerClock = 85;  // a multiprocessor's share of the L2 cache's bandwidth, under load
constexpr double kStreamBytesPerClock =
    45;                            // the same for operands that do not fit and are read a few times only
constexpr double kL2Bytes = 40e6;  // operands that fit the L2 cache
constexpr double kFewReads = 6;
// Factors on loads whose 128-byte rows straddle two lines of memory, and whose rows begin within a sector of 32.
constexpr double kStraddledLines = 1.57, kUnalignedSectors = 3.2;
constexpr double kLoadClocks = 1760;              // from the request of a stage until its arrival
constexpr double kSharedUse = 0.9;                // of shared memory's clocks, those that nothing hides
constexpr double kMemory = 4.35e6;                // bytes per microsecond
constexpr double kLaunch = 1.85;                  // microseconds
constexpr double kTile = 0.62, kTileArea = 0.26;  // microseconds: per tile, and per 128 x 256 elements of it
constexpr double kSumArea = 4.7;                  // microseconds: adding up split_k's parts of such a tile
constexpr double kCluster = 0.9;                  // microseconds: starting the CTAs of a cluster together
constexpr double kBlockNorm = 6.8, kMemoryNorm = 2.8;

/// The time of activities that overlap but slow each other down: a norm of their times.
double overlapped(std::initializer_list<double> parts, double norm) {
  double sum = 0;
  for (double part : parts) sum += std::pow(part, norm);
  return std::pow(sum, 1 / norm);
}

/// Tensor-core clocks as a multiple of those at full rate: loads cost power, and power costs clock.
double power_factor(const MatmulChoice& c) {
  const int area = c.block_m * c.block_n;
  return (c.method == Method::kSkinny || area >= 30'000 ? 1
          : area >= 22'000                              ? 1.02
                                                        : 1.03) *
         (c.cluster_m * c.cluster_n == 1 ? 1.06 : 1);
}

/// Clusters that run at once: larger ones than pairs leave some multiprocessors without a place in one.
int64_t clusters_at_once(int ctas, int multiprocessors) {
  const int64_t all = std::max(multiprocessors / ctas, 1);
  return ctas <= 2 ? all : std::max<int64_t>(all * 15 / 16, 1);
}

struct Shape {
  int64_t m, n, k, matrices;
};

int cluster_ctas(const MatmulChoice& c) { return c.cluster_m * c.cluster_n * c.split_k; }

/// Tiles of clusters, not of CTAs, as in all that follows.
int64_t tiles_of(const MatmulChoice& c, const Shape& p) {
  return p.matrices * cdiv(p.m, c.block_m * c.cluster_m) * cdiv(p.n, c.block_n * c.cluster_n);
}

double microseconds(const MatmulChoice& c, const Shape& p, int multiprocessors) {
  const int cluster = cluster_ctas(c);
  const int64_t tiles = tiles_of(c, p), waves = cdiv(tiles, clusters_at_once(cluster, multiprocessors));
  const auto k_blocks = static_cast<double>(cdiv(cdiv(p.k, 64), c.split_k));
  // Per 64 of k: the clocks of the tensor cores, of shared memory (128 bytes per clock; every 64 of wgmma's
  // rows read all its columns), and of the L2 cache.
  const double rows = c.swap_ab ? c.block_n : c.block_m, columns = c.swap_ab ? c.block_m : c.block_n;
  const double area = rows * columns / (128 * 256);
  const double tensor = rows * columns / 32 * power_factor(c),
               shared = (2 * rows + columns * (1 + rows / 64)) * kSharedUse;
  const double block_bytes = (static_cast<double>(c.block_m) / c.cluster_n +
                              static_cast<double>(c.block_n) / c.cluster_m) *
                             128,
               operands = 2.0 * static_cast<double>(p.matrices * (p.m + p.n) * p.k);
  const bool is_streamed =
      operands > kL2Bytes &&
      static_cast<double>(tiles * cluster) * k_blocks * block_bytes < kFewReads * operands;
  const double loads = block_bytes / (is_streamed ? kStreamBytesPerClock : kL2BytesPerClock) *
                       (p.k % 64 == 0   ? 1
                        : p.k % 16 == 0 ? kStraddledLines
                                        : kUnalignedSectors);
  const double busy = overlapped({tensor, shared, loads}, kBlockNorm);
  // A stage is requested when the one before it in its place of the ring has been used.
  const double block = overlapped({busy, (kLoadClocks + busy) / (c.stages * c.block_k / 64)}, kBlockNorm);
  double time = kLaunch + static_cast<double>(waves) * (k_blocks * block / kClock + kTile + kTileArea * area);
  if (c.split_k > 1) time += kSumArea * area * (c.split_k - 1) / c.split_k;
  if (cluster > 1) time += kCluster * (cluster > 2 ? 1.5 : 1);
  const double memory = kLaunch + (operands + 2.0 * static_cast<double>(p.matrices * p.m * p.n)) / kMemory;
  return c.method == Method::kSkinny ? std::max(time, memory) : overlapped({time, memory}, kMemoryNorm);
}

constexpr int64_t kMostLayers = 65535;  // of a grid's third dimension

bool is_possible(const MatmulChoice& c, const Shape& p, bool has_tma_rows, bool is_plain,
                 int multiprocessors) {
  if (cluster_ctas(c) > multiprocessors) return false;
  if (c.is_tight && !is_plain) return false;
  if (c.method == Method::kSkinny) return p.m <= c.block_m && p.matrices <= kMostLayers;
  if (c.method == Method::kLarge) return has_tma_rows;
  return c.split_k <= cdiv(p.k, 64);
}

}  // namespace

MatmulChoice choose_matmul(int64_t m, int64_t n, int64_t k, bool has_tma_rows, bool is_plain,
                           int multiprocessors, int64_t matrices) {
  const Shape p{m, n, k, matrices};
  MatmulChoice best;
  double least = 0;
  for (const MatmulChoice& candidate : kCandidates) {
    if (!is_possible(candidate, p, has_tma_rows, is_plain, multiprocessors)) continue;
    const double time = microseconds(candidate, p, multiprocessors);
    if (best.block_m > 0 && time >= least) continue;
    best = candidate;
    least = time;
  }
  // No more CTAs than the waves need: idle multiprocessors leave their power to the others. (Where a single
  // wave is not full the kernel itself launches fewer, so that all such m share a compiled kernel.)
  const int cluster = cluster_ctas(best);
  const int64_t at_once = clusters_at_once(cluster, multiprocessors),
                tiles = std::max(tiles_of(best, p), at_once);
  if (best.method != Method::kSkinny)
    best.ctas = static_cast<int>(cluster * cdiv(tiles, cdiv(tiles, at_once)));
  return best;
}

std::string MatmulChoice::text() const {
  switch (method) {
    case Method::kSkinny:
      return fmt::format("hopper_matmul_skinny block_m={} block_k={} stages={} cluster_n={}", block_m,
                         block_k, stages, cluster_n);
    case Method::kLarge:
      return fmt::format("hopper_matmul_h7 block_m={} block_n={} stages={} store_stages={} ctas={}", block_m,
                         block_n, stages, store_stages, ctas);
    default:
      return fmt::format(
          "hopper_matmul_h8 block_m={} block_n={} stages={} consumers={} split_k={} cluster_m={} "
          "cluster_n={} swap_ab={} ctas={}",
          block_m, block_n, stages, consumers, split_k, cluster_m, cluster_n, int{swap_ab}, ctas);
  }
}

}  // namespace imbrex
