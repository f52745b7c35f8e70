// SPDX-License-Identifier: Apache-2.0
#include "vgpu/machine/endless_loops.h"

#include <cstring>

namespace imbrex::vgpu {

std::vector<EndlessLoops::Point> EndlessLoops::points_of(const Warp& warp) {
  std::vector<Point> points;
  for (const Split& split : warp.splits()) points.push_back({split.pc, split.mask, split.blocked});
  return points;
}

void EndlessLoops::look(size_t number, Warp& warp, uint64_t stamp) {
  if (seen_.size() <= number) seen_.resize(number + 1);
  Seen& seen = seen_[number];
  const bool is_known = seen.is_valid && seen.stamp == stamp;
  if (is_known && seen.repeats) return;
  seen.looks = is_known ? seen.looks + 1 : 0;
  // One that has not run, because others were chosen, is where it was all the same.
  if (is_known && warp.executed == seen.executed) return;
  std::vector<Point> points = points_of(warp);
  const bool is_back = is_known && points == seen.points;
  // Registers are many: they are kept from when the warp has come to the same points again.
  const std::span<const std::byte> registers = warp.register_bytes();
  const bool has_registers = !seen.registers.empty();
  if (is_back && has_registers &&
      std::memcmp(registers.data(), seen.registers.data(), registers.size()) == 0) {
    seen.repeats = true;
    return;
  }
  // The state remembered may lie before the loop: it is renewed after 1, 2, 4, ... looks.
  const bool is_first_return = is_back && !has_registers;
  if (is_known && !is_first_return && seen.looks < 2 * seen.renewed + 1) return;
  seen.registers.clear();
  if (is_back) seen.registers.assign(registers.begin(), registers.end());
  seen.points = std::move(points);
  seen.stamp = stamp;
  seen.executed = warp.executed;
  seen.renewed = seen.looks;
  seen.is_valid = true;
  seen.repeats = false;
}

EndlessLoops::State EndlessLoops::state(size_t number, Warp& warp, uint64_t stamp) const {
  State state = State::kRepeats;
  bool runs = false;
  for (const Split& split : warp.splits()) {
    if (split.timed_out) return State::kUnknown;
    if (!split.blocked) {
      runs = true;
      continue;
    }
    if (split.wait.ready(warp, split.wait)) return State::kUnknown;
    if (split.wait.may_time_out) state = State::kTimesOut;
  }
  if (!runs) return state;
  const bool repeats = number < seen_.size() && seen_[number].is_valid && seen_[number].repeats &&
                       seen_[number].stamp == stamp;
  return repeats ? state : State::kUnknown;
}

int EndlessLoops::note_time_outs(uint64_t stamp) {
  time_outs_ = timed_out_at_ == stamp ? time_outs_ + 1 : 1;
  timed_out_at_ = stamp;
  forget();
  return time_outs_;
}

void EndlessLoops::forget() {
  for (Seen& seen : seen_) seen.is_valid = false;
}

}  // namespace imbrex::vgpu
