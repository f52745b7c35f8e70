// SPDX-License-Identifier: Apache-2.0
// What the race checker remembers of a piece of memory: its last accesses, told apart by byte.
#pragma once

#include <algorithm>
#include <bit>
#include <cstring>
#include <span>

#include "vgpu/checks/happens_before.h"

namespace imbrex::vgpu {

/// One access (or several alike) to a cell, or to cells of a block (shadow_blocks.h). Small, for there is a line of them
/// for every 16 bytes.
struct Access {
  /// Of lane_shift: all bytes are one lane's; lanes have chunks of 16 bytes in the order of the 128-byte swizzle.
  static constexpr uint32_t kOneLane = 15, kSwizzled = 8;

  Clock clock = 0;  // of the agent; 0: none
  AgentId agent = kNoAgent;
  uint32_t insn : 23 = 0;
  uint32_t lane_shift : 4 = kOneLane;  // each lane touches 1 << lane_shift bytes
  uint32_t write : 1 = 0;
  uint32_t strong : 1 = 0;
  uint32_t async_proxy : 1 = 0;
  uint32_t special : 1 = 0;  // tensor memory: the result of an mma; global memory: of less than gpu scope
  uint32_t system : 1 = 0;   // global memory, strong: of system scope
  uint16_t bytes = 0;        // of the cell, a bit each; in tensor memory: columns
  int16_t lane = 0;          // that touches byte 0 of the cell or block, if it is one of those touched

  void set_insn(uint32_t index) { insn = index & 0x7F'FFFF; }  // no program has as many
  /// As in LaneTouch: 7 is one lane.
  void set_lanes(int first, int shift) {
    lane = static_cast<int16_t>(first);
    lane_shift = shift == 7 ? kOneLane : static_cast<uint32_t>(shift) & 7;
  }
  int lane_of(int byte) const {
    if (lane_shift == kOneLane) return lane;
    if (lane_shift == kSwizzled) return lane + ((byte >> 4) ^ (byte >> 7 & 7));
    return lane + (byte >> lane_shift);
  }
  bool is_like(const Access& other) const {
    return clock == other.clock && insn == other.insn && agent == other.agent && lane == other.lane &&
           lane_shift == other.lane_shift && write == other.write && strong == other.strong;
  }
};

struct alignas(64) ShadowCell {
  static constexpr uint32_t kBytes = 16;
  Access slots[4];
};

/// What an access to a block of cells is to one of them.
inline Access in_cell(Access access, uint32_t cell) {
  constexpr uint32_t kShiftOfCells = 4;
  access.lane = static_cast<int16_t>(access.lane_of(static_cast<int>(cell * ShadowCell::kBytes)));
  if (access.lane_shift >= kShiftOfCells) access.lane_shift = Access::kOneLane;
  return access;
}
/// An access that began at `begin` with now.lane, as it is to the block of so many bytes that `at` lies in.
inline Access in_block(Access now, uint64_t begin, uint64_t at, uint32_t block_bytes) {
  if (now.lane_shift != Access::kOneLane)
    now.lane = static_cast<int16_t>(now.lane + static_cast<int>((at - begin) >> now.lane_shift) -
                                    static_cast<int>(at % block_bytes >> now.lane_shift));
  return now;
}
/// Has nothing but `now`, an access to the whole block, happened to all its cells?
inline bool are_alike(std::span<const ShadowCell> cells, const Access& now) {
  for (uint32_t c = 0; c < cells.size(); ++c) {
    bool found = false;
    for (const Access& slot : cells[c].slots) {
      if (slot.clock == 0) continue;
      if (found || slot.bytes != now.bytes || !slot.is_like(in_cell(now, c))) return false;
      found = true;
    }
    if (!found) return false;
  }
  return true;
}

/// The decision about a pair of accesses, and what to do about it.
///   bool ordered(const Access& earlier, const Access& now, int byte)
///   bool may_meet(const Access& earlier, const Access& now)   // unordered, being strong
///   void race(const Access& earlier, const Access& now)
///   void in_order(const Access& earlier, const Access& now)   // of a pair that conflicts
template <class Judge>
void record(ShadowCell& cell, const Access& now, Judge&& judge) {
  Access* free = nullptr;
  Access* oldest = nullptr;
  bool merged = false;
  for (Access& slot : cell.slots) {
    if (slot.clock == 0) {
      free = &slot;
      continue;
    }
    const auto common = static_cast<uint16_t>(slot.bytes & now.bytes);
    const int byte = std::countr_zero(common != 0 ? common : slot.bytes);
    bool before = judge.ordered(slot, now, byte);
    if (common != 0 && (slot.write || now.write)) {
      if (before) {
        judge.in_order(slot, now);
      } else if (!judge.may_meet(slot, now)) {
        judge.race(slot, now);
        before = true;  // said once is enough
      }
    }
    // Whoever is not ordered after `now` conflicts with `now`: the earlier access need not be kept.
    if (before && (now.write || !slot.write)) {
      slot.bytes &= static_cast<uint16_t>(~now.bytes);
      if (slot.bytes == 0) {
        slot.clock = 0;
        free = &slot;
        continue;
      }
    }
    if (before) oldest = &slot;
    if (!merged && slot.is_like(now)) {
      slot.bytes |= now.bytes;
      merged = true;
    }
  }
  if (merged) return;
  if (free == nullptr) {
    // No room. Four reads without a later write are enough; else forget a read rather than a write,
    // and a write that this access knows rather than another.
    bool only_reads = !now.write;
    for (Access& slot : cell.slots) {
      only_reads = only_reads && !slot.write;
      if (!slot.write) free = &slot;
    }
    if (only_reads) return;
    if (free == nullptr) free = oldest != nullptr ? oldest : &cell.slots[now.insn % 4];
  }
  *free = now;
}

/// record() for [at, end), which lie in one block of so many bytes, cell by cell. `now`: as it is to the block.
template <class Judge>
void record_cells(ShadowCell* cells, uint32_t block_bytes, const Access& now, uint64_t at, uint64_t end,
                  Judge& judge) {
  constexpr uint64_t kCell = ShadowCell::kBytes;
  while (at < end) {
    const uint64_t first = at % kCell, count = std::min(kCell - first, end - at);
    const uint64_t cell = at % block_bytes / kCell;
    Access part = in_cell(now, static_cast<uint32_t>(cell));
    part.bytes = static_cast<uint16_t>((((1u << count) - 1) << first) & now.bytes);
    if (part.bytes != 0) record(cells[cell], part, judge);
    at += count;
  }
}

/// Runs of cells of tensor memory mostly look alike: what happened to the last one happens to the next if it looks the
/// same.
class CellMemo {
 public:
  bool apply(ShadowCell& cell) const {
    if (!valid_ || std::memcmp(&cell, &before_, sizeof cell) != 0) return false;
    cell = after_;
    return true;
  }
  void begin(const ShadowCell& cell) { before_ = cell; }
  void end(const ShadowCell& cell, bool silent) {
    after_ = cell;
    valid_ = silent;
  }

 private:
  ShadowCell before_, after_;
  bool valid_ = false;
};

}  // namespace imbrex::vgpu
