// SPDX-License-Identifier: Apache-2.0
// A warp: registers of 32 lanes, and the splits in which its lanes are running.
//
// Lanes that took different sides of a branch run as separate splits. Every potentially divergent branch
// opens a join at its immediate post-dominator; a split that gets there is parked in the join until its
// siblings come. The wait is a matter of speed and of .aligned instructions only: a join lets go of those who
// have arrived when the others cannot come (blocked or spinning), so code that relies on independent thread
// scheduling never hangs. A call is a join at the return address.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "vgpu/checks/who.h"
#include "vgpu/lanes.h"
#include "vgpu/memory/memory.h"
#include "vgpu/memory/recycled_block.h"
#include "vgpu/program/instruction.h"
#include "vgpu/program/program.h"

namespace imbrex::vgpu {

struct CallStack;
class Cta;
class Warp;

/// What a blocked split waits for. `ready` is polled by the scheduler; it must not change anything.
struct Wait {
  bool (*ready)(Warp& warp, const Wait& wait) = nullptr;
  /// Completes the sentence "waits ...", e.g. "for phase 1 of mbarrier 0x400 (expects 2 more arrivals)".
  std::string (*describe)(Warp& warp, const Wait& wait) = nullptr;
  uint64_t a = 0, b = 0;  // whatever the two functions need
  void* object = nullptr;
  bool may_time_out = false;  // try_wait: the scheduler may wake it unready; Split::timed_out tells the body
};

using JoinIndex = int32_t;
inline constexpr JoinIndex kNoJoin = -1;

/// Lanes running together at one pc.
struct Split {
  uint32_t pc = 0;
  Mask mask = 0;
  JoinIndex join = kNoJoin;  // innermost join these lanes are inside of
  /// Lanes of `mask` that were called from elsewhere and met the others in a collective: they stay together
  /// until control has to tell them apart.
  struct Guests {
    Mask mask = 0;
    JoinIndex join = kNoJoin;  // theirs
  };
  std::vector<Guests> guests;
  bool blocked = false;
  bool timed_out = false;  // woken from a Wait with may_time_out before it was ready
  bool asked = false;      // not blocked: an instruction that only asks has found `wait` not over
  uint32_t waits_at = 0;   // the instruction that blocked it, or asked
  Wait wait = {};
};

/// A place where lanes meet again.
struct Join {
  uint32_t pc = 0;
  Mask expected = 0;  // lanes inside, not yet let go or exited
  Mask arrived = 0;   // of those, parked here
  JoinIndex parent = kNoJoin;
  bool is_call = false;
  int64_t since = 0;  // Warp::executed when the first lane was parked
};

class Warp {
 public:
  Warp(Cta& cta, int index, Mask lanes, const Program& program, bool track_defined);
  ~Warp();

  Cta& cta() const { return *cta_; }
  int index() const { return index_; }
  const Program& program() const { return *program_; }

  // ---- who acts

  Who thread(const Instruction& insn, int lane) const { return {known_cta_, index_, lane, &insn}; }
  /// Lanes that do something together.
  Who threads(const Instruction& insn, Mask active) const {
    return {known_cta_, index_, first_lane(active), &insn, "", active};
  }

  // ---- registers

  /// The 32 lanes of a register, T being uint32_t, float, uint64_t, double, ... as wide as the slot.
  template <class T>
  T* reg(Slot slot) {
    return reinterpret_cast<T*>(registers_.data() + slot);
  }
  std::span<const std::byte> register_bytes() const { return {registers_.data(), program_->register_bytes}; }
  Mask& predicate(Slot slot) { return *reg<Mask>(slot); }
  /// The address that a lane gives.
  uint64_t address(const AddressSource& source, int lane) {
    if (source.base_is_64) return reg<uint64_t>(source.base)[lane] + static_cast<uint64_t>(source.offset);
    return static_cast<uint32_t>(reg<uint32_t>(source.base)[lane] + static_cast<uint64_t>(source.offset));
  }
  /// The lanes in which a predicate operand holds.
  Mask lanes_where(const PredicateSource& source) { return predicate(source.slot) ^ source.flip; }
  /// Per dense register number: lanes in which it has been written. Empty unless tracked.
  std::vector<Mask>& defined() { return defined_; }
  /// Per dense register number: where its undefined lanes come from, as the index of the instruction that
  /// read a register that was not written, plus 1; 0 where the register itself was never written. Empty
  /// until there is one.
  std::vector<uint32_t>& undefined_origin() { return undefined_origin_; }
  /// Of registers by dense number that are undefined in part: which bytes, as bits, of each lane. Counts in
  /// lanes where defined() says no; a register that is not here is undefined as a whole there.
  using LaneBytes = std::array<uint8_t, kWarpSize>;
  std::unordered_map<uint32_t, LaneBytes>& undefined_bytes() { return undefined_bytes_; }
  /// What a load found in memory that nobody has written: the last time, by the load's index.
  struct UnwrittenLoad {
    const char* memory = "";
    uint32_t bytes = 0;
    std::array<uint64_t, kWarpSize> addresses{};  // of the lanes that did
    bool is_padding = false;                      // GlobalMemory::is_padding
    std::string coming, help;                     // of a copy that was to write there: see coming_copy()
  };
  std::unordered_map<uint32_t, UnwrittenLoad>& unwritten_loads() { return unwritten_loads_; }
  /// Values that were never written and came through memory, by their undefined_origin(): the last time.
  struct UndefinedWay {
    UndefinedStore how;
    uint32_t load = 0;  // as its index + 1
  };
  std::unordered_map<uint32_t, UndefinedWay>& undefined_ways() { return undefined_ways_; }
  /// A store is about to store registers that were not written: its body has to look.
  bool stores_undefined = false;
  /// The thread-private memory of a lane (.local variables, call parameters).
  std::byte* local(int lane) { return local_.data() + static_cast<size_t>(lane) * local_bytes_; }
  uint32_t local_bytes() const { return local_bytes_; }
  /// One bit per byte of local memory, lane after lane; empty unless tracked.
  WrittenBits& local_written() { return local_written_; }
  void mark_local_written(int lane, uint64_t offset, uint64_t bytes) {
    if (!defined_.empty()) local_written_.mark(static_cast<size_t>(lane) * local_bytes_ + offset, bytes);
  }
  void mark_local_unwritten(int lane, uint64_t offset, uint64_t bytes) {
    local_written_.unmark(static_cast<size_t>(lane) * local_bytes_ + offset, bytes);
  }
  /// Where Program::stack_pointer is.
  CallStack& call_stack() { return *call_stack_; }

