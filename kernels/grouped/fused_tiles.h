// SPDX-License-Identifier: Apache-2.0
// The tiles of gated_matmul() and quantised_matmul(), and the machine code that is shipped for them.
#pragma once

#include <span>
#include <vector>

#include "grouped/tiled_kernels.h"
#include "imbrex/kernels/fused_matmul.h"
#include "imbrex/kernels/matmul.h"

namespace imbrex {

/// A tile whose sums leave few registers for what is done to a whole block.
constexpr MatmulChoice tight(MatmulChoice tile) {
  tile.is_tight = true;
  return tile;
}

/// Among which to choose. Half of a tile's columns are factors where a product is gated; a scale belongs to 128 columns of
/// a result.
inline std::span<const MatmulChoice> fused_tiles(bool is_gated, bool quantises) {
  static constexpr MatmulChoice kTiles[] = {
      grouped_tile(128, 256, 4, 2, 1, 2, 2),        grouped_tile(128, 256, 4, 2, 2, 1, 2),
      grouped_tile(64, 256, 5, 1, 1, 1, 2),         grouped_tile(256, 128, 4, 2, 2, 1, 1),
      grouped_tile(192, 128, 5, 3, 1, 2, 1),        grouped_tile(128, 128, 6, 2, 1, 2, 1),
      grouped_tile(128, 128, 6, 2, 2, 1, 1),        grouped_tile(64, 128, 8, 1, 1, 1, 1),
      grouped_tile(128, 192, 5, 2, 1, 2, 1),        grouped_tile(64, 64, 12, 1, 1, 1, 1),
      tight(grouped_tile(128, 224, 4, 2, 2, 1, 1)), tight(grouped_tile(128, 224, 4, 2, 1, 2, 1))};
  static constexpr MatmulChoice kQuantised[] = {
      tight(grouped_tile(128, 256, 4, 2, 1, 2, 2)), tight(grouped_tile(128, 256, 4, 2, 2, 1, 2)),
      tight(grouped_tile(64, 256, 5, 1, 1, 1, 2)),  tight(grouped_tile(256, 128, 4, 2, 2, 1, 1)),
      tight(grouped_tile(192, 128, 5, 3, 1, 2, 1)), grouped_tile(128, 128, 6, 2, 2, 1, 1),
      grouped_tile(128, 128, 6, 2, 1, 2, 1),        grouped_tile(64, 128, 8, 1, 1, 1, 1)};
  constexpr size_t kTwoBlocks = 3;  // so many have 256 columns
  if (!quantises) return kTiles;
  return is_gated ? std::span(kTiles).first(kTwoBlocks) : std::span<const MatmulChoice>(kQuantised);
}

/// A tile of HopperMatmulH8 whose consumers take turns.
constexpr MatmulChoice in_turns(bool swap_ab, int block_m, int block_n, int stages, int cluster_m,
                                int cluster_n) {
  MatmulChoice tile = grouped_tile(block_m, block_n, stages, 2, cluster_m, cluster_n, 1);
  tile.swap_ab = swap_ab;
  tile.takes_turns = true;
  return tile;
}
/// Of gated products with many rows: one consumer multiplies while the other activates and stores.
inline std::span<const MatmulChoice> gated_tiles_in_turns() {
  static constexpr MatmulChoice kTiles[] = {
      in_turns(true, 176, 128, 5, 2, 1),  in_turns(true, 176, 128, 5, 1, 2),
      in_turns(true, 160, 128, 5, 1, 2),  in_turns(false, 128, 192, 4, 2, 1),
      in_turns(false, 128, 160, 5, 2, 1), in_turns(false, 128, 160, 5, 1, 2)};
  return kTiles;
}
/// Whether they are faster than fused_tiles(), by bench_gated --tiles: then also where the result is quantised, by a second
/// launch.
constexpr bool gates_in_turns(int64_t m) {
  constexpr int64_t kManyRows = 512;
  return m >= kManyRows;
}

/// A tile of HopperFewRows.
constexpr MatmulChoice few_rows(int block_m, int block_n, int stages, int cluster_n, int split_k) {
  MatmulChoice tile = grouped_tile(block_m, block_n, stages, 1, 1, cluster_n, 1);
  tile.method = MatmulChoice::Method::kSkinny;
  tile.split_k = split_k;
  tile.swap_ab = true;
  return tile;
}
/// For few rows: those of bench_gated --tiles that were the fastest for some number of rows and columns, in the order of
/// tile_of_few_rows(). CTAs with 64 columns of a block of 128 come in clusters of two or four.
inline std::span<const MatmulChoice> few_row_tiles(bool is_gated, bool quantises) {
  static constexpr MatmulChoice kTiles[] = {few_rows(16, 64, 18, 2, 1), few_rows(32, 64, 12, 2, 1),
                                            few_rows(64, 64, 12, 2, 1), few_rows(128, 64, 8, 2, 1),
                                            few_rows(16, 128, 5, 1, 1), few_rows(32, 128, 5, 1, 1),
                                            few_rows(64, 64, 6, 4, 1),  grouped_tile(128, 128, 6, 2, 1, 4, 1),
                                            few_rows(64, 128, 4, 1, 2)};
  static constexpr MatmulChoice kGated[] = {few_rows(16, 64, 10, 1, 1), few_rows(32, 64, 10, 1, 1),
                                            few_rows(64, 64, 9, 1, 1), few_rows(128, 64, 6, 1, 1),
                                            few_rows(128, 64, 5, 1, 2)};
  static constexpr MatmulChoice kGatedBlocks[] = {few_rows(16, 64, 10, 2, 1), few_rows(32, 64, 10, 2, 1),
                                                  few_rows(64, 64, 8, 2, 1), few_rows(128, 64, 6, 2, 1)};
  if (!is_gated) return kTiles;
  return quantises ? std::span<const MatmulChoice>(kGatedBlocks) : kGated;
}
/// The one of them for m x n; none where a tile of fused_tiles() is faster.
std::span<const MatmulChoice> tile_of_few_rows(bool is_gated, bool quantises, int64_t m, int64_t n,
                                               int multiprocessors);

/// Whether a result in float8 is made in two launches (quantised_parts.h): where tiles of whole blocks leave multiprocessors
/// idle or read much twice, as n is small, and k is long, by bench_gated --tiles. `k`: of elements of 16 bits.
bool takes_two_launches(bool is_gated, int64_t m, int64_t n, int64_t k, int multiprocessors);

/// gated_matmul(), or where `up` is null quantised_matmul(), with one of these tiles.
LaunchReport run_fused_matmul(const char* function, const DeviceTensor& a, const DeviceTensor& b,
                              const DeviceTensor* up, const DeviceTensor& c,
                              const FusedMatmulOptions& options, std::span<const MatmulChoice> tiles);

std::vector<MatmulCode> fused_matmul_codes();

}  // namespace imbrex
