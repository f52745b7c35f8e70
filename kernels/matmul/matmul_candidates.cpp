// SPDX-License-Identifier: Apache-2.0
// Kernels and tiles among which to choose: of 1000 that were measured those that are the fastest for some shapes. A test
// assembles each of them with all steps, but for the tight ones.
#include <span>

#include "matmul/matmul_choice.h"

namespace imbrex {
namespace {

/// Bytes of shared memory where results are float32, without barriers.
constexpr int shared_bytes(const MatmulChoice& c) {
  const int rows = (c.swap_ab ? c.block_n : c.block_m) * (c.takes_turns ? 2 : 1),  // of both who take turns
      columns = c.swap_ab ? c.block_m : c.block_n;                                 // of wgmma
  int stored = 0;
  if (c.swap_ab) {
    const int slices = (columns + 31) / 32;
    stored = rows * 4 * ((columns + 8 * slices - 1) / (8 * slices) * 8);
  } else {
    for (int width = 32, left = columns % 32; width > 0; width /= 2)
      if (width == 32 ? columns >= 32 : (left & width) != 0) stored += rows * 4 * width * c.store_stages;
  }
  return c.stages * (c.block_m + c.block_n) * c.block_k * 2 + stored +
         rows * columns * 4 * (c.split_k - 1) / c.split_k;
}
/// Whether steps find too few registers beside the sums, 232 where two warp groups multiply and 160 where three do, or their
/// results no shared memory.
constexpr bool is_tight(const MatmulChoice& c) {
  constexpr int kShared = 232448 - 512;
  const int sums = c.block_m * c.block_n / (128 * (c.takes_turns ? 1 : c.consumers));
  return sums >= (c.consumers == 3 ? 60 : 144) || shared_bytes(c) > kShared;
}
constexpr MatmulChoice general(int block_m, int block_n, int stages, int consumers, int split_k,
                               int cluster_m = 1, int cluster_n = 1) {
  MatmulChoice choice{.method = MatmulChoice::Method::kGeneral,
                      .block_m = block_m,
                      .block_n = block_n,
                      .stages = stages,
                      .consumers = consumers,
                      .cluster_m = cluster_m,
                      .cluster_n = cluster_n,
                      .split_k = split_k};
  choice.is_tight = is_tight(choice);
  return choice;
}
constexpr MatmulChoice swapped(int block_m, int block_n, int stages, int consumers, int split_k,
                               int cluster_m = 1, int cluster_n = 1) {
  MatmulChoice choice = general(block_m, block_n, stages, consumers, split_k, cluster_m, cluster_n);
  choice.swap_ab = true;
  choice.is_tight = is_tight(choice);
  return choice;
}
/// Of products with many tiles: one slice of a tile is stored while the next one is written.
constexpr MatmulChoice storing_two(MatmulChoice choice) {
  choice.store_stages = 2;
  choice.is_tight = is_tight(choice);
  return choice;
}
/// Consumers take turns, each with a tile of this size.
constexpr MatmulChoice in_turns(MatmulChoice choice) {
  choice.takes_turns = true;
  choice.consumers = 2;
  choice.is_tight = is_tight(choice);
  return choice;
}
constexpr MatmulChoice stream_k(int block_m, int block_n, int stages, int consumers, int cluster_m,
                                int cluster_n) {
  return {.method = MatmulChoice::Method::kStreamK,
          .block_m = block_m,
          .block_n = block_n,
          .stages = stages,
          .consumers = consumers,
          .cluster_m = cluster_m,
          .cluster_n = cluster_n};
}
/// The same tiles, k in parts that are launched on their own: their number comes with the product. Steps are made after.
constexpr MatmulChoice in_parts(MatmulChoice choice) {
  choice.method = MatmulChoice::Method::kParts;
  choice.is_tight = false;
  return choice;
}
/// As many columns of wgmma as there are rows of A.
constexpr MatmulChoice skinny(int block_m, int stages, int cluster_n) {
  return {.method = MatmulChoice::Method::kSkinny,
          .block_m = block_m,
          .block_n = 64,
          .block_k = 128,
          .stages = stages,
          .consumers = 1,
          .cluster_n = cluster_n,
          .swap_ab = true};
}

// clang-format off
constexpr MatmulChoice kCandidates[] = {
    skinny(8, 10, 1), skinny(16, 9, 1), skinny(32, 8, 2), skinny(64, 6, 4), general(64, 16, 12, 1, 1),
    general(64, 32, 12, 1, 1), general(64, 48, 12, 1, 1, 1, 4), general(64, 48, 12, 1, 1, 2, 2),
    general(64, 56, 12, 1, 1, 1, 8), general(64, 64, 12, 1, 1), general(64, 64, 12, 1, 1, 4, 2),
    general(64, 72, 12, 1, 1), general(64, 80, 11, 1, 1, 1, 8), general(64, 80, 11, 1, 1, 2, 2),
    general(64, 80, 11, 1, 1, 2, 4), general(64, 88, 11, 1, 1, 1, 8), general(64, 96, 10, 1, 1),
    general(64, 96, 10, 1, 1, 1, 8), general(64, 96, 10, 1, 1, 2, 2), general(64, 96, 10, 1, 1, 2, 4),
    general(64, 96, 10, 1, 1, 4, 2), general(64, 104, 10, 1, 1, 1, 4), general(64, 112, 9, 1, 1, 1, 8),
    general(64, 120, 9, 1, 1, 1, 8), general(64, 128, 9, 1, 1, 1, 4), general(64, 128, 9, 1, 1, 4, 2),
    general(64, 128, 9, 1, 1, 8), general(64, 136, 8, 1, 1, 1, 4), general(64, 144, 8, 1, 1),
    general(64, 144, 8, 1, 1, 2, 4), general(64, 160, 7, 1, 1, 2), general(64, 192, 6, 1, 1, 2),
    general(64, 208, 6, 1, 1, 2), general(64, 208, 6, 1, 1, 2, 2), general(128, 72, 8, 2, 1, 1, 4),
    general(128, 80, 7, 2, 1, 1, 8), general(128, 80, 7, 2, 1, 2, 4), general(128, 88, 7, 2, 1, 1, 8),
    general(128, 96, 7, 2, 1, 2, 4), general(128, 104, 6, 2, 1), general(128, 104, 6, 2, 1, 1, 2),
    general(128, 112, 6, 2, 1, 2, 4), storing_two(general(128, 128, 5, 2, 1, 2)),
    general(128, 128, 6, 2, 1, 2, 4), general(128, 136, 6, 2, 1, 1, 8), general(128, 144, 5, 2, 1, 2, 2),
    general(128, 144, 6, 2, 1, 1, 2), general(128, 144, 6, 2, 1, 2), general(128, 144, 6, 2, 1, 2, 2),
    general(128, 160, 5, 2, 1), general(128, 160, 5, 2, 1, 1, 2), general(128, 160, 5, 2, 1, 4, 2),
    general(128, 168, 5, 2, 1, 1, 2), general(128, 176, 5, 2, 1, 2), general(128, 176, 5, 2, 1, 2, 2),
    general(128, 200, 5, 2, 1, 1, 2), general(128, 208, 4, 2, 1, 2), general(128, 224, 4, 2, 1, 1, 2),
    general(128, 224, 4, 2, 1, 2), general(128, 224, 4, 2, 1, 4, 2), general(128, 240, 4, 2, 1, 2),
    storing_two(general(128, 256, 4, 2, 1, 2)), general(192, 72, 6, 3, 1, 1, 4),
    general(192, 80, 5, 3, 1, 1, 4), general(192, 88, 5, 3, 1, 1, 8), general(192, 96, 5, 3, 1, 1, 2),
    general(192, 104, 5, 3, 1, 1, 4), general(192, 112, 4, 3, 1, 1, 2), general(192, 120, 4, 3, 1),
    general(192, 120, 4, 3, 1, 1, 2), general(192, 128, 5, 3, 1, 1, 2), general(192, 128, 5, 3, 1, 1, 4),
    general(192, 144, 4, 3, 1), general(192, 144, 4, 3, 1, 1, 2), general(192, 152, 4, 3, 1, 1, 2),
    general(192, 152, 4, 3, 1, 1, 4), general(192, 160, 4, 3, 1, 1, 2), general(192, 168, 4, 3, 1, 1, 2),
    general(192, 176, 4, 3, 1, 1, 2), general(192, 192, 4, 3, 1), general(192, 192, 4, 3, 1, 1, 2),
    general(192, 192, 4, 3, 1, 2), general(192, 200, 4, 3, 1), general(256, 128, 4, 2, 1, 1, 2),
    general(256, 144, 3, 2, 1, 1, 2), general(256, 160, 3, 2, 1), general(256, 160, 3, 2, 1, 1, 2),
    general(256, 176, 3, 2, 1, 1, 2), swapped(8, 64, 12, 1, 1), swapped(16, 64, 12, 1, 1),
    swapped(16, 64, 12, 1, 2), swapped(16, 64, 12, 1, 1, 1, 2), swapped(24, 64, 12, 1, 1),
    swapped(32, 64, 12, 1, 1), swapped(32, 64, 12, 1, 1, 1, 4), swapped(32, 64, 12, 1, 1, 2, 2),
    swapped(40, 64, 12, 1, 1), swapped(40, 64, 12, 1, 1, 2), swapped(48, 64, 12, 1, 1),
    swapped(48, 64, 12, 1, 1, 1, 2), swapped(48, 64, 12, 1, 1, 2), swapped(48, 64, 12, 1, 1, 2, 2),
    swapped(56, 64, 12, 1, 1), swapped(56, 64, 12, 1, 1, 2), swapped(64, 64, 12, 1, 1),
    swapped(64, 64, 12, 1, 1, 1, 2), swapped(64, 64, 12, 1, 1, 1, 4), swapped(64, 64, 12, 1, 1, 1, 8),
    swapped(72, 64, 12, 1, 1), swapped(72, 64, 12, 1, 1, 4), swapped(80, 64, 12, 1, 1),
    swapped(80, 64, 12, 1, 1, 1, 2), swapped(80, 64, 12, 1, 1, 4, 2), swapped(88, 64, 11, 1, 1),
    swapped(96, 64, 10, 1, 1), swapped(96, 64, 10, 1, 1, 1, 2), swapped(96, 64, 10, 1, 1, 1, 4),
    swapped(96, 64, 10, 1, 1, 2, 4), swapped(112, 64, 9, 1, 1), swapped(112, 64, 9, 1, 1, 1, 2),
    swapped(112, 64, 9, 1, 1, 2, 2), swapped(128, 64, 9, 1, 1, 1, 4), swapped(128, 64, 9, 1, 1, 1, 8),
    swapped(128, 64, 9, 1, 1, 2, 2), swapped(136, 64, 8, 1, 1), swapped(144, 64, 8, 1, 1, 1, 2),
    swapped(160, 64, 7, 1, 1, 1, 4), swapped(192, 64, 6, 1, 1, 1, 4), swapped(192, 64, 6, 1, 1, 2, 4),
    swapped(224, 64, 6, 1, 1, 1, 4), swapped(224, 64, 6, 1, 1, 4, 2), swapped(8, 128, 12, 2, 1),
    swapped(16, 128, 12, 2, 1), swapped(16, 128, 12, 2, 1, 1, 2), swapped(24, 128, 11, 2, 1),
    swapped(32, 128, 10, 2, 1), swapped(32, 128, 10, 2, 1, 1, 2), swapped(32, 128, 10, 2, 1, 1, 4),
    swapped(40, 128, 10, 2, 1), swapped(56, 128, 9, 2, 1, 4), swapped(72, 128, 8, 2, 1),
    swapped(72, 128, 8, 2, 1, 4), swapped(80, 128, 8, 2, 1), swapped(80, 128, 8, 2, 1, 2, 2),
    swapped(80, 128, 8, 2, 1, 4), swapped(96, 128, 7, 2, 1), swapped(96, 128, 7, 2, 1, 1, 4),
    swapped(96, 128, 7, 2, 1, 8), swapped(104, 128, 7, 2, 1, 8), swapped(112, 128, 7, 2, 1, 2),
    swapped(112, 128, 7, 2, 1, 2, 2), swapped(112, 128, 7, 2, 1, 4), swapped(112, 128, 7, 2, 1, 4, 2),
    swapped(120, 128, 6, 2, 1), swapped(128, 128, 6, 2, 1, 1, 8), swapped(144, 128, 6, 2, 1, 1, 2),
    swapped(152, 128, 6, 2, 1), swapped(160, 128, 5, 2, 1, 1, 4), swapped(160, 128, 5, 2, 1, 2, 4),
    swapped(168, 128, 5, 2, 1, 2), swapped(176, 128, 5, 2, 1, 1, 2), swapped(176, 128, 5, 2, 1, 2),
    swapped(176, 128, 5, 2, 1, 2, 2), swapped(184, 128, 5, 2, 1, 2), swapped(192, 128, 5, 2, 1, 1, 8),
    swapped(192, 128, 5, 2, 1, 2, 2), swapped(200, 128, 5, 2, 1), swapped(208, 128, 5, 2, 1, 1, 2),
    swapped(208, 128, 5, 2, 1, 2), swapped(208, 128, 5, 2, 1, 2, 2), swapped(224, 128, 4, 2, 1, 1, 2),
    swapped(224, 128, 4, 2, 1, 2), swapped(232, 128, 4, 2, 1, 2), swapped(240, 128, 4, 2, 1, 1, 2),
    swapped(8, 192, 8, 3, 1), swapped(16, 192, 8, 3, 1), swapped(40, 192, 7, 3, 1, 2),
    swapped(48, 192, 6, 3, 1, 2), swapped(48, 192, 6, 3, 1, 4), swapped(64, 192, 6, 3, 1, 2),
    swapped(64, 192, 6, 3, 1, 4), swapped(72, 192, 6, 3, 1, 2), swapped(72, 192, 6, 3, 1, 4),
    swapped(80, 192, 6, 3, 1, 2), swapped(80, 192, 6, 3, 1, 2, 2), swapped(80, 192, 6, 3, 1, 4),
    swapped(80, 192, 6, 3, 1, 4, 2), swapped(88, 192, 5, 3, 1, 2), swapped(96, 192, 5, 3, 1, 2),
    swapped(104, 192, 5, 3, 1, 2), swapped(104, 192, 5, 3, 1, 4), swapped(112, 192, 5, 3, 1, 1, 2),
    swapped(112, 192, 5, 3, 1, 2), swapped(112, 192, 5, 3, 1, 2, 2), swapped(112, 192, 5, 3, 1, 4, 2),
    swapped(120, 192, 5, 3, 1), swapped(120, 192, 5, 3, 1, 2), swapped(120, 192, 5, 3, 1, 4),
    swapped(128, 192, 5, 3, 1, 2), swapped(128, 192, 5, 3, 1, 4), swapped(128, 192, 5, 3, 1, 8),
    swapped(136, 192, 5, 3, 1, 2), swapped(144, 192, 4, 3, 1, 1, 2), swapped(144, 192, 4, 3, 1, 2),
    swapped(144, 192, 4, 3, 1, 2, 2), swapped(152, 192, 4, 3, 1), swapped(152, 192, 4, 3, 1, 2),
    swapped(160, 192, 4, 3, 1, 1, 2), swapped(160, 192, 4, 3, 1, 2), swapped(168, 192, 4, 3, 1),
    swapped(168, 192, 4, 3, 1, 2), swapped(176, 192, 4, 3, 1, 1, 2), swapped(176, 192, 4, 3, 1, 2),
    swapped(176, 192, 4, 3, 1, 2, 2), swapped(184, 192, 4, 3, 1, 2), swapped(192, 192, 4, 3, 1, 1, 8),
    swapped(192, 192, 4, 3, 1, 2), swapped(200, 192, 4, 3, 1, 2), swapped(80, 256, 5, 2, 1, 2),
    swapped(104, 256, 4, 2, 1, 2), swapped(112, 256, 4, 2, 1, 2), swapped(136, 256, 4, 2, 1, 2),
    swapped(144, 256, 4, 2, 1), swapped(144, 256, 4, 2, 1, 2), swapped(152, 256, 4, 2, 1),
    swapped(152, 256, 4, 2, 1, 2), swapped(160, 256, 4, 2, 1), swapped(160, 256, 4, 2, 1, 1, 2),
    swapped(160, 256, 4, 2, 1, 2), swapped(168, 256, 3, 2, 1, 2), swapped(176, 256, 3, 2, 1, 2),
    in_turns(general(128, 192, 4, 2, 1, 1, 2)), in_turns(general(128, 192, 4, 2, 1, 2)),
    in_turns(swapped(160, 128, 5, 2, 1, 1, 2)), in_turns(swapped(176, 128, 5, 2, 1, 1, 2)),
    in_turns(swapped(176, 128, 5, 2, 1, 2)), in_turns(swapped(192, 128, 5, 2, 1, 1, 2)),
    in_turns(swapped(192, 128, 5, 2, 1, 2)), in_parts(general(64, 40, 12, 1, 1)),
    in_parts(general(64, 40, 12, 1, 1, 1, 2)), in_parts(general(64, 48, 12, 1, 1)),
    in_parts(general(64, 64, 12, 1, 1)), in_parts(general(64, 72, 12, 1, 1)),
    in_parts(general(64, 96, 10, 1, 1, 1, 4)), in_parts(general(64, 96, 10, 1, 1, 2, 2)),
    in_parts(general(64, 160, 7, 1, 1, 2, 2)), in_parts(general(64, 176, 7, 1, 1, 2, 2)),
    in_parts(general(128, 160, 5, 2, 1, 2, 2)), in_parts(swapped(8, 64, 12, 1, 1)),
    in_parts(swapped(8, 64, 12, 1, 1, 2)), in_parts(swapped(8, 64, 12, 1, 1, 4)),
    in_parts(swapped(16, 64, 12, 1, 1)), in_parts(swapped(16, 64, 12, 1, 1, 1, 2)),
    in_parts(swapped(16, 64, 12, 1, 1, 2, 2)), in_parts(swapped(24, 64, 12, 1, 1)),
    in_parts(swapped(32, 64, 12, 1, 1)), in_parts(swapped(32, 64, 12, 1, 1, 1, 2)),
    in_parts(swapped(32, 64, 12, 1, 1, 1, 4)), in_parts(swapped(40, 64, 12, 1, 1)),
    in_parts(swapped(48, 64, 12, 1, 1)), in_parts(swapped(48, 64, 12, 1, 1, 1, 2)),
    in_parts(swapped(48, 64, 12, 1, 1, 2, 2)), in_parts(swapped(64, 64, 12, 1, 1, 1, 2)),
    in_parts(swapped(64, 64, 12, 1, 1, 1, 4)), in_parts(swapped(64, 64, 12, 1, 1, 2, 2)),
    in_parts(swapped(72, 64, 12, 1, 1)), in_parts(swapped(80, 64, 12, 1, 1, 2)),
    in_parts(swapped(80, 64, 12, 1, 1, 2, 2)), in_parts(swapped(88, 64, 11, 1, 1)),
    in_parts(swapped(96, 64, 10, 1, 1, 1, 2)), in_parts(swapped(96, 64, 10, 1, 1, 1, 4)),
    in_parts(swapped(96, 64, 10, 1, 1, 2, 2)), in_parts(swapped(112, 64, 9, 1, 1, 1, 2)),
    in_parts(swapped(112, 64, 9, 1, 1, 2, 2)), in_parts(swapped(160, 64, 7, 1, 1, 1, 4)),
    in_parts(swapped(80, 128, 8, 2, 1, 2, 2)), in_parts(swapped(96, 128, 7, 2, 1, 2, 2)),
    in_parts(swapped(144, 128, 6, 2, 1, 2, 2)), in_parts(swapped(192, 128, 5, 2, 1, 1, 4)),
    in_parts(swapped(208, 128, 5, 2, 1, 1, 2)), in_parts(swapped(208, 128, 5, 2, 1, 2, 2)),
    in_parts(swapped(224, 128, 4, 2, 1, 2, 2)), in_parts(swapped(72, 192, 6, 3, 1, 4)),
    in_parts(swapped(104, 192, 5, 3, 1, 2)), in_parts(swapped(112, 192, 5, 3, 1, 2)),
    in_parts(swapped(144, 192, 4, 3, 1, 2))};
// clang-format on

}  // namespace

std::span<const MatmulChoice> matmul_candidates() { return kCandidates; }

bool takes_any_order(const MatmulChoice& choice) {
  const int columns = choice.swap_ab ? choice.block_m : choice.block_n;  // of wgmma
  return choice.consumers < 3 || columns <= 128 || columns % 16 == 0;
}

}  // namespace imbrex
