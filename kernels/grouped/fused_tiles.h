// SPDX-License-Identifier: Apache-2.0
// The tiles of gated_matmul() and quantised_matmul(), and the machine code that is shipped for them.
#pragma once

#include <span>
#include <vector>

#include "grouped/tiled_kernels.h"
#include "imbrex/kernels/fused_matmul.h"
#include "imbrex/kernels/matmul.h"

namespace imbrex {

/// Among which to choose. Half of a tile's columns are factors where a product is gated; a scale belongs to 128 columns of
/// a result.
inline std::span<const MatmulChoice> fused_tiles(bool is_gated, bool quantises) {
  static constexpr MatmulChoice kTiles[] = {
      grouped_tile(128, 256, 4, 2, 1, 2, 2), grouped_tile(128, 256, 4, 2, 2, 1, 2),
      grouped_tile(64, 256, 5, 1, 1, 1, 2),  grouped_tile(256, 128, 4, 2, 2, 1, 1),
      grouped_tile(192, 128, 5, 3, 1, 2, 1), grouped_tile(128, 128, 6, 2, 1, 2, 1),
      grouped_tile(128, 128, 6, 2, 2, 1, 1), grouped_tile(64, 128, 8, 1, 1, 1, 1),
      grouped_tile(128, 192, 5, 2, 1, 2, 1), grouped_tile(64, 64, 12, 1, 1, 1, 1)};
  constexpr size_t kTwoBlocks = 3, kBlocks = 8;  // so many have 256 columns, multiples of 128
  return std::span(kTiles).first(!quantises ? std::size(kTiles) : is_gated ? kTwoBlocks : kBlocks);
}

/// gated_matmul(), or where `up` is null quantised_matmul(), with one of these tiles.
LaunchReport run_fused_matmul(const char* function, const DeviceTensor& a, const DeviceTensor& b,
                              const DeviceTensor* up, const DeviceTensor& c,
                              const FusedMatmulOptions& options, std::span<const MatmulChoice> tiles);

std::vector<MatmulCode> fused_matmul_codes();

}  // namespace imbrex
