// SPDX-License-Identifier: Apache-2.0
// In which order the persistent CTAs of attention take tiles of rows of Q.
#pragma once

#include "imbrex/lang.h"

namespace imbrex::kernels {

/// A parameter of a kernel. With `long_first`, which suits rows that see ever more columns, the last blocks of rows of all
/// heads of a section come first, so that short tiles fill the end; a section is as many heads as the L2 cache holds the
/// K and V of. Without it, all rows of a head, then the next head.
struct AttentionTileOrder {
  using Parameters = ParameterList<bool, Int32>;
  bool long_first;
  Int32 section_heads;

  /// The tile that is `number` of a persistent CTA's, in its `round`, of `tiles`: the CTA that takes the first of one round takes
  /// the last of the next. Where tiles become shorter it would else have more to do than the others.
  static Expr both_ways(const Int32& number, const Int32& round, const Int32& tiles) {
    auto first = number - block_idx.x;
    return select(round % 2 == 1 && first + grid_dim.x <= tiles, first + (grid_dim.x - 1 - block_idx.x),
                  number);
  }

  /// Sets the block of rows, of `blocks`, the head and the batch that the tile is.
  void place(const Int32& tile, const Int32& blocks, const Int32& heads, const Int32& batches,
             Int32& row_block, Int32& head, Int32& batch) const {
    Int32 all_heads = 0;
    if (long_first) {
      auto [section, in_section] = fast_divmod(tile, section_heads * blocks);
      Int32 here = min(section_heads, heads * batches - section * section_heads);
      row_block = blocks - 1 - in_section / here;
      all_heads = section * section_heads + in_section % here;
    } else {
      auto [quotient, remainder] = fast_divmod(tile, blocks);
      row_block = remainder;
      all_heads = quotient;
    }
    auto [quotient, remainder] = fast_divmod(all_heads, heads);
    batch = quotient;
    head = remainder;
  }
};

}  // namespace imbrex::kernels
