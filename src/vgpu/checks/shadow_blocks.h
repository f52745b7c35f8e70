// SPDX-License-Identifier: Apache-2.0
// The shadow of global memory, 128 bytes at a time: one cell for all of them as long as what happened looks alike in each of
// their 16 bytes, which is so where warps and units access neighbouring bytes; else eight cells.
//
// In a block's one cell `bytes` are those of every 16 bytes, and the lane of an offset is counted from the block's
// beginning. A split block's own cell holds nothing but a mark.
#pragma once

#include <algorithm>
#include <cstring>

#include "vgpu/checks/shadow.h"

namespace imbrex::vgpu {

inline constexpr uint32_t kBlockBytes = 128;
inline constexpr uint32_t kCellsInBlock = kBlockBytes / ShadowCell::kBytes;

constexpr bool is_split(const ShadowCell& block) {
  return block.slots[0].clock() == ~Clock{0} && block.slots[0].agent() == kNoAgent;
}
/// Quicker than `cell = {}`, and as good: a cell without accesses.
inline void wipe(ShadowCell& cell) { std::memset(static_cast<void*>(&cell), 0, sizeof cell); }
inline void mark_split(ShadowCell& block) {
  wipe(block);
  block.slots[0].set_clock(~Clock{0});
  block.slots[0].set_agent(kNoAgent);
}
inline void split_into(const ShadowCell& block, ShadowCell* cells) {
  for (uint32_t c = 0; c < kCellsInBlock; ++c) cells[c] = block;
  for (size_t s = 0; s < 4; ++s) {
    const Access& slot = block.slots[s];
    if (slot.is_none()) continue;
    for (uint32_t c = 0; c < kCellsInBlock; ++c) cells[c].slots[s] = in_cell(slot, c);
  }
}
/// record() for a whole block. False, and nothing recorded, where its cells have to be judged one by one: the judge
/// has something to say, or orders some lanes only.
///   bool ordered_for_all(Access earlier, Access now)   // every byte of it
///   bool in_order_says_nothing(Access earlier, Access now)
template <class Judge>
bool record_block(ShadowCell& block, Access now, Judge&& judge) {
  uint32_t known = 0;  // a bit for every slot that is ordered before
  for (uint32_t i = 0; i < 4; ++i) {
    const Access& slot = block.slots[i];
    if (slot.is_none() || slot.common(now) == 0) continue;
    const bool before = judge.ordered_for_all(slot, now);
    known |= uint32_t{before} << i;
    if (!slot.is_write() && !now.is_write()) continue;
    if (before ? !judge.in_order_says_nothing(slot, now) : !judge.may_meet(slot, now)) return false;
  }
  Access* free = nullptr;
  bool merged = false, is_full = true, only_reads = !now.is_write();
  for (uint32_t i = 0; i < 4; ++i) {
    Access& slot = block.slots[i];
    if ((known >> i & 1) != 0 && (now.is_write() || !slot.is_write())) {
      slot.remove_bytes(now.bytes());
      if (slot.bytes() == 0) slot.forget();
    }
    if (slot.is_none()) {
      free = &slot;
      is_full = false;
      continue;
    }
    only_reads = only_reads && !slot.is_write();
    if (!merged && slot.is_like(now)) {
      slot.add_bytes(now.bytes());
      merged = true;
    }
  }
  if (merged) return true;
  if (is_full)
    return only_reads;  // four reads without a write are enough; else let the cells decide what to forget
  *free = now;
  return true;
}

/// Records `now` in the shadow of [from, end), of an access that began at `begin` and touches those bytes of every 16 that
/// now.bytes says.
template <class Judge, class Shadow>
void record_run(Shadow& shadow, Access now, uint64_t begin, uint64_t from, uint64_t end, Judge& judge) {
  for (uint64_t at = from; at < end;) {
    ShadowCell& block = shadow.block(at);
    const uint64_t block_end = std::min(end, (at / kBlockBytes + 1) * kBlockBytes);
    const bool is_whole = block_end - at == kBlockBytes;
    const Access whole = in_block(now, begin, at, kBlockBytes);
    if (!is_whole || is_split(block) || !record_block(block, whole, judge)) {
      if (!is_split(block)) shadow.split(at);
      record_cells(shadow.cells(at), kBlockBytes, whole, at, block_end, judge);
      if (is_whole && now.is_write() && are_alike({shadow.cells(at), kCellsInBlock}, whole))
        shadow.unite(at, whole);
    }
    at = block_end;
  }
}
/// The blocks of a run mostly look alike but for the lanes: what happened to the last one happens to the next.
class BlockMemo {
 public:
  /// `now`: the access to that block. False where it looks otherwise.
  bool apply(ShadowCell& block, Access now) const {
    if (!is_known_) return false;
    const int lanes = now.lane() - lane_;
    uint64_t differs = 0;
    for (size_t i = 0; i < 4; ++i) differs |= block.slots[i].difference(before_.slots[i].moved_by(lanes));
    if (differs != 0) return false;
    for (size_t i = 0; i < 4; ++i) block.slots[i] = after_.slots[i].moved_by(lanes);
    return true;
  }
  void begin(const ShadowCell& block) { before_ = block; }
  void end(const ShadowCell& block, Access now) {
    after_ = block;
    lane_ = now.lane();
    is_known_ = true;
  }

