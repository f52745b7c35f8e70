// SPDX-License-Identifier: Apache-2.0
// What lanes touch in one tile of shared memory, together where a rule says which lane touches which byte.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
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

/// Which lane touches which cell of a tile, by those rules that hold for all cells so far: one lane all of them; each row
/// of 128 to 16 bytes the next lane; each cell the next one in the order of a swizzle. So do units, ldmatrix, and threads
/// that store or copy 16 bytes each.
class LaneRule {
 public:
  LaneRule(uint32_t cell, uint32_t lane) : steps_(kSteps[cell]), lanes_(lane * kEach) {}
  /// Takes neighbouring cells of one lane into account. False where no rule is left; then it is of no more use.
  bool add(uint32_t cell, uint32_t count, uint32_t lane) {
    // Lanes and steps are so small that nothing is carried from one rule's byte into the next.
    broken_ |= (lane * kEach + steps_) ^ (lanes_ + kSteps[cell]);
    broken_ |= kSteps[cell] ^ kSteps[cell + count - 1];
    return holding() != 0;
  }
  /// As in Access, of the tile.
  int16_t lane() const {
    return static_cast<int16_t>((lanes_ >> first() & 0xFF) - (steps_ >> first() & 0xFF));
  }
  uint32_t lane_shift() const { return kRules[first() / 8].lane_shift; }

 private:
  struct Rule {
    uint32_t lane_shift;
    uint32_t row_bits;  // cells of a lane, as a power of two
    uint32_t swizzle;   // which bits of the number of a row of 128 bytes it takes
  };
  static constexpr Rule kRules[8] = {{Access::kOneLane, 6, 0},
                                     {7, 3, 0},
                                     {6, 2, 0},
                                     {5, 1, 0},
                                     {4, 0, 0},
                                     {Access::kSwizzled, 0, 7},
                                     {Access::kSwizzled64, 0, 3},
                                     {Access::kSwizzled32, 0, 1}};
  /// By cell, a byte for each rule: how many lanes behind that of the tile's first byte its lane is.
  static constexpr std::array<uint64_t, kCellsInTile> kSteps = [] {
    std::array<uint64_t, kCellsInTile> steps{};
    for (uint32_t cell = 0; cell < kCellsInTile; ++cell)
      for (int rule = 0; rule < 8; ++rule)
        steps[cell] |= uint64_t{cell >> kRules[rule].row_bits ^ (cell >> 3 & kRules[rule].swizzle)}
                       << 8 * rule;
    return steps;
  }();
  static constexpr uint64_t kEach = 0x0101'0101'0101'0101;
  /// The highest bit of the byte of each rule that holds; above the first of them, of others too.
  uint64_t holding() const { return (broken_ - kEach) & ~broken_ & 0x80 * kEach; }
  int first() const { return std::countr_zero(holding()) - 7; }
  uint64_t steps_, lanes_;  // of the first cell
  uint64_t broken_ = 0;
};

/// The first of some touches that are whole cells of one tile, as many as one rule holds for.
inline TouchedCells cells_touched(std::span<const LaneTouch> touches) {
  constexpr uint64_t kCell = ShadowCell::kBytes;
  constexpr uint8_t kLanesOfCells = 4;  // LaneTouch::lane_shift
  TouchedCells found;
  const uint64_t tile = touches[0].address / kTileBytes;
  LaneRule rule(static_cast<uint32_t>(touches[0].address % kTileBytes / kCell),
                static_cast<uint32_t>(std::max(touches[0].lane, 0)));
  for (size_t i = 0; i < touches.size(); ++i) {
    const LaneTouch& touch = touches[i];
    if ((touch.lane_shift != 7 && touch.lane_shift != kLanesOfCells) || touch.address / kTileBytes != tile ||
        (touch.address | touch.bytes) % kCell != 0 || touch.address % kTileBytes + touch.bytes > kTileBytes)
      break;
    const auto cell = static_cast<uint32_t>(touch.address % kTileBytes / kCell);
    const uint32_t count = touch.bytes / kCell, lane = static_cast<uint32_t>(std::max(touch.lane, 0));
    LaneRule with_it = rule;
    bool holds = true;
    if (touch.lane_shift == 7)
      holds = with_it.add(cell, count, lane);
    else
      for (uint32_t c = 0; c < count && holds; ++c) holds = with_it.add(cell + c, 1, lane + c);
    if (!holds) break;
    rule = with_it;
    found.cells |= kAllCells >> (kCellsInTile - count) << cell;
    found.touches = i + 1;
  }
  if (found.cells == 0) return found;
  found.lane = rule.lane();
  found.lane_shift = rule.lane_shift();
  return found;
}

}  // namespace imbrex::vgpu