  // ---- control

  /// The split being executed. Bodies that return Step::kNext must leave its pc alone.
  Split& split() { return splits_[current_]; }
  /// Lanes that have not exited.
  Mask live() const { return *live_; }
  bool finished() const { return *live_ == 0; }
  const std::vector<Split>& splits() const { return splits_; }
  /// False when the current split is gone (exited, parked) and pick() has to find another.
  bool has_current() const { return current_ != kNone; }

  /// Sends the lanes of `taken` to `target`, the rest of the split to `rest_target`; `reconverge` is the pc
  /// where both meet, or kNowhere.
  Step branch(Mask taken, uint32_t target, uint32_t rest_target, uint32_t reconverge);
  /// The lanes that do not call go on behind the call; where `others_call`, they come to it again.
  Step call(Mask active, uint32_t target, bool others_call = false);
  Step ret(Mask active);
  /// Those of the lanes that have returned to here and were not taken yet.
  Mask take_returned(Mask lanes) {
    const Mask taken = returned_ & lanes;
    returned_ &= ~lanes;
    return taken;
  }
  Step exit(Mask active);
  /// Executed as the first instruction of every reconvergence point: parks the split if it is inside a join
  /// there.
  Step arrive_at_join();

  /// Blocks the lanes of `active`, the others of the split go on; when `wait` is ready the same instruction
  /// is executed again.
  Step wait_and_retry(Mask active, Wait wait) { return wait_at(active, wait, 0); }
  /// The same, but when `wait` is ready the next instruction follows.
  Step wait_then_continue(Mask active, Wait wait) { return wait_at(active, wait, 1); }
  /// Step::kNext once all live lanes of `needed` stand at this instruction in one split and are active; else
  /// blocks. To be called first by every .sync and .aligned body.
  Step gather(Mask active, Mask needed);
  /// Guests go on in splits of their own; the instruction is executed again.
  Step part_from_guests();

  /// Makes one split that can run current; false when all wait.
  bool pick();
  /// Lets go of parked lanes whose siblings do not come: those parked for too long, or with `force` all. True
  /// if there were any.
  bool release_joins(bool force);
  /// Wakes one split that waits for something that may time out. False when there is none.
  bool time_out_one();
  /// What every split is waiting for, one line each.
  void describe_waits(std::vector<std::string>& lines);

  int64_t executed = 0;  // instructions of this warp so far
  /// A place in memory where a lane looked for what others change, and the instruction by which it did.
  struct Look {
    const std::byte* at = nullptr;
    uint32_t bytes = 0;
    uint32_t insn = 0;
    int lane = 0;
  };
  Look last_look;

 private:
  static constexpr size_t kNone = ~size_t{0};
  Step wait_at(Mask active, Wait& wait, uint32_t advance);
  void remove_current();
  void add_split(uint32_t pc, Mask mask, JoinIndex join);
  /// Parks lanes in a join and lets all go when it is complete.
  void arrive(JoinIndex join, Mask lanes);
  /// Lanes that will never come to `join`, nor to those around it up to (not including) `end`.
  void leave(JoinIndex join, Mask lanes, JoinIndex end = kNoJoin);
  void complete_if_full(JoinIndex join);
  JoinIndex open_join(uint32_t pc, Mask lanes, JoinIndex parent, bool is_call);
  JoinIndex innermost_call(JoinIndex join) const;
  /// Takes the lanes of another split into the current one; false when they are in different calls.
  bool absorb(size_t other);
  /// The split waits in gather() at the instruction of the current one.
  bool gathers_here(const Split& other) const;
  /// Makes guests of those who wait here in other calls, provided that then all `needed` are there.
  bool invite_guests(Mask needed);

  Cta* cta_;
  const CtaIdentity* known_cta_;  // the same
  int index_;
  Mask* live_;  // in the CTA, where observers see it
  const Program* program_;
  int64_t longest_park_;  // of lanes, in instructions of the warp
  RecycledBlock registers_;
  uint32_t local_bytes_;  // of a lane
  std::vector<std::byte> local_;
  WrittenBits local_written_;
  std::vector<Mask> defined_;
  std::vector<uint32_t> undefined_origin_;
  std::unordered_map<uint32_t, LaneBytes> undefined_bytes_;
  std::unordered_map<uint32_t, UnwrittenLoad> unwritten_loads_;
  std::unordered_map<uint32_t, UndefinedWay> undefined_ways_;
  std::vector<Split> splits_;
  size_t current_ = kNone;
  std::vector<Join> joins_;
  std::vector<JoinIndex> free_joins_;
  Mask returned_ = 0;
  std::unique_ptr<CallStack> call_stack_;
};

}  // namespace imbrex::vgpu
