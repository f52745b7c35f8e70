// SPDX-License-Identifier: Apache-2.0
// Loops that go round for ever. While nobody changes memory, what a warp does follows from its registers alone: a
// warp that comes to where it was before, with the registers it had, will never do anything else.
#pragma once

#include <cstdint>
#include <vector>

#include "vgpu/machine/warp.h"

namespace imbrex::vgpu {

/// Of one cluster, whose warps are told apart by number. `stamp` changes whenever anything in the grid does what
/// others may wait for.
class EndlessLoops {
 public:
  /// The warp has run for a while.
  void look(size_t number, Warp& warp, uint64_t stamp);
  enum class State : uint8_t {
    kUnknown,
    kRepeats,   // or waits, for as long as the stamp stays
    kTimesOut,  // waits by try_wait, which may return
  };
  State state(size_t number, Warp& warp, uint64_t stamp) const;
  /// Warps go elsewhere from here on, though the stamp is the same.
  void forget();
  /// Counts the times that waits have been timed out while the stamp was this one; the number so far.
  int note_time_outs(uint64_t stamp);

 private:
  struct Point {
    uint32_t pc;
    Mask mask;
    bool blocked;
    bool operator==(const Point&) const = default;
  };
  struct Seen {
    std::vector<std::byte> registers;
    std::vector<Point> points;
    uint64_t stamp = 0;
    int64_t executed = 0;  // instructions of the warp until then
    uint64_t looks = 0, renewed = 0;
    bool is_valid = false, repeats = false;
  };
  static std::vector<Point> points_of(const Warp& warp);

  std::vector<Seen> seen_;  // by number
  uint64_t timed_out_at_ = 0;
  int time_outs_ = 0;
};

}  // namespace imbrex::vgpu
