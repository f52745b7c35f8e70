// SPDX-License-Identifier: Apache-2.0
// The shadow of memory, 128 bytes at a time: one cell for all of them as long as what happened looks alike in each of
// their 16 bytes, which is so where warps and units access neighbouring bytes; else eight cells.
//
// In a block's one cell `bytes` are those of every 16 bytes, and the lane of an offset is counted from the block's
// beginning. A split block's own cell holds nothing but a mark.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "vgpu/checks/shadow.h"
#include "vgpu/memory/recycled_block.h"

namespace imbrex::vgpu {

inline constexpr uint32_t kBlockBytes = 128;
inline constexpr uint32_t kCellsInBlock = kBlockBytes / ShadowCell::kBytes;

constexpr bool is_split(const ShadowCell& block) {
  return block.slots[0].clock == ~Clock{0} && block.slots[0].agent == kNoAgent;
}
/// Quicker than `cell = {}`, and as good: a cell without accesses.
inline void wipe(ShadowCell& cell) { std::memset(static_cast<void*>(&cell), 0, sizeof cell); }
inline void mark_split(ShadowCell& block, uint32_t group) {
  wipe(block);
  block.slots[0].clock = ~Clock{0};
  block.slots[0].agent = kNoAgent;
  block.slots[1].insn = group;
}
/// What an access to a whole block is to one of its cells.
inline Access in_cell(Access access, uint32_t cell) {
  if (access.lane_shift != 7)
    access.lane = static_cast<int8_t>(access.lane + (cell * ShadowCell::kBytes >> access.lane_shift));
  return access;
}
inline void split_into(const ShadowCell& block, ShadowCell* cells) {
  for (uint32_t c = 0; c < kCellsInBlock; ++c) cells[c] = block;
  for (size_t s = 0; s < 4; ++s) {
    const Access& slot = block.slots[s];
    if (slot.clock == 0 || slot.lane_shift == 7) continue;
    for (uint32_t c = 1; c < kCellsInBlock; ++c) cells[c].slots[s] = in_cell(slot, c);
  }
}
/// Has nothing but `now`, an access to the whole block, happened to all cells?
inline bool are_alike(const ShadowCell* cells, const Access& now) {
  for (uint32_t c = 0; c < kCellsInBlock; ++c) {
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

/// record() for a whole block. False, and nothing recorded, where its cells have to be judged one by one: the judge
/// has something to say, or orders some lanes only.
///   bool ordered_for_all(const Access& earlier, const Access& now)   // every byte of it
///   bool in_order_says_nothing(const Access& earlier, const Access& now)
template <class Judge>
bool record_block(ShadowCell& block, const Access& now, Judge&& judge) {
  bool before[4];
  for (size_t i = 0; i < 4; ++i) {
    const Access& slot = block.slots[i];
    before[i] = slot.clock != 0 && judge.ordered_for_all(slot, now);
    if (slot.clock == 0 || (slot.bytes & now.bytes) == 0 || (slot.write == 0 && now.write == 0)) continue;
    if (before[i] ? !judge.in_order_says_nothing(slot, now) : !judge.may_meet(slot, now)) return false;
  }
  Access* free = nullptr;
  bool merged = false, is_full = true, only_reads = now.write == 0;
  for (size_t i = 0; i < 4; ++i) {
    Access& slot = block.slots[i];
    if (slot.clock != 0 && before[i] && (now.write || !slot.write)) {
      slot.bytes &= static_cast<uint16_t>(~now.bytes);
      if (slot.bytes == 0) slot.clock = 0;
    }
    if (slot.clock == 0) {
      free = &slot;
      is_full = false;
      continue;
    }
    only_reads = only_reads && !slot.write;
    if (!merged && slot.is_like(now)) {
      slot.bytes |= now.bytes;
      merged = true;
    }
  }
  if (merged) return true;
  if (is_full)
    return only_reads;  // four reads without a write are enough; else let the cells decide what to forget
  *free = now;
  return true;
}

/// Of one CTA's shared memory.
class SharedShadow {
 public:
  SharedShadow() = default;
  SharedShadow(SharedShadow&&) = default;
  SharedShadow& operator=(SharedShadow&&) = default;
  ~SharedShadow() {
    if (groups_.capacity() > spare_groups().capacity() && groups_.capacity() <= kMostKept)
      spare_groups() = std::move(groups_);
  }
  bool empty() const { return blocks_.empty(); }
  void resize(uint32_t bytes) {
    blocks_ = RecycledBlock((bytes + kBlockBytes - 1) / kBlockBytes * sizeof(ShadowCell));
    std::memset(blocks_.data(), 0, blocks_.size());  // cells without accesses
    groups_ = std::move(spare_groups());
  }
  ShadowCell& block(uint64_t at) { return reinterpret_cast<ShadowCell*>(blocks_.data())[at / kBlockBytes]; }
  ShadowCell* cells(uint64_t at) { return groups_[block(at).slots[1].insn].data(); }
  /// Cells are four times as large as what they stand for, and seldom in the first cache.
  void prefetch(uint64_t at) {
    if (is_split(block(at))) __builtin_prefetch(cells(at) + at % kBlockBytes / ShadowCell::kBytes, 1);
  }
  void split(uint64_t at) {
    uint32_t group = used_groups_;
    if (free_.empty()) {
      if (++used_groups_ > groups_.size()) groups_.resize(std::max<size_t>(64, groups_.size() * 2));
    } else {
      group = free_.back();
      free_.pop_back();
    }
    split_into(block(at), groups_[group].data());
    mark_split(block(at), group);
  }
  void unite(uint64_t at, const Access& now) {
    free_.push_back(block(at).slots[1].insn);
    wipe(block(at));
    block(at).slots[0] = now;
  }

 private:
  using Groups = std::vector<std::array<ShadowCell, kCellsInBlock>>;
  static constexpr size_t kMostKept = 4096;
  /// Of a CTA that the same host thread has run before: fresh pages take longer than to fill them.
  static Groups& spare_groups() {
    static thread_local Groups spare;
    return spare;
  }
  RecycledBlock blocks_;
  Groups groups_;  // more than are used
  uint32_t used_groups_ = 0;
  std::vector<uint32_t> free_;
};

}  // namespace imbrex::vgpu
