// SPDX-License-Identifier: Apache-2.0
// The order in which CTAs take the tiles of a matrix.
#pragma once

#include "imbrex/lang.h"

namespace imbrex::kernels {

/// A tile's place among the tiles of a matrix.
struct BlockCoord {
  Int32 m_block, n_block;
};

/// Tile `linear_idx` in an order that keeps few rows of A and columns of B in use at a time: groups of
/// `swizzle_size` columns of tiles, one group after the other, each row by row. The last group may be
/// narrower.
inline BlockCoord compute_block_coord(const ScalarArg& linear_idx, const ScalarArg& num_m_blocks,
                                      const ScalarArg& num_n_blocks, int swizzle_size) {
  const auto [group, in_group] = fast_divmod(linear_idx, num_m_blocks * swizzle_size);
  Int32 first_n = group * swizzle_size;
  BlockCoord coord{0, 0};
  if (auto full = when(first_n + swizzle_size <= num_n_blocks)) {
    const auto [row, column] = fast_divmod(in_group, swizzle_size);
    coord.m_block = row;
    coord.n_block = first_n + column;
  }
  if (num_n_blocks.is_number() && num_n_blocks.integer % swizzle_size == 0) return coord;
  if (auto last = otherwise()) {
    // Where all groups are full no tile comes here, but the host computes the divisor.
    const auto [row, column] = fast_divmod(in_group, max(num_n_blocks % swizzle_size, 1));
    coord.m_block = row;
    coord.n_block = first_n + column;
  }
  return coord;
}

}  // namespace imbrex::kernels
