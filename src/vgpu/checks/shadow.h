// SPDX-License-Identifier: Apache-2.0
// What the race checker remembers of a piece of memory: its last accesses, told apart by byte.
#pragma once

#include <algorithm>
#include <bit>
#include <cstring>
#include <span>

#include "vgpu/checks/remembered_access.h"

namespace imbrex::vgpu {

struct alignas(64) ShadowCell {
  static constexpr uint32_t kBytes = 16;
  Access slots[4];
};

/// What an access to a block of cells is to one of them.
inline Access in_cell(Access access, uint32_t cell) {
  constexpr uint32_t kShiftOfCells = 4;
  access.set_lane(access.lane_of(static_cast<int>(cell * ShadowCell::kBytes)));
  if (access.lane_shift() >= kShiftOfCells) access.set_lane_shift(Access::kOneLane);
  return access;
}
/// An access that began at `begin` with now.lane, as it is to the block of so many bytes that `at` lies in.
inline Access in_block(Access now, uint64_t begin, uint64_t at, uint32_t block_bytes) {
  if (now.lane_shift() != Access::kOneLane)
    now.set_lane(now.lane() + static_cast<int>((at - begin) >> now.lane_shift()) -
                 static_cast<int>(at % block_bytes >> now.lane_shift()));
  return now;
}
/// Has nothing but `now`, an access to the whole block, happened to all its cells?
inline bool are_alike(std::span<const ShadowCell> cells, Access now) {
  for (uint32_t c = 0; c < cells.size(); ++c) {
    bool found = false;
    for (Access slot : cells[c].slots) {
      if (slot.is_none()) continue;
      if (found || slot.bytes() != now.bytes() || !slot.is_like(in_cell(now, c))) return false;
      found = true;
    }
    if (!found) return false;
  }
  return true;
}

/// The decision about a pair of accesses, and what to do about it.
///   bool ordered(Access earlier, Access now, int byte)
///   bool may_meet(Access earlier, Access now)   // unordered, being strong
///   void race(Access earlier, Access now)
///   void in_order(Access earlier, Access now)   // of a pair that conflicts
template <class Judge>
void record(ShadowCell& cell, Access now, Judge&& judge) {
  Access* free = nullptr;
  bool merged = false;
  uint32_t known = 0,
           apart = 0;  // slots that are ordered before; those of other bytes, of which that is asked last
  const auto slot_bit = [&](const Access& slot) { return 1u << (&slot - cell.slots); };
  for (Access& slot : cell.slots) {
    if (slot.is_none()) {
      free = &slot;
      continue;
    }
    if (const uint16_t common = slot.common(now); common != 0) {
      bool before = judge.ordered(slot, now, std::countr_zero(common));
      if (slot.is_write() || now.is_write()) {
        if (before) {
          judge.in_order(slot, now);
        } else if (!judge.may_meet(slot, now)) {
          judge.race(slot, now);
          before = true;  // said once is enough
        }
      }
      // Whoever is not ordered after `now` conflicts with `now`: the earlier access need not be kept.
      if (before && (now.is_write() || !slot.is_write())) {
        slot.remove_bytes(common);
        if (slot.bytes() == 0) {
          slot.forget();
          free = &slot;
          continue;
        }
      }
      if (before) known |= slot_bit(slot);
    } else {
      apart |= slot_bit(slot);
    }
    if (!merged && slot.is_like(now)) {
      slot.add_bytes(now.bytes());
      merged = true;
    }
  }
  if (merged) return;
  if (free == nullptr) {
    // No room. Four reads without a later write are enough; else forget a read rather than a write,
    // and a write that this access knows rather than another.
    bool only_reads = !now.is_write();
    for (Access& slot : cell.slots) {
      only_reads = only_reads && !slot.is_write();
      if (!slot.is_write()) free = &slot;
    }
    if (only_reads) return;
    if (free == nullptr) {
      free = &cell.slots[now.insn() % 4];
      for (Access& slot : cell.slots)
        if ((known & slot_bit(slot)) != 0 ||
            ((apart & slot_bit(slot)) != 0 && judge.ordered(slot, now, std::countr_zero(slot.bytes()))))
          free = &slot;
    }
  }
  *free = now;
}

/// record() for [at, end), which lie in one block of so many bytes, cell by cell. `now`: as it is to the block.
template <class Judge>
void record_cells(ShadowCell* cells, uint32_t block_bytes, Access now, uint64_t at, uint64_t end,
                  Judge& judge) {
  constexpr uint64_t kCell = ShadowCell::kBytes;
  while (at < end) {
    const uint64_t first = at % kCell, count = std::min(kCell - first, end - at);
    const uint64_t cell = at % block_bytes / kCell;
    Access part = in_cell(now, static_cast<uint32_t>(cell));
    part.set_bytes(((1u << count) - 1) << first & now.bytes());
    if (part.bytes() != 0) record(cells[cell], part, judge);
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
