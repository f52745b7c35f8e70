// SPDX-License-Identifier: Apache-2.0
// Who does something, and what kind of access it is: what checks, findings and recordings receive.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "vgpu/lanes.h"
#include "vgpu/program/instruction.h"

namespace imbrex::vgpu {

struct AsyncOrigin;

/// A CTA as it is known to those who watch it: its place in cluster and grid, and its threads that still run.
class CtaIdentity {
 public:
  /// Rank in the cluster.
  int rank() const { return rank_; }
  /// %ctaid.
  const std::array<uint32_t, 3>& id() const { return id_; }
  /// Lanes of a warp that have not exited.
  Mask live(int warp) const { return live_[static_cast<size_t>(warp)]; }

 protected:
  CtaIdentity(int rank, std::array<uint32_t, 3> id, int warps)
      : rank_(rank), id_(id), live_(static_cast<size_t>(warps)) {}
  Mask& live(int warp) { return live_[static_cast<size_t>(warp)]; }

 private:
  int rank_;
  std::array<uint32_t, 3> id_;
  std::vector<Mask> live_;  // by warp
};

/// Who does something: a thread (warp and lane), a whole warp (lane -1), or a unit working for one.
struct Who {
  const CtaIdentity* cta = nullptr;
  int warp = -1;
  int lane = -1;
  const Instruction* insn = nullptr;  // the instruction executed, or the one that started the unit's work
  const char* unit = "";              // "TMA", "tensor core", ...; "" for a thread
  Mask lanes = 0;                     // threads: that do it together; 0: `lane` alone, or all where it is -1
  uint8_t order = 3;                  // bits of Order, of arrivals and strong accesses
  AsyncOrigin* origin = nullptr;      // asynchronous work: what it may count on

  /// The same thread, a unit acting for it.
  Who as_unit(const char* name) const {
    Who who = *this;
    who.unit = name;
    return who;
  }
};

/// What an access does; the strong ones (volatile, relaxed, acquire, release, atomic) may meet others
/// unordered.
/// A kLoad reads into registers: what was never written is found where the value is used (Checked only; the race
/// checker is told kRead).
/// A kSameWrite writes the bytes that are there already: when all threads store the same value by one
/// instruction, as compilers let them, it does not matter who comes last.
enum class AccessKind : uint8_t { kRead, kLoad, kWrite, kSameWrite, kAtomic, kStrongRead, kStrongWrite };
constexpr bool is_write(AccessKind k) {
  return k != AccessKind::kRead && k != AccessKind::kLoad && k != AccessKind::kStrongRead;
}
constexpr bool is_read(AccessKind k) {
  return k == AccessKind::kRead || k == AccessKind::kLoad || k == AccessKind::kAtomic ||
         k == AccessKind::kStrongRead;
}
constexpr bool is_strong(AccessKind k) { return k > AccessKind::kSameWrite; }

/// Bytes that one lane touches, or that neighbouring lanes do side by side.
struct LaneTouch {
  uint64_t address = 0;  // in global memory, or the offset in the shared memory of the own CTA
  uint32_t bytes = 0;
  int lane = 0;  // the first
  Mask lanes = 0;
  uint8_t lane_shift = 7;  // each touches 1 << lane_shift bytes; 7: one lane all of them
};

/// What the lanes of an instruction touch. Each touches `lane_bytes`, a power of two, or fewer.
class LaneTouches {
 public:
  explicit LaneTouches(uint32_t lane_bytes) : lane_bytes_(lane_bytes) {}  // leaves the list as it is
  /// To be called in the order of the lanes.
  void add(int lane, uint64_t address, uint32_t bytes) {
    if (count_ > 0) {
      LaneTouch& last = touches_[count_ - 1];
      if (last.address + last.bytes == address && bytes == lane_bytes_ && last.bytes % bytes == 0 &&
          (last.lanes >> (lane - 1) & 1) != 0) {
        last.bytes += bytes;
        last.lanes |= lane_bit(lane);
        last.lane_shift = static_cast<uint8_t>(std::countr_zero(bytes));
        return;
      }
    }
    std::construct_at(&touches_[count_++], LaneTouch{address, bytes, lane, lane_bit(lane)});
  }
  std::span<const LaneTouch> all() const { return {touches_.data(), count_}; }
  bool empty() const { return count_ == 0; }

 private:
  uint32_t lane_bytes_;
  size_t count_ = 0;
  union {  // a kilobyte, of which mostly a small part is used
    std::array<LaneTouch, kWarpSize> touches_;
  };
};

/// Do lanes write the bytes that are there already? Asked only where that decides a race; empty: no.
using WritesTheSame = std::function<bool(const LaneTouch&)>;

}  // namespace imbrex::vgpu
