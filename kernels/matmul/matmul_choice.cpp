// SPDX-License-Identifier: Apache-2.0
#include "matmul/matmul_choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <vector>

#include "imbrex/lang/scalar.h"
#include "matmul/matmul_time.h"

namespace imbrex {
namespace {

using Method = MatmulChoice::Method;

/// Shapes of language models whose fastest candidate was measured, and for which the model takes one that is
/// more than 1.2 % slower.
struct Measured {
  int64_t m, n, k;
  int block_m, block_n, cluster_m, cluster_n;  // of a general candidate, the only one with these
  bool swap_ab, takes_turns = false;
};
constexpr Measured kMeasured[] = {
    {32, 10240, 8192, 64, 96, 1, 8, false},          {128, 4096, 14336, 64, 80, 2, 2, false},
    {256, 8192, 8192, 128, 128, 2, 1, false},        {4096, 24576, 1536, 160, 128, 1, 2, true, true},
    {4096, 32768, 512, 128, 192, 2, 1, false, true}, {8192, 3072, 1024, 128, 192, 1, 2, false, true},
    {8192, 8192, 8192, 128, 256, 2, 1, false},       {8192, 8192, 28672, 128, 256, 2, 1, false}};

bool is_for(const Measured& shape, const MatmulChoice& c) {
  return c.method == Method::kGeneral && c.split_k == 1 && c.block_m == shape.block_m &&
         c.block_n == shape.block_n && c.cluster_m == shape.cluster_m && c.cluster_n == shape.cluster_n &&
         c.swap_ab == shape.swap_ab && c.takes_turns == shape.takes_turns;
}

constexpr int64_t kMostLayers = 65535;  // of a grid's third dimension
constexpr int64_t kMostParts = 64;
constexpr int64_t kTooLongForTurns =
    8192;  // from such a k on, what consumers in turns save is less than they lose

bool is_possible(const MatmulChoice& c, const ProductShape& p, bool is_plain, int multiprocessors) {
  if (cluster_ctas(c) > multiprocessors) return false;
  if (c.is_tight && !is_plain) return false;
  if (c.takes_turns && p.k >= kTooLongForTurns) return false;
  if (c.method == Method::kSkinny) return p.m <= c.block_m && p.matrices <= kMostLayers;
  if (c.method == Method::kParts) {
    constexpr int64_t kLeastBlocks = 3, kMostElements = int64_t{1} << 27;  // of k per part; of all parts
    return c.parts * c.split_k * kLeastBlocks <= cdiv(p.k, 64) && p.matrices <= kMostLayers &&
           c.parts * p.matrices * p.m * p.n <= kMostElements;
  }
  return c.split_k <= cdiv(p.k, 64);
}

/// Into how many parts k may be divided: so many that they fill some waves, as nearly as they can. Zeros are none.
std::array<int, 3> parts_of(const MatmulChoice& c, const ProductShape& p, int multiprocessors) {
  if (c.method != Method::kParts) return {1};
  const int64_t tiles = tiles_of(c, p), at_once = clusters_at_once(cluster_ctas(c), multiprocessors);
  std::array<int, 3> parts{};
  for (size_t i = 0; i < parts.size(); ++i)
    if (const int64_t count = static_cast<int64_t>(i + 1) * at_once / tiles; count > 1 && count <= kMostParts)
      parts[i] = static_cast<int>(count);
  return parts;
}

/// A candidate with a number of parts, what it takes at least, and what it is thought to take.
struct Considered {
  MatmulChoice choice;
  double least, estimate = 0;
};
/// The correction was learned from choices whose estimates are as close to the least, and from single products.
constexpr double kClose = 1.3;

/// Estimates those that may be close to the least; the others are left out.
void keep_close(std::vector<Considered>& all, const ProductShape& p, int multiprocessors) {
  double least = std::numeric_limits<double>::infinity();
  const auto estimate = [&](Considered& c) {
    c.estimate = estimated_microseconds(c.choice, p, multiprocessors);
    least = std::min(least, c.estimate);
  };
  if (!all.empty()) estimate(*std::ranges::min_element(all, {}, &Considered::least));
  for (Considered& c : all)
    if (c.estimate == 0 && c.least <= kClose * least) estimate(c);
  std::erase_if(all, [&](const Considered& c) { return c.estimate == 0 || c.estimate > kClose * least; });
}

}  // namespace

MatmulChoice choose_matmul(int64_t m, int64_t n, int64_t k, bool is_plain, int multiprocessors,
                           int64_t matrices, std::span<const MatmulChoice> without, bool any_order) {
  const ProductShape p{m, n, k, matrices};
  const auto is_passed_over = [&](const MatmulChoice& c) {
    return std::ranges::find(without, c) != without.end();
  };
  std::vector<Considered> considered;
  considered.reserve(matmul_candidates().size() * 3 / 2);
  for (MatmulChoice candidate : matmul_candidates()) {
    if ((any_order && !takes_any_order(candidate)) || is_passed_over(candidate)) continue;
    for (int parts : parts_of(candidate, p, multiprocessors)) {
      candidate.parts = parts;
      if (parts == 0 || !is_possible(candidate, p, is_plain, multiprocessors)) continue;
      considered.push_back({candidate, least_microseconds(candidate, p, multiprocessors)});
    }
  }
  keep_close(considered, p, multiprocessors);
  MatmulChoice best;
  double best_time = std::numeric_limits<double>::infinity();
  for (const Considered& c : considered) {
    const double time =
        matrices == 1 ? corrected_microseconds(c.choice, p, multiprocessors, c.estimate) : c.estimate;
    if (time >= best_time) continue;
    best = c.choice;
    best_time = time;
  }
  if (matrices == 1)
    for (const Measured& shape : kMeasured)
      for (const Considered& c : considered)
        if (shape.m == m && shape.n == n && shape.k == k && is_for(shape, c.choice)) best = c.choice;
  set_ctas(best, p, multiprocessors);
  return best;
}

MatmulChoice choose_in_parts(int64_t m, int64_t n, int64_t k, int multiprocessors) {
  const ProductShape p{m, n, k};
  MatmulChoice best;
  double best_time = std::numeric_limits<double>::infinity();
  for (MatmulChoice c : matmul_candidates()) {
    if (c.method != Method::kParts) continue;
    std::array<int, 4> counts{1};
    std::ranges::copy(parts_of(c, p, multiprocessors), counts.begin() + 1);
    for (int parts : counts) {
      c.parts = parts;
      if (parts == 0 || !is_possible(c, p, true, multiprocessors)) continue;
      const double time =
          corrected_microseconds(c, p, multiprocessors, estimated_microseconds(c, p, multiprocessors));
      if (time >= best_time) continue;
      best = c;
      best_time = time;
    }
  }
  set_ctas(best, p, multiprocessors);
  return best;
}

MatmulChoice fastest_of(std::span<const MatmulChoice> tiles, int64_t m, int64_t n, int64_t k,
                        int multiprocessors) {
  const ProductShape p{m, n, k};
  return *std::ranges::min_element(tiles, {}, [&](const MatmulChoice& c) {
    constexpr double kThreeConsumers = 1.08;  // steps of whole tiles take registers that they do not have
    constexpr double kTight = 1.051, kThreeTight = 1.17;
    const double factor = c.consumers == 3 ? c.is_tight ? kThreeTight : kThreeConsumers
                          : c.is_tight     ? kTight
                                           : 1;
    return factor * estimated_microseconds(c, p, multiprocessors);
  });
}

std::string MatmulChoice::text() const {
  const bool is_in_parts = method == Method::kParts;
  switch (method) {
    case Method::kSkinny:
      return fmt::format("hopper_matmul_skinny block_m={} block_n={} block_k={} stages={} cluster_n={}{}",
                         block_m, block_n, block_k, stages, cluster_n,
                         split_k > 1 ? fmt::format(" split_k={}", split_k) : "");
    case Method::kStreamK:
      return fmt::format(
          "hopper_matmul_stream_k block_m={} block_n={} stages={} consumers={} cluster_m={} cluster_n={} "
          "swap_ab={} "
          "ctas={}",
          block_m, block_n, stages, consumers, cluster_m, cluster_n, int{swap_ab}, ctas);
    default:
      return fmt::format(
          "{} block_m={} block_n={} stages={} consumers={} split_k={} cluster_m={} "
          "cluster_n={} swap_ab={} store_stages={}{} ctas={}{}",
          is_in_parts ? "hopper_matmul_parts" : "hopper_matmul_h8", block_m, block_n, stages, consumers,
          split_k, cluster_m, cluster_n, int{swap_ab}, store_stages, takes_turns ? " takes_turns=1" : "",
          ctas, is_in_parts ? fmt::format(" parts={}", parts) : "");
  }
}

}  // namespace imbrex
