// SPDX-License-Identifier: Apache-2.0
// In which order CTAs of attention take tiles of rows.
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

/// The block of rows of a head that a CTA has, where each has one. CTAs start in the order of their numbers. Where some blocks take
/// longer, the first ones or the last, these start first in all heads of a section, so that short ones fill the end; a section is as
/// many heads as the L2 cache holds what their CTAs read over and over, a power of two.
struct BlockOfHead {
  Int32 block, head, batch;
  enum class Longest : uint8_t { kNone, kFirst, kLast };

  /// Makes the grid. `bytes`: what CTAs of a head read over and over.
  static BlockOfHead enter(const Expr& blocks, const Int32& heads, const Int32& batches, const Expr& bytes,
                           Longest longest) {
    if (longest == Longest::kNone) {  // numbers that need no registers to be kept in
      grid(blocks, heads, batches);
      return {block_idx.x, block_idx.y, block_idx.z};
    }
    Int32 section = 1;
    for (int size = 2; size <= 64; size *= 2)
      section = select(heads * batches % size == 0 && bytes * size <= int64_t{36} << 20, size, section);
    grid(section, blocks, heads * batches / section);
    auto [batch, head] = fast_divmod(block_idx.z * section + block_idx.x, heads);
    return {longest == Longest::kLast ? grid_dim.y - 1 - block_idx.y : block_idx.y + 0, head, batch};
  }

  /// The same, the first ones first, where a block waits for those before it in its head: CTAs, which may start in any order, take
  /// blocks by tickets of the counter, which is 0, and 0 again when all have started.
  static BlockOfHead enter_by_ticket(const Expr& blocks, const Int32& heads, const Int32& batches,
                                     const Expr& bytes, const GlobalTensor& counter) {
    (void)enter(blocks, heads, batches, bytes, Longest::kFirst);
    Int32 ticket = atomic::add(counter, 1), of_section = grid_dim.x * grid_dim.y;
    if (auto last = when(ticket == of_section * grid_dim.z - 1)) atomic::exch(counter, 0);
    Int32 in_section = ticket % of_section;
    auto [batch, head] = fast_divmod(ticket / of_section * grid_dim.x + in_section % grid_dim.x, heads);
    return {in_section / grid_dim.x, head, batch};
  }
};

}  // namespace imbrex::kernels
