// SPDX-License-Identifier: Apache-2.0
// In which order the persistent CTAs of attention take tiles of rows of Q.
#pragma once

#include "imbrex/lang.h"

namespace imbrex::kernels {

/// A parameter of a kernel. With `long_first`, which suits rows that see ever more columns, the last blocks of rows of all
/// heads of a section come first, so that short tiles fill the end; a section is as many heads as the L2 cache holds the
/// K and V of. Tiles then become shorter in one section, longer in the next, and shorter in the last; and the CTA that takes the
/// first of one round takes the last of the next. Either way a CTA that takes a long tile takes a short one later: where all
/// sections became shorter, the same CTAs would have the longer tiles in each. Without it, all rows of a head, then the next head.
struct AttentionTileOrder {
  using Parameters = ParameterList<bool, Int32>;
  bool long_first;
  Int32 section_heads;

  /// `work(block of rows, head, batch)` for each tile of this CTA, of `blocks` blocks of rows of each head.
  template <class Work>
  void each(const Int32& blocks, const Int32& heads, const Int32& batches, const Work& work) const {
    Int32 tiles = blocks * heads * batches, round = 0;
    for (Int32 number : range(block_idx.x, tiles, grid_dim.x)) {
      Int32 block = 0, head = 0, batch = 0, all_heads = 0;
      if (long_first) {
        Int32 sections = cdiv(heads * batches, section_heads);
        auto first = number - block_idx.x;  // of this round
        Int32 tile = select(round % 2 == 1 && first + grid_dim.x <= tiles,
                            first + (grid_dim.x - 1 - block_idx.x), number);
        round += 1;
        auto [section, in_section] = fast_divmod(tile, section_heads * blocks);
        Int32 here = min(section_heads, heads * batches - section * section_heads);
        Int32 rank = in_section / here;
        block = select((sections - section) % 2 == 1, blocks - 1 - rank, rank);
        all_heads = section * section_heads + in_section % here;
      } else {
        auto [quotient, remainder] = fast_divmod(number, blocks);
        block = remainder;
        all_heads = quotient;
      }
      auto [quotient, remainder] = fast_divmod(all_heads, heads);
      batch = quotient;
      head = remainder;
      work(block, head, batch);
    }
  }
};

}  // namespace imbrex::kernels
