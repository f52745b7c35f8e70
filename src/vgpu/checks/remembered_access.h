// SPDX-License-Identifier: Apache-2.0
// One access (or several alike) as the race checker remembers it, to a cell of memory or to cells of a block (shadow_blocks.h).
//
// Two words, for there is a line of them for every 16 bytes, and nearly all that is asked of two accesses is whether
// some of their fields are equal. As bit-fields they would be put together in memory, by stores that the next load waits for.
#pragma once

#include "vgpu/checks/happens_before.h"

namespace imbrex::vgpu {

class Access {
  // what_, from the lowest bit on: 16 bytes, 5 traits, 4 of lane_shift, 23 of insn, 16 of lane. The lane comes last so that
  // adding to it changes nothing else.
  static constexpr int kTraitsAt = 16, kShiftAt = 21, kInsnAt = 25, kLaneAt = 48;
  static constexpr uint64_t kBytes = 0xFFFF, kShift = uint64_t{0xF} << kShiftAt;
  static constexpr uint64_t kInsn = uint64_t{0x7F'FFFF} << kInsnAt, kLane = uint64_t{0xFFFF} << kLaneAt;

 public:
  /// Of lane_shift: all bytes are one lane's; lanes have chunks of 16 bytes in the order of the swizzle of 128, 64, 32 bytes.
  static constexpr uint32_t kOneLane = 15, kSwizzled = 8, kSwizzled64 = 9, kSwizzled32 = 10;
  enum Trait : uint64_t {
    kWrite = uint64_t{1} << kTraitsAt,
    kStrong = kWrite << 1,
    kAsyncProxy = kWrite << 2,
    kSpecial = kWrite << 3,  // tensor memory: the result of an mma; global memory: of less than gpu scope
    kSystem = kWrite << 4    // global memory, strong: of system scope
  };

  constexpr Access() = default;
  constexpr Access(Clock clock, AgentId agent) : who_(uint64_t{agent} << 32 | clock), what_(kShift) {}

  /// All of it in two words: who and when, and the rest.
  constexpr uint64_t who_bits() const { return who_; }
  constexpr uint64_t what_bits() const { return what_; }
  static constexpr Access of_bits(uint64_t who, uint64_t what) {
    Access access;
    access.who_ = who;
    access.what_ = what;
    return access;
  }

  /// Nothing that happened.
  constexpr bool is_none() const { return clock() == 0; }
  constexpr void forget() { who_ = what_ = 0; }
  /// Of the agent.
  constexpr Clock clock() const { return static_cast<Clock>(who_); }
  constexpr AgentId agent() const { return static_cast<AgentId>(who_ >> 32); }
  constexpr uint32_t insn() const { return static_cast<uint32_t>((what_ & kInsn) >> kInsnAt); }
  /// Each lane touches 1 << lane_shift bytes.
  constexpr uint32_t lane_shift() const { return static_cast<uint32_t>((what_ & kShift) >> kShiftAt); }
  constexpr bool is(Trait trait) const { return (what_ & trait) != 0; }
  constexpr bool is_write() const { return is(kWrite); }
  constexpr bool is_strong() const { return is(kStrong); }
  constexpr bool is_async_proxy() const { return is(kAsyncProxy); }
  /// Of the cell, a bit each; in tensor memory: columns.
  constexpr uint16_t bytes() const { return static_cast<uint16_t>(what_); }
  /// That touches byte 0 of the cell or block, if it is one of those touched.
  constexpr int lane() const { return static_cast<int16_t>(what_ >> kLaneAt); }

  constexpr void set_clock(Clock clock) { who_ = (who_ >> 32 << 32) | clock; }
  constexpr void set_agent(AgentId agent) { who_ = uint64_t{agent} << 32 | clock(); }
  constexpr void set_insn(uint32_t index) {  // no program has more than fit
    what_ = (what_ & ~kInsn) | (uint64_t{index} << kInsnAt & kInsn);
  }
  constexpr void set(Trait trait, bool value) {
    if (value)
      what_ |= trait;
    else
      what_ &= ~uint64_t{trait};
  }
  constexpr void set_bytes(uint32_t bytes) { what_ = (what_ & ~kBytes) | (bytes & kBytes); }
  constexpr void add_bytes(uint32_t bytes) { what_ |= bytes & kBytes; }
  constexpr void remove_bytes(uint32_t bytes) { what_ &= ~(bytes & kBytes); }
  constexpr void set_lane(int lane) { what_ = (what_ & ~kLane) | static_cast<uint64_t>(lane) << kLaneAt; }
  constexpr void set_lane_shift(uint32_t shift) {
    what_ = (what_ & ~kShift) | (uint64_t{shift} << kShiftAt & kShift);
  }
  /// As in LaneTouch: 7 is one lane.
  constexpr void set_lanes(int first, int shift) {
    set_lane(first);
    set_lane_shift(shift == 7 ? kOneLane : static_cast<uint32_t>(shift) & 7);
  }

  constexpr int lane_of(int byte) const {
    if (lane_shift() == kOneLane) return lane();
    if (lane_shift() >= kSwizzled)
      return lane() + ((byte >> 4) ^ (byte >> 7 & 7 >> (lane_shift() - kSwizzled)));
    return lane() + (byte >> lane_shift());
  }
  /// Bytes that both touch.
  constexpr uint16_t common(const Access& other) const { return static_cast<uint16_t>(what_ & other.what_); }
  /// By the same lane, whichever byte it is.
  constexpr bool has_lanes_of(const Access& other) const {
    return ((what_ ^ other.what_) & (kLane | kShift)) == 0;
  }
  constexpr bool is_like(const Access& other) const {
    return who_ == other.who_ && ((what_ ^ other.what_) & (kLane | kInsn | kShift | kWrite | kStrong)) == 0;
  }
  /// 0: none.
  constexpr uint64_t difference(const Access& other) const {
    return (who_ ^ other.who_) | (what_ ^ other.what_);
  }
  /// The same by lanes so much further; nothing stays nothing.
  constexpr Access moved_by(int lanes) const {
    Access moved = *this;
    if (!is_none()) moved.what_ += static_cast<uint64_t>(lanes) << kLaneAt;
    return moved;
  }

 private:
  uint64_t who_ = 0;  // the clock and, above it, the agent
  uint64_t what_ = 0;
};

}  // namespace imbrex::vgpu
