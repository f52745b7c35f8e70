// SPDX-License-Identifier: Apache-2.0
// What lanes touch in one tile of shared memory, together where a rule says which lane touches which byte.
#pragma once

#include <span>

#include "vgpu/checks/shared_shadow.h"
#include "vgpu/checks/who.h"

namespace imbrex::vgpu {

/// The first of some touches, as many as there are in one tile that look like one access.
struct TouchedCells {
  size_t touches = 1;
  Cells cells = 0;   // none: the first touch is by itself
  int16_t lane = 0;  // as in Access, of the block
  uint32_t lane_shift = Access::kOneLane;
};

inline bool is_one_cell(const LaneTouch& touch) {
  return touch.bytes == ShadowCell::kBytes && touch.address % ShadowCell::kBytes == 0;
}

/// How many of the first touches begin in tiles that are split.
inline size_t touches_in_split_tiles(SharedShadow& shadow, std::span<const LaneTouch> touches) {
  size_t count = 0;
  while (count < touches.size() && shadow.tile(touches[count].address).is_split()) ++count;
  return count;
}

/// Whole cells of a tile by one lane each: all by the same one, rows of 128 bytes each by the next one, or chunks of 16
/// bytes each by the next one in the order of the swizzle. So do units, ldmatrix and cp.async.
inline TouchedCells cells_touched(std::span<const LaneTouch> touches) {
  constexpr uint64_t kCell = ShadowCell::kBytes;
  constexpr int kRowCells = 8;
  TouchedCells found;
  const uint64_t tile = touches[0].address / kTileBytes;
  int one = 0, by_rows = 0, by_chunks = 0;  // the lane of the tile's first byte, if that is the rule
  bool is_one = true, is_by_rows = true, is_by_chunks = true;
  for (size_t i = 0; i < touches.size(); ++i) {
    const LaneTouch& touch = touches[i];
    if (touch.lane_shift != 7 || touch.address / kTileBytes != tile ||
        (touch.address | touch.bytes) % kCell != 0 || touch.address % kTileBytes + touch.bytes > kTileBytes)
      break;
    const int cell = static_cast<int>(touch.address % kTileBytes / kCell), row = cell / kRowCells;
    const int count = static_cast<int>(touch.bytes / kCell), lane = std::max(touch.lane, 0);
    const bool in_row = cell % kRowCells + count <= kRowCells;
    if (i == 0) one = lane, by_rows = lane - row, by_chunks = lane - (cell ^ row % kRowCells);
    const bool still_one = is_one && lane == one,
               still_by_rows = is_by_rows && in_row && lane - row == by_rows;
    const bool still_by_chunks = is_by_chunks && count == 1 && lane - (cell ^ row % kRowCells) == by_chunks;
    if (!still_one && !still_by_rows && !still_by_chunks) break;
    is_one = still_one, is_by_rows = still_by_rows, is_by_chunks = still_by_chunks;
    found.cells |= kAllCells >> (kCellsInTile - static_cast<uint32_t>(count)) << cell;
    found.touches = i + 1;
  }
  found.lane_shift = is_one ? Access::kOneLane : is_by_rows ? 7 : Access::kSwizzled;
  found.lane = static_cast<int16_t>(is_one ? one : is_by_rows ? by_rows : by_chunks);
  return found;
}

}  // namespace imbrex::vgpu
