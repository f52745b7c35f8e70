// SPDX-License-Identifier: Apache-2.0
#include "vgpu/machine/warp.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "vgpu/machine/call_stack.h"
#include "vgpu/machine/cluster.h"

namespace imbrex::vgpu {

namespace {

/// How many instructions a warp may execute while lanes are parked before those go on alone. Long enough for
/// the loops that one elected lane runs, short enough for spin locks. Halved, down to kMinPark, every time
/// that lanes have been parked for so long.
constexpr int64_t kMaxPark = 20000, kMinPark = 64;

/// The lanes that are still missing may wait at the same instruction apart, having come when others were live that have exited
/// since: then they gather now.
bool gathered(Warp& warp, const Wait& wait) {
  const Mask missing = static_cast<Mask>(wait.a & warp.live() & ~wait.b);
  if (missing == 0) return true;
  const auto own =
      std::ranges::find_if(warp.splits(), [&](const Split& split) { return &split.wait == &wait; });
  if (own == warp.splits().end()) return false;
  Mask here = 0;
  for (const Split& other : warp.splits())
    if (other.blocked && other.wait.ready == gathered && other.pc == own->pc) here |= other.mask;
  return (missing & ~here) == 0;
}

std::string describe_gather(Warp& warp, const Wait& wait) {
  const Mask missing = static_cast<Mask>(wait.a & ~wait.b) & warp.live();
  return fmt::format("for lanes 0x{:08x} of its warp to execute the same instruction", missing);
}

}  // namespace

Warp::Warp(Cta& cta, int index, Mask lanes, const Program& program, bool track_defined)
    : cta_(&cta),
      known_cta_(&cta),
      index_(index),
      live_(&cta.live(index)),
      program_(&program),
      longest_park_(kMaxPark),
      registers_(program.register_bytes),
      local_bytes_(program.local_bytes_with(cta.cluster().launch().stack_bytes)),
      local_(size_t{kWarpSize} * local_bytes_, std::byte{0xFF}) {
  std::memcpy(registers_.data(), program.register_image.data(), program.register_bytes);
  if (track_defined) {
    defined_.assign(program.register_count, 0);
    if (!defined_.empty()) defined_[0] = kAllLanes;
    local_written_.reset(local_.size());
  }
  if (program.stack_pointer != 0) call_stack_ = std::make_unique<CallStack>();
  *live_ = lanes;
  add_split(0, lanes, kNoJoin);
}

Warp::~Warp() = default;

// ---- splits and joins

void Warp::add_split(uint32_t pc, Mask mask, JoinIndex join) {
  Split split;
  split.pc = pc;
  split.mask = mask;
  split.join = join;
  splits_.push_back(split);
}

void Warp::remove_current() {
  splits_.erase(splits_.begin() + static_cast<ptrdiff_t>(current_));
  current_ = kNone;
}

JoinIndex Warp::open_join(uint32_t pc, Mask lanes, JoinIndex parent, bool is_call) {
  JoinIndex index;
  if (free_joins_.empty()) {
    index = static_cast<JoinIndex>(joins_.size());
    joins_.emplace_back();
  } else {
    index = free_joins_.back();
    free_joins_.pop_back();
  }
  Join& join = joins_[static_cast<size_t>(index)];
  join = Join{};
  join.pc = pc;
  join.expected = lanes;
  join.parent = parent;
  join.is_call = is_call;
  return index;
}

void Warp::complete_if_full(JoinIndex index) {
  Join& join = joins_[static_cast<size_t>(index)];
  if (join.expected == 0) {
    free_joins_.push_back(index);
  } else if (join.arrived == join.expected) {
    add_split(join.pc, join.arrived, join.parent);
    join.expected = join.arrived = 0;
    free_joins_.push_back(index);
  }
}

void Warp::arrive(JoinIndex index, Mask lanes) {
  Join& join = joins_[static_cast<size_t>(index)];
  if (join.arrived == 0) join.since = executed;
  join.arrived |= lanes;
  complete_if_full(index);
}

void Warp::leave(JoinIndex index, Mask lanes, JoinIndex end) {
  while (index != end) {
    Join& join = joins_[static_cast<size_t>(index)];
    const JoinIndex parent = join.parent;
    join.expected &= ~lanes;
    complete_if_full(index);
    index = parent;
  }
}

JoinIndex Warp::innermost_call(JoinIndex index) const {
  while (index != kNoJoin && !joins_[static_cast<size_t>(index)].is_call)
    index = joins_[static_cast<size_t>(index)].parent;
  return index;
}

// ---- control flow

Step Warp::branch(Mask taken, uint32_t target, uint32_t rest_target, uint32_t reconverge) {
  Split& split = splits_[current_];
  const Mask rest = split.mask & ~taken;
  if (rest == 0) {
    split.pc = target;
    return Step::kJump;
  }
  if (!split.guests.empty()) return part_from_guests();
  // A loop comes here once an iteration: lanes that leave it meet in the join its first divergence opened.
  const bool inside = split.join != kNoJoin && joins_[static_cast<size_t>(split.join)].pc == reconverge &&
                      !joins_[static_cast<size_t>(split.join)].is_call;
  if (reconverge != kNowhere && !inside) split.join = open_join(reconverge, split.mask, split.join, false);
  const JoinIndex join = split.join;
  if (rest_target == reconverge) {
    split.pc = target;
    split.mask = taken;
    arrive(join, rest);
  } else if (target == reconverge) {
    split.pc = rest_target;
    split.mask = rest;
    arrive(join, taken);
  } else {
    split.pc = rest_target;
    split.mask = rest;
    add_split(target, taken, join);
  }
  return Step::kJump;
}

Step Warp::call(Mask active, uint32_t target, bool others_call) {
  Split& split = splits_[current_];
  if (!split.guests.empty()) return part_from_guests();
  const uint32_t back = split.pc + 1;
  const JoinIndex around = split.join;
  if (active == split.mask) {
    split.join = open_join(back, active, around, true);
    split.pc = target;
    return Step::kJump;
  }
  // A guarded call: those that do not call go on; nothing brings the two together but a later join.
  split.mask &= ~active;
  if (!others_call) split.pc = back;
  const JoinIndex frame = open_join(back, active, around, true);
  add_split(target, active, frame);
  return Step::kJump;
}

Step Warp::ret(Mask active) {
  Split& split = splits_[current_];
  if (!split.guests.empty()) return part_from_guests();
  const JoinIndex frame = innermost_call(split.join);
  if (frame == kNoJoin) return exit(active);
  const JoinIndex inner = split.join;
  returned_ |= active;
  split.mask &= ~active;
  split.pc += 1;
  if (split.mask == 0) remove_current();
  leave(inner, active, frame);
  arrive(frame, active);
  return Step::kJump;
}

Step Warp::exit(Mask active) {
  Split& split = splits_[current_];
  if (!split.guests.empty()) return part_from_guests();
  const JoinIndex join = split.join;
  split.mask &= ~active;
  split.pc += 1;
  if (split.mask == 0) remove_current();
  *live_ &= ~active;
  leave(join, active);
  Cluster& cluster = cta_->cluster();
  cluster.note_progress();
  if (*live_ == 0) cta_->warp_finished();
  cta_->reconsider_barriers();
  return Step::kJump;
}

Step Warp::arrive_at_join() {
  const Split& split = splits_[current_];
  if (!split.guests.empty()) return part_from_guests();
  if (split.join == kNoJoin) return Step::kNext;
  const Join& join = joins_[static_cast<size_t>(split.join)];
  if (join.pc != split.pc || join.is_call) return Step::kNext;
  const JoinIndex index = split.join;
  const Mask lanes = split.mask;
  remove_current();
  arrive(index, lanes);
  return Step::kJump;
}

// ---- waiting

Step Warp::wait_at(Mask active, Wait& wait, uint32_t advance) {
  if (active != splits_[current_].mask) {
    // Lanes whose guard is false have nothing to wait for.
    if (!splits_[current_].guests.empty()) return part_from_guests();
    const Split& split = splits_[current_];
    add_split(split.pc + 1, split.mask & ~active, split.join);
    splits_[current_].mask = active;
  }
  Split& split = splits_[current_];
  split.waits_at = split.pc;
  split.pc += advance;
  split.blocked = true;
  split.asked = false;
  split.wait = wait;
  ++cta_->cluster().statistics().barrier_waits;
  return Step::kBlock;
}

bool Warp::absorb(size_t other) {
  // Lanes may be moved out of joins (they are a help, not a promise), but not out of a call.
  Split& mine = splits_[current_];
  const Split& theirs = splits_[other];
  if (innermost_call(mine.join) != innermost_call(theirs.join)) return false;
  JoinIndex common = mine.join;
  const auto encloses = [&](JoinIndex outer, JoinIndex inner) {
    for (; inner != kNoJoin; inner = joins_[static_cast<size_t>(inner)].parent)
      if (inner == outer) return true;
    return outer == kNoJoin;
  };
  while (!encloses(common, theirs.join)) common = joins_[static_cast<size_t>(common)].parent;
  const Mask my_lanes = mine.mask, their_lanes = theirs.mask;
  const JoinIndex my_join = mine.join, their_join = theirs.join;
  mine.mask |= their_lanes;
  mine.join = common;
  splits_.erase(splits_.begin() + static_cast<ptrdiff_t>(other));
  if (other < current_) --current_;
  leave(my_join, my_lanes, common);
  leave(their_join, their_lanes, common);
  return true;
}

bool Warp::gathers_here(const Split& other) const {
  const Split& mine = splits_[current_];
  return &other != &mine && other.pc == mine.pc && other.blocked && other.wait.ready == gathered;
}

bool Warp::invite_guests(Mask needed) {
  Mask all = splits_[current_].mask;
  for (const Split& other : splits_)
    if (gathers_here(other)) all |= other.mask;
  if ((needed & ~all) != 0) return false;
  for (size_t i = 0; i < splits_.size();) {
    if (!gathers_here(splits_[i])) {
      ++i;
      continue;
    }
    Split& mine = splits_[current_];
    mine.guests.push_back({splits_[i].mask, splits_[i].join});
    mine.mask |= splits_[i].mask;
    splits_.erase(splits_.begin() + static_cast<ptrdiff_t>(i));
    if (i < current_) --current_;
  }
  return true;
}

Step Warp::part_from_guests() {
  Split& split = splits_[current_];
  const std::vector<Split::Guests> guests = std::move(split.guests);
  split.guests.clear();
  for (const Split::Guests& g : guests) split.mask &= ~g.mask;
  const uint32_t pc = split.pc;
  for (const Split::Guests& g : guests) add_split(pc, g.mask, g.join);
  return Step::kJump;
}

Step Warp::gather(Mask active, Mask needed) {
  needed &= *live_;
  if ((needed & ~active) == 0) return Step::kNext;
  if (!splits_[current_].guests.empty()) return part_from_guests();
  const bool all_active = active == splits_[current_].mask;
  if (all_active) {
    for (size_t i = 0; i < splits_.size();)
      if (!gathers_here(splits_[i]) || !absorb(i)) ++i;
    if ((needed & ~splits_[current_].mask) == 0 || invite_guests(needed))
      return Step::kJump;  // again, with all of them
    active = splits_[current_].mask;
  }
  Wait wait;
  wait.ready = gathered;
  wait.describe = describe_gather;
  wait.a = needed;
  wait.b = active;
  return wait_and_retry(active, wait);
}

bool Warp::pick() {
  release_joins(false);
  const size_t count = splits_.size();
  // Round robin, starting behind the split that ran last, so that spinning lanes cannot starve their
  // siblings.
  const size_t start = current_ == kNone || count <= 1 ? 0 : current_ + 1;
  for (size_t i = 0; i < count; ++i) {
    const size_t candidate = (start + i) % count;
    Split& split = splits_[candidate];
    if (split.blocked) {
      if (!split.timed_out && !split.wait.ready(*this, split.wait)) continue;
      split.blocked = false;
    }
    current_ = candidate;
    return true;
  }
  return false;
}

bool Warp::release_joins(bool force) {
  bool released = false;
  for (size_t i = 0; i < joins_.size(); ++i) {
    Join& join = joins_[i];
    if (join.arrived == 0 || (!force && executed - join.since < longest_park_)) continue;
    if (!force) longest_park_ = std::max(kMinPark, longest_park_ / 2);
    add_split(join.pc, join.arrived, join.parent);
    join.expected &= ~join.arrived;
    join.arrived = 0;
    released = true;
  }
  return released;
}

bool Warp::time_out_one() {
  for (Split& split : splits_) {
    if (!split.blocked || !split.wait.may_time_out || split.timed_out) continue;
    split.timed_out = true;
    return true;
  }
  return false;
}

void Warp::describe_waits(std::vector<std::string>& lines) {
  for (const Split& split : splits_) {
    if (!split.blocked) continue;
    lines.push_back(fmt::format("warp {} lanes 0x{:08x} at {} waits {}", index_, split.mask,
                                program_->place_text(split.waits_at),
                                split.wait.describe(*this, split.wait)));
  }
  for (const Join& join : joins_)
    if (join.arrived != 0)
      lines.push_back(fmt::format("warp {} lanes 0x{:08x} at {} waits for lanes 0x{:08x} to reconverge",
                                  index_, join.arrived, program_->place_text(join.pc),
                                  join.expected & ~join.arrived));
}

}  // namespace imbrex::vgpu
