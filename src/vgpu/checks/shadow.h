// SPDX-License-Identifier: Apache-2.0
// What the race checker remembers of a piece of memory: its last accesses, told apart by byte.
#pragma once

#include <bit>
#include <cstring>

#include "vgpu/checks/happens_before.h"

namespace imbrex::vgpu {

/// One access (or several alike) to a cell. Small, for there is a line of them for every 16 bytes.
struct Access {
  Clock clock = 0;  // of the agent; 0: none
  uint32_t insn = 0;
  AgentId agent = kNoAgent;
  uint16_t bytes = 0;          // of the cell, a bit each; in tensor memory: columns
  int8_t lane = 0;             // that touches byte 0 of the cell, if it is one of `bytes`
  uint8_t lane_shift : 3 = 7;  // each lane touches 1 << lane_shift bytes; 7: all bytes are one lane's
  uint8_t write : 1 = 0;
  uint8_t strong : 1 = 0;
  uint8_t async_proxy : 1 = 0;
  uint8_t special : 1 = 0;  // tensor memory: the result of an mma; global memory: of less than gpu scope
  uint8_t system : 1 = 0;   // global memory, strong: of system scope

  int lane_of(int byte) const { return lane_shift == 7 ? lane : lane + (byte >> lane_shift); }
  bool is_like(const Access& other) const {
    return clock == other.clock && insn == other.insn && agent == other.agent && lane == other.lane &&
           lane_shift == other.lane_shift && write == other.write && strong == other.strong;
  }
};

struct alignas(64) ShadowCell {
  static constexpr uint32_t kBytes = 16;
  Access slots[4];
};

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

/// Runs of cells mostly look alike: what happened to the last one happens to the next if it looks the same.
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
  void reset() { valid_ = false; }

 private:
  ShadowCell before_, after_;
  bool valid_ = false;
};

}  // namespace imbrex::vgpu
