// SPDX-License-Identifier: Apache-2.0
// A model of the time that each kernel with each of its tiles takes, fitted to measurements on an H200
// (bench_hopper --json; docs/performance.md says how well it chooses).
#include "matmul/matmul_choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <vector>

#include "imbrex/kernels/matmul/matmul_stream_k.h"
#include "imbrex/lang/scalar.h"

namespace imbrex {
namespace {

using Method = MatmulChoice::Method;

/// Kernels and tiles among which to choose. A test assembles each of them with all steps, but for the tight ones;
/// bench_hopper verified and timed each on the GPU that the model is fitted to.
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
/// Of products with many tiles: one slice of a tile is stored while the next one is written.
constexpr MatmulChoice storing_two(MatmulChoice choice) {
  choice.store_stages = 2;
  return choice;
}
constexpr MatmulChoice stream_k(int block_m, int block_n, int stages, int consumers, int cluster_m,
                                int cluster_n, bool swap_ab = false) {
  return {.method = Method::kStreamK,
          .block_m = block_m,
          .block_n = block_n,
          .stages = stages,
          .consumers = consumers,
          .cluster_m = cluster_m,
          .cluster_n = cluster_n,
          .swap_ab = swap_ab};
}
/// The same tiles, k in parts that are launched on their own: their number comes with the product.
constexpr MatmulChoice in_parts(MatmulChoice choice) {
  choice.method = Method::kParts;
  return choice;
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
                                        skinny(64, 6, 4),
                                        general(64, 64, 12, 1, 1, 2, 2),
                                        general(64, 72, 12, 1, 1),
                                        general(64, 96, 10, 1, 1, 2, 2),
                                        general(64, 96, 10, 1, 1),
                                        general(64, 96, 10, 1, 1, 4, 2),
                                        general(64, 104, 10, 1, 1, 1, 4),
                                        general(64, 112, 9, 1, 1, 2, 4),
                                        general(64, 128, 9, 1, 1, 2, 4),
                                        general(64, 128, 6, 1, 4),
                                        general(64, 144, 8, 1, 1, 2),
                                        general(64, 208, 6, 1, 1, 2),
                                        general(128, 96, 7, 2, 1, 1, 2),
                                        general(128, 96, 7, 2, 1, 2, 4),
                                        general(128, 104, 6, 2, 1),
                                        storing_two(general(128, 128, 5, 2, 1, 2)),
                                        general(128, 128, 6, 2, 1, 2, 4),
                                        general(128, 128, 5, 2, 2, 2),
                                        general(128, 144, 5, 2, 1, 2, 2),
                                        general(128, 144, 5, 2, 1),
                                        general(128, 160, 5, 2, 1),
                                        general(128, 176, 5, 2, 1, 2, 2),
                                        general(128, 176, 5, 2, 1, 2),
                                        general(128, 208, 4, 2, 1, 2),
                                        general(128, 224, 4, 2, 1, 2),
                                        storing_two(general(128, 256, 4, 2, 1, 2)),
                                        storing_two(general(128, 256, 4, 2, 1, 1, 2)),
                                        general(192, 104, 5, 3, 1, 1, 2),
                                        tight(general(192, 128, 5, 3, 1, 1, 2)),
                                        tight(general(192, 128, 5, 3, 1)),
                                        tight(general(192, 128, 5, 3, 1, 1, 4)),
                                        tight(general(192, 160, 4, 3, 1)),
                                        tight(general(192, 160, 4, 3, 1, 1, 2)),
                                        tight(general(192, 160, 4, 3, 1, 4, 2)),
                                        tight(general(192, 192, 4, 3, 1, 2)),
                                        general(256, 128, 4, 2, 1, 2),
                                        general(256, 128, 4, 2, 1, 1, 2),
                                        tight(general(256, 160, 3, 2, 1, 1, 2)),
                                        tight(general(256, 176, 3, 2, 1, 1, 2)),
                                        tight(general(256, 176, 3, 2, 1, 2)),
                                        swapped(8, 64, 12, 1, 1),
                                        swapped(16, 64, 12, 1, 2),
                                        swapped(24, 64, 12, 1, 1),
                                        swapped(32, 64, 12, 1, 1),
                                        swapped(32, 64, 12, 1, 2),
                                        swapped(32, 64, 12, 1, 4),
                                        swapped(40, 64, 12, 1, 1),
                                        swapped(48, 64, 12, 1, 1),
                                        swapped(56, 64, 12, 1, 1),
                                        swapped(64, 64, 8, 1, 4),
                                        swapped(80, 64, 12, 1, 1, 2, 2),
                                        swapped(80, 64, 12, 1, 1, 4, 2),
                                        swapped(80, 64, 12, 1, 1),
                                        swapped(88, 64, 11, 1, 1),
                                        swapped(144, 64, 8, 1, 1, 1, 2),
                                        swapped(8, 128, 12, 2, 1),
                                        swapped(16, 128, 12, 2, 1),
                                        swapped(24, 128, 11, 2, 1),
                                        swapped(32, 128, 10, 2, 1),
                                        swapped(48, 128, 9, 2, 1),
                                        swapped(80, 128, 8, 2, 1, 2, 2),
                                        swapped(80, 128, 8, 2, 1),
                                        swapped(96, 128, 7, 2, 1, 2, 2),
                                        swapped(96, 128, 7, 2, 1),
                                        swapped(120, 128, 6, 2, 1),
                                        swapped(144, 128, 6, 2, 1, 1, 2),
                                        swapped(160, 128, 5, 2, 1, 2, 4),
                                        swapped(176, 128, 5, 2, 1, 2, 2),
                                        swapped(176, 128, 5, 2, 1, 1, 2),
                                        swapped(224, 128, 4, 2, 1, 1, 4),
                                        swapped(224, 128, 4, 2, 1, 1, 2),
                                        swapped(224, 128, 4, 2, 1, 2, 4),
                                        swapped(72, 192, 6, 3, 1, 4),
                                        swapped(104, 192, 5, 3, 1, 2),
                                        swapped(104, 192, 5, 3, 1, 4),
                                        tight(swapped(120, 192, 5, 3, 1, 2)),
                                        tight(swapped(144, 192, 4, 3, 1, 2)),
                                        tight(swapped(144, 192, 4, 3, 1, 2, 2)),
                                        tight(swapped(160, 192, 4, 3, 1, 2)),
                                        tight(swapped(144, 256, 4, 2, 1, 2)),
                                        tight(swapped(144, 256, 4, 2, 1, 4)),
                                        tight(swapped(160, 256, 4, 2, 1, 2)),
                                        tight(swapped(160, 256, 4, 2, 1, 1, 2)),
                                        tight(swapped(176, 256, 3, 2, 1, 2)),
                                        in_parts(general(64, 72, 12, 1, 1)),
                                        in_parts(general(64, 112, 9, 1, 1, 2, 2)),
                                        in_parts(swapped(8, 64, 12, 1, 1)),
                                        in_parts(swapped(16, 64, 12, 1, 1)),
                                        in_parts(swapped(24, 64, 12, 1, 1)),
                                        in_parts(swapped(40, 64, 12, 1, 1)),
                                        in_parts(swapped(88, 64, 11, 1, 1)),
                                        in_parts(swapped(112, 64, 9, 1, 1, 1, 2)),
                                        in_parts(swapped(8, 128, 12, 2, 1)),
                                        in_parts(swapped(80, 128, 8, 2, 1, 2)),
                                        in_parts(swapped(96, 128, 7, 2, 1, 2, 2)),
                                        in_parts(swapped(96, 128, 7, 2, 1, 1, 2)),
                                        in_parts(swapped(144, 128, 6, 2, 1, 2, 2)),
                                        in_parts(swapped(72, 192, 6, 3, 1, 4)),
                                        in_parts(swapped(112, 192, 5, 3, 1, 2)),
                                        in_parts(swapped(160, 256, 4, 2, 1, 1, 4)),
                                        stream_k(128, 192, 5, 2, 1, 2),
                                        stream_k(128, 256, 4, 2, 2, 1),
                                        stream_k(256, 128, 4, 2, 2, 1)};

/// Shapes of language models whose fastest candidate was measured, and for which the model takes one that is
/// more than 4 % slower.
struct Measured {
  int64_t m, n, k;
  MatmulChoice choice;
};
constexpr Measured kMeasured[] = {{1, 28672, 8192, skinny(8, 10, 1)},
                                  {16, 28672, 8192, skinny(16, 9, 1)},
                                  {64, 28672, 8192, skinny(64, 6, 4)},
                                  {64, 8192, 8192, swapped(80, 128, 8, 2, 1)},
                                  {512, 10240, 8192, tight(general(256, 160, 3, 2, 1, 1, 2))},
                                  {4096, 32768, 512, storing_two(general(128, 128, 5, 2, 1, 2))}};

// ---- the model
//
// Fitted to 175 shapes with some 20 candidates each, 3300 measurements by device time with operands from memory
// (docs/measurements): on average the choice takes 4 % longer than the best of those measured. Large products run at
// the clock that power allows, which the model does not know.

constexpr double kClock = 1916;  // MHz, less what the tensor cores lose between instructions
// Bytes that a multiprocessor gets from the L2 cache while all ask for them; where few do, more, by a power of
// their share.
constexpr double kL2BytesPerClock = 40.8, kAloneExponent = 0.61;
// Factors on loads whose 128-byte rows straddle two lines of memory, and whose rows begin within a sector of 32.
constexpr double kStraddledLines = 1.14, kUnalignedSectors = 1.51;
constexpr double kLoadClocks = 2165;  // from the request of a stage until its arrival
constexpr double kSmallTile = 0.95;   // tensor-core clocks of smaller tiles, which take less power
constexpr double kMemory = 4.34e6;    // bytes per microsecond
constexpr double kLaunch = 1.6;       // microseconds
constexpr double kTileArea = 2.36;    // microseconds: to store 128 x 256 elements of a tile
constexpr double kStoredBehind =
    0.62;                      // the share of it that is seen where the CTA has another tile to go on with
constexpr double kSum = 0.45;  // microseconds: adding up split_k's parts
constexpr double kCluster = 0.83;  // microseconds: for each doubling of a cluster's CTAs
constexpr double kClustersOf4 = 1.22, kClustersOf8 = 1.26;  // on products of several waves of such clusters
// Stream-K: microseconds for parts to be exchanged at all, and to add up each one of 128 x 256 elements; and by what it
// must be faster, because its time is modelled less well. So is that of the kernel for few rows.
constexpr double kExchange = 6, kExchangedPart = 3, kDoubt = 1.03, kSkinnyDoubt = 1.05;
// Parts of k: microseconds for the second launch, what it reads and writes in bytes per microsecond, from the L2 cache,
// and how much longer float32 takes to store.
constexpr double kSecondLaunch = 1.47, kPartBytes = 12e6, kPartStores = 3.1;
// Large products run at the clock that power allows, which is highest with tiles of 128 x 256 elements.
constexpr double kLargeProduct = 2e10, kPowerOfTiles = 1.03;
constexpr double kOneConsumer = 0.96;  // where a single warp group multiplies
constexpr double kBlockNorm = 5, kMemoryNorm = 2.66;

/// The time of activities that overlap but slow each other down: a norm of their times.
double overlapped(std::initializer_list<double> parts, double norm) {
  double sum = 0;
  for (double part : parts) sum += std::pow(part, norm);
  return std::pow(sum, 1 / norm);
}

/// Clusters that run at once: larger ones than pairs leave some multiprocessors without a place in one.
int64_t clusters_at_once(int ctas, int multiprocessors) {
  const int64_t all = std::max(multiprocessors / ctas, 1);
  return ctas <= 2 ? all : std::max<int64_t>(all * 15 / 16, 1);
}

struct ProductShape {
  int64_t m, n, k, matrices;
};

int cluster_ctas(const MatmulChoice& c) { return c.cluster_m * c.cluster_n * c.split_k; }

/// Tiles of clusters, not of CTAs, as in all that follows.
int64_t tiles_of(const MatmulChoice& c, const ProductShape& p) {
  return p.matrices * cdiv(p.m, c.block_m * c.cluster_m) * cdiv(p.n, c.block_n * c.cluster_n);
}

/// Clocks of the main loop per 64 of k, while `busy_share` of the multiprocessors are at work.
double block_clocks(const MatmulChoice& c, const ProductShape& p, double busy_share) {
  const double area = c.block_m * c.block_n;
  const double tensor = area / 32 * (area < 30'000 ? kSmallTile : 1);
  const double loads =
      (static_cast<double>(c.block_m) / c.cluster_n + static_cast<double>(c.block_n) / c.cluster_m) * 128 /
      kL2BytesPerClock * std::pow(busy_share, kAloneExponent) *
      (p.k % 64 == 0   ? 1
       : p.k % 16 == 0 ? kStraddledLines
                       : kUnalignedSectors);
  const double busy = overlapped({tensor, loads}, kBlockNorm);
  // A stage is requested when the one before it in its place of the ring has been used.
  return overlapped({busy, (kLoadClocks + busy) / (c.stages * c.block_k / 64)}, kBlockNorm);
}

/// To store as many tiles as a CTA has, one after the other.
double store_time(const MatmulChoice& c, double tiles) {
  return kTileArea * c.block_m * c.block_n / (128 * 256) * (1 + kStoredBehind * (tiles - 1)) *
         (c.method == Method::kParts ? kPartStores : 1);
}

/// What memory takes at least.
double memory_time(const ProductShape& p) {
  const double elements =
      static_cast<double>(p.matrices) * static_cast<double>((p.m + p.n) * p.k + p.m * p.n);
  return 2 * elements / kMemory;
}

/// Of stream-K, whose clusters divide the tiles that do not fill a wave, and one wave more where there is one.
double stream_k_microseconds(const MatmulChoice& c, const ProductShape& p, int multiprocessors) {
  constexpr int64_t kLeastBlocks = kernels::HopperMatmulStreamK<>().min_k_blocks;
  const int cluster = cluster_ctas(c);
  const int64_t tiles = tiles_of(c, p), k_blocks = cdiv(p.k, 64);
  const int64_t clusters = std::min(int64_t{multiprocessors / cluster}, cdiv(tiles * k_blocks, kLeastBlocks));
  const int64_t left = tiles % clusters, divided = left == 0 ? 0 : left + (tiles > clusters ? clusters : 0);
  const auto whole = static_cast<double>((tiles - divided) / clusters);
  const double divided_per_cluster = static_cast<double>(divided) / static_cast<double>(clusters);
  double time = kLaunch + kCluster * std::log2(cluster);
  const double share = static_cast<double>(clusters * cluster) / multiprocessors;
  time += (divided_per_cluster + whole) * static_cast<double>(k_blocks) * block_clocks(c, p, share) / kClock;
  time += store_time(c, whole + (divided > 0 ? std::max(1.0, divided_per_cluster) : 0));
  if (divided > 0) {
    const double parts = divided < clusters ? static_cast<double>(cdiv(clusters, divided)) : 1.5;
    time += kExchange + kExchangedPart * parts * c.block_m * c.block_n / (128 * 256);
  }
  return kDoubt * overlapped({time, kLaunch + memory_time(p)}, kMemoryNorm);
}

double microseconds(const MatmulChoice& c, const ProductShape& p, int multiprocessors) {
  if (c.method == Method::kStreamK) return stream_k_microseconds(c, p, multiprocessors);
  const int cluster = cluster_ctas(c);
  const int64_t tiles = tiles_of(c, p) * c.parts;
  const int64_t at_once = c.method == Method::kSkinny ? std::max(multiprocessors / cluster, 1)
                                                      : clusters_at_once(cluster, multiprocessors);
  const int64_t full = tiles / at_once, left = tiles % at_once, waves = full + (left > 0 ? 1 : 0);
  const auto k_blocks = static_cast<double>(cdiv(cdiv(p.k, 64), c.split_k * c.parts));
  // Some waves, after which comes what happens once.
  const auto span = [&](int64_t some, int64_t clusters, double once) {
    const double share = static_cast<double>(clusters * cluster) / multiprocessors;
    const double work = static_cast<double>(some) * k_blocks * block_clocks(c, p, share) / kClock;
    const double of_memory = static_cast<double>(some * clusters) / static_cast<double>(tiles);
    return overlapped({work + once, memory_time(p) * of_memory + (once > 0 ? kLaunch : 0)}, kMemoryNorm);
  };
  const double once = kLaunch + kCluster * std::log2(cluster) + (c.split_k > 1 ? kSum : 0) +
                      store_time(c, static_cast<double>(waves));
  double time = full > 0 ? span(full, at_once, left > 0 ? 0 : once) : 0;
  if (left > 0) time += span(1, left, once);  // alone, each of them gets more from the L2 cache
  if (static_cast<double>(p.matrices) * static_cast<double>(p.m * p.n) * static_cast<double>(p.k) >
          kLargeProduct &&
      c.block_m * c.block_n != 128 * 256)
    time *= kPowerOfTiles;
  time *= c.method == Method::kSkinny ? kSkinnyDoubt : c.consumers == 1 ? kOneConsumer : 1;
  if (c.method == Method::kParts)
    return time + kSecondLaunch +
           static_cast<double>((4 * c.parts + 2) * p.matrices * p.m * p.n) / kPartBytes;
  return time * (waves == 1 || cluster <= 2 ? 1 : cluster <= 4 ? kClustersOf4 : kClustersOf8);
}

constexpr int64_t kMostLayers = 65535;  // of a grid's third dimension
constexpr int64_t kMostParts = 64;

bool is_possible(const MatmulChoice& c, const ProductShape& p, bool is_plain, int multiprocessors) {
  if (cluster_ctas(c) > multiprocessors) return false;
  if (c.is_tight && !is_plain) return false;
  if (c.method == Method::kSkinny) return p.m <= c.block_m && p.matrices <= kMostLayers;
  if (c.method == Method::kParts) {
    constexpr int64_t kLeastBlocks = 3, kMostElements = int64_t{1} << 27;  // of k per part; of all parts
    return c.parts > 1 && c.parts * c.split_k * kLeastBlocks <= cdiv(p.k, 64) && p.matrices <= kMostLayers &&
           c.parts * p.matrices * p.m * p.n <= kMostElements;
  }
  return c.split_k <= cdiv(p.k, 64);
}

/// Into how many parts k may be divided: so many that they fill some waves, as nearly as they can.
std::vector<int> parts_of(const MatmulChoice& c, const ProductShape& p, int multiprocessors) {
  if (c.method != Method::kParts) return {1};
  const int64_t tiles = tiles_of(c, p), at_once = clusters_at_once(cluster_ctas(c), multiprocessors);
  std::vector<int> parts;
  for (int64_t waves = 1; waves <= 3; ++waves)
    if (const int64_t count = waves * at_once / tiles; count > 1 && count <= kMostParts)
      parts.push_back(static_cast<int>(count));
  return parts;
}

}  // namespace

std::span<const MatmulChoice> matmul_candidates() { return kCandidates; }

MatmulChoice choose_matmul(int64_t m, int64_t n, int64_t k, bool is_plain, int multiprocessors,
                           int64_t matrices, std::span<const MatmulChoice> without) {
  const ProductShape p{m, n, k, matrices};
  const auto is_passed_over = [&](const MatmulChoice& c) {
    return std::ranges::find(without, c) != without.end();
  };
  MatmulChoice best;
  double least = 0;
  for (MatmulChoice candidate : kCandidates) {
    if (is_passed_over(candidate)) continue;
    for (int parts : parts_of(candidate, p, multiprocessors)) {
      candidate.parts = parts;
      if (!is_possible(candidate, p, is_plain, multiprocessors)) continue;
      const double time = microseconds(candidate, p, multiprocessors);
      if (best.block_m > 0 && time >= least) continue;
      best = candidate;
      least = time;
    }
  }
  for (const Measured& shape : kMeasured)
    if (shape.m == m && shape.n == n && shape.k == k && matrices == 1 &&
        is_possible(shape.choice, p, is_plain, multiprocessors) && !is_passed_over(shape.choice))
      best = shape.choice;
  // No more CTAs than the waves need: idle multiprocessors leave their power to the others. (Where a single
  // wave is not full the kernel itself launches fewer, so that all such m share a compiled kernel.)
  const int cluster = cluster_ctas(best);
  const int64_t at_once = clusters_at_once(cluster, multiprocessors),
                tiles = std::max(tiles_of(best, p) * best.parts, at_once);
  if (best.method == Method::kStreamK)
    best.ctas = multiprocessors;
  else if (best.method != Method::kSkinny)
    best.ctas = static_cast<int>(cluster * cdiv(tiles, cdiv(tiles, at_once)));
  return best;
}

MatmulChoice fastest_of(std::span<const MatmulChoice> tiles, int64_t m, int64_t n, int64_t k,
                        int multiprocessors, int64_t matrices) {
  const ProductShape p{m, n, k, matrices};
  return *std::ranges::min_element(
      tiles, {}, [&](const MatmulChoice& c) { return microseconds(c, p, multiprocessors); });
}

std::string MatmulChoice::text() const {
  const bool is_in_parts = method == Method::kParts;
  switch (method) {
    case Method::kSkinny:
      return fmt::format("hopper_matmul_skinny block_m={} block_k={} stages={} cluster_n={}", block_m,
                         block_k, stages, cluster_n);
    case Method::kStreamK:
      return fmt::format(
          "hopper_matmul_stream_k block_m={} block_n={} stages={} consumers={} cluster_m={} cluster_n={} "
          "swap_ab={} "
          "ctas={}",
          block_m, block_n, stages, consumers, cluster_m, cluster_n, int{swap_ab}, ctas);
    default:
      return fmt::format(
          "{} block_m={} block_n={} stages={} consumers={} split_k={} cluster_m={} "
          "cluster_n={} swap_ab={} store_stages={} ctas={}{}",
          is_in_parts ? "hopper_matmul_parts" : "hopper_matmul_h8", block_m, block_n, stages, consumers,
          split_k, cluster_m, cluster_n, int{swap_ab}, store_stages, ctas,
          is_in_parts ? fmt::format(" parts={}", parts) : "");
  }
}

}  // namespace imbrex
