// SPDX-License-Identifier: Apache-2.0
// A model of the time that each kernel with each of its tiles takes, fitted to measurements on an H200
// (bench_hopper --json; docs/performance.md says how well it chooses).
#include "matmul_choice.h"

#include <fmt/format.h>

#include <algorithm>

namespace imbrex {
namespace {

using Method = MatmulChoice::Method;

int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

/// Kernels and tiles among which to choose: each is a candidate of its kernel's space(), where tests see to
/// it that it is right and assembles without spills.
constexpr MatmulChoice general(int block_m, int block_n, int stages, int consumers, int splits, int pair,
                               bool is_tight = false) {
  return {.method = Method::kGeneral,
          .block_m = block_m,
          .block_n = block_n,
          .stages = stages,
          .consumers = consumers,
          .pair = pair,
          .splits = splits,
          .is_tight = is_tight};
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
constexpr MatmulChoice skinny(int block_m, int block_k, int stages, int pair) {
  return {.method = Method::kSkinny,
          .block_m = block_m,
          .block_n = 64,
          .block_k = block_k,
          .stages = stages,
          .consumers = 1,
          .pair = pair};
}
constexpr MatmulChoice kCandidates[] = {skinny(8, 128, 10, 1),
                                        skinny(16, 128, 9, 1),
                                        skinny(32, 128, 8, 2),
                                        skinny(64, 128, 6, 2),
                                        skinny(128, 64, 8, 2),
                                        skinny(128, 64, 8, 4),
                                        large(128, 256, 4, 2),
                                        large(128, 192, 5, 1),
                                        large(128, 128, 5, 2),
                                        general(128, 128, 6, 2, 1, 1),
                                        general(128, 144, 5, 2, 1, 1),
                                        general(128, 160, 5, 2, 1, 1),
                                        general(128, 176, 5, 2, 1, 1),
                                        general(128, 192, 5, 2, 1, 1),
                                        general(128, 208, 4, 2, 1, 1),
                                        general(128, 256, 4, 2, 1, 1),
                                        general(192, 128, 5, 3, 1, 1),
                                        general(192, 160, 4, 3, 1, 1, true),
                                        general(192, 192, 4, 3, 1, 1, true),
                                        general(256, 128, 4, 2, 1, 1, true),
                                        general(64, 128, 8, 1, 1, 1),
                                        general(128, 128, 6, 2, 1, 2),
                                        general(128, 192, 5, 2, 1, 2),
                                        general(128, 128, 5, 2, 2, 1),
                                        general(64, 128, 6, 1, 2, 1),
                                        general(192, 128, 3, 3, 2, 1),
                                        general(192, 160, 3, 3, 2, 1, true),
                                        general(128, 224, 3, 2, 2, 1, true),
                                        general(128, 96, 6, 2, 3, 1),
                                        general(64, 128, 6, 1, 4, 1)};

// ------------------------------------------------------------------------------------------------ the model
//
// Fitted to 31 shapes times all candidates: near the fastest the error is 10 %, and what is chosen takes 1.4
// % longer than the best on average.

constexpr double kClock = 1576;          // MHz, on average, of products too long for bursts
constexpr double kL2BytesPerClock = 80;  // what a multiprocessor gets from the L2 cache, when all ask
constexpr double kCrookedRows = 1.7;     // more of it where rows of 128 bytes lie in two lines of memory
constexpr double kMemory = 3.9e6;        // bytes a microsecond
constexpr double kLaunch = 1.6;          // microseconds
constexpr double kTile = 1.0, kTileArea = 1.8;  // microseconds: a tile's start and end, and of 128 x 256
constexpr double kSumArea = 5.9;                // microseconds: adding up the parts of such a tile
constexpr double kCluster = 1.4;                // microseconds: CTAs that start together

/// The tensor cores' clocks over what their rate gives: smaller tiles read shared memory more often, one
/// consumer cannot keep the cores busy, three meet, and what CTAs do not load for each other costs power, and
/// with it clock.
double slowness(const MatmulChoice& c) {
  if (c.consumers == 1) return 1.16;
  const int area = c.block_m * c.block_n;
  return (area >= 30'000   ? 1
          : area >= 22'000 ? 1.02
                           : 1.03) *
         (c.consumers == 3 ? 1.03 : 1) * (c.pair == 1 ? 1.015 : 1);
}

/// Clusters that run at once: where they are of more than two, not every multiprocessor finds a place.
int64_t clusters_at_once(int ctas, int multiprocessors) {
  const int64_t all = std::max(multiprocessors / ctas, 1);
  return ctas <= 2 ? all : std::max<int64_t>(all * 31 / 32, 1);
}

struct Shape {
  int64_t m, n, k;
};

int64_t tiles_of(const MatmulChoice& c, const Shape& p) {
  const bool shares_a = c.method == Method::kSkinny;
  return divide_up(p.m, c.block_m * (shares_a ? 1 : c.pair)) *
         divide_up(p.n, c.block_n * (shares_a ? c.pair : 1));
}

double microseconds(const MatmulChoice& c, const Shape& p, int multiprocessors) {
  const int64_t waves = divide_up(tiles_of(c, p), clusters_at_once(c.pair * c.splits, multiprocessors));
  const auto k_blocks = static_cast<double>(divide_up(divide_up(p.k, 64), c.splits));
  // Of 64 of k: the tensor cores' clocks, and the L2 cache's.
  const double area = c.block_m * c.block_n, share = area / (128 * 256);
  const double rows = c.method == Method::kSkinny ? c.block_n + static_cast<double>(c.block_m) / c.pair
                                                  : c.block_m + static_cast<double>(c.block_n) / c.pair;
  const double loads = rows * 128 / kL2BytesPerClock * (p.k % 64 == 0 ? 1 : kCrookedRows);
  const double block = std::max(area / 32 * slowness(c), loads) / kClock;
  double time = kLaunch + static_cast<double>(waves) * (k_blocks * block + kTile + kTileArea * share);
  if (c.splits > 1) time += kSumArea * share * (c.splits - 1) / c.splits;
  if (c.pair * c.splits > 1) time += kCluster;
  const double bytes = 2.0 * static_cast<double>(p.m * p.k + p.n * p.k + p.m * p.n);
  return std::max(time, kLaunch + bytes / kMemory);
}

bool is_possible(const MatmulChoice& c, const Shape& p, bool has_tma_rows, bool is_plain) {
  if (c.is_tight && !is_plain) return false;
  if (c.method == Method::kSkinny) return p.m <= c.block_m;
  if (c.method == Method::kLarge) return has_tma_rows;
  return c.splits <= divide_up(p.k, 64);
}

}  // namespace

MatmulChoice choose_matmul(int64_t m, int64_t n, int64_t k, bool has_tma_rows, bool is_plain,
                           int multiprocessors) {
  const Shape p{m, n, k};
  MatmulChoice best;
  double least = 0;
  for (const MatmulChoice& candidate : kCandidates) {
    if (!is_possible(candidate, p, has_tma_rows, is_plain)) continue;
    const double time = microseconds(candidate, p, multiprocessors);
    if (best.block_m > 0 && time >= least) continue;
    best = candidate;
    least = time;
  }
  // No more CTAs than the waves need: those left dark leave their power to the others. (The kernel sees to it
  // where a single wave is not full, so that any such m finds it compiled.)
  const int cluster = best.pair * best.splits;
  const int64_t at_once = clusters_at_once(cluster, multiprocessors),
                tiles = std::max(tiles_of(best, p), at_once);
  if (best.method != Method::kSkinny)
    best.ctas = static_cast<int>(cluster * divide_up(tiles, divide_up(tiles, at_once)));
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
          "hopper_matmul_h8 block_m={} block_n={} stages={} consumers={} splits={} pair={} ctas={}", block_m,
          block_n, stages, consumers, splits, pair, ctas);
  }
}

}  // namespace imbrex