 private:
  ShadowCell before_, after_;
  int lane_ = 0;
  bool is_known_ = false;
};

/// How far record_whole_blocks() came, and whether a block has four accesses now.
struct BlocksRecorded {
  uint64_t end = 0;
  bool some_are_full = false;
};
/// record_run() of the whole blocks from `at` on up to the first that is not silent.
template <class Judge, class Shadow>
BlocksRecorded record_whole_blocks(Shadow& shadow, Access now, uint64_t begin, uint64_t at, uint64_t end,
                                   Judge& judge) {
  BlockMemo memo;
  BlocksRecorded recorded;
  for (; end - at >= kBlockBytes; at += kBlockBytes) {
    ShadowCell& block = shadow.block(at);
    now.set_lane(static_cast<int>((at - begin) >> now.lane_shift()));
    if (memo.apply(block, now)) continue;
    if (is_split(block)) break;
    const bool is_last = end - at < 2 * kBlockBytes;
    if (!is_last) memo.begin(block);
    if (!record_block(block, now, judge)) break;
    if (!is_last) memo.end(block, now);
    recorded.some_are_full |= std::ranges::none_of(block.slots, &Access::is_none);
  }
  recorded.end = at;
  return recorded;
}

/// record_block() where nobody but `now`'s lanes, each at its own bytes, has been there, for which no judge is needed. False, and
/// nothing recorded, where that is not so, or where more is remembered than one write and one read behind it.
inline bool record_own_block(ShadowCell& block, const Access& now) {
  auto& [first, second, third, last] = block.slots;
  const auto is_own = [&](const Access& slot) {
    return slot.agent() == now.agent() && slot.bytes() == now.bytes() && slot.has_lanes_of(now);
  };
  if (!first.is_none() || !second.is_none() || !(last.is_none() || is_own(last)) ||
      !(third.is_none() || is_own(third)))
    return false;
  if (now.is_write()) {
    third.forget();
    last = now;
    return true;
  }
  // Reads are replaced by this one, which takes the last free place.
  if (last.is_none() || !last.is_write()) {
    if (!third.is_write()) third.forget();
    last = now;
    return true;
  }
  if (third.is_write()) return false;
  third = now;
  return true;
}
/// The same for the blocks from `at` on up to the first of which that is not so. Returns where that is.
template <class Shadow>
uint64_t record_own_blocks(Shadow& shadow, Access now, uint64_t begin, uint64_t at, uint64_t end) {
  now.set_lane(static_cast<int>((at - begin) >> now.lane_shift()));
  const int lanes = static_cast<int>(kBlockBytes >> now.lane_shift());
  for (; end - at >= kBlockBytes && record_own_block(shadow.block(at), now); at += kBlockBytes)
    now = now.moved_by(lanes);
  return at;
}

}  // namespace imbrex::vgpu
