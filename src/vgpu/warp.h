// SPDX-License-Identifier: Apache-2.0
// A warp: registers of 32 lanes, and the splits in which its lanes are running.
//
// Lanes that took different sides of a branch run as separate splits. Every potentially divergent branch
// opens a join at its immediate post-dominator; a split that gets there is parked in the join until its
// siblings come. The wait is a matter of speed and of .aligned instructions only: a join lets go of those who
// have arrived when the others cannot come (blocked or spinning), so code that relies on independent thread
// scheduling never hangs. A call is a join at the return address.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "vgpu/instruction.h"
#include "vgpu/lanes.h"
#include "vgpu/program.h"

namespace imbrex::vgpu {

class Cta;
class Warp;

/// What a blocked split waits for. `ready` is polled by the scheduler; it must not change anything.
struct Wait {
  bool (*ready)(Warp& warp, const Wait& wait) = nullptr;
  /// Completes the sentence "waits ...", e.g. "for phase 1 of mbarrier 0x400 (expects 2 more arrivals)".
  std::string (*describe)(Warp& warp, const Wait& wait) = nullptr;
  uint64_t a = 0, b = 0;  // whatever the two functions need
  void* object = nullptr;
  Mask lanes = 0;             // lanes of the split, set by the warp
  bool may_time_out = false;  // try_wait: the scheduler may wake it unready; Split::timed_out tells the body
};

using JoinIndex = int32_t;
inline constexpr JoinIndex kNoJoin = -1;

/// Lanes running together at one pc.
struct Split {
  uint32_t pc = 0;
  Mask mask = 0;
  JoinIndex join = kNoJoin;  // innermost join these lanes are inside of
  bool blocked = false;
  bool timed_out = false;  // woken from a Wait with may_time_out before it was ready
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

  Cta& cta() const { return *cta_; }
  int index() const { return index_; }
  const Program& program() const { return *program_; }

  // Registers
  // ------------------------------------------------------------------------------------------------
  /// The 32 lanes of a register, T being uint32_t, float, uint64_t, double, ... as wide as the slot.
  template <class T>
  T* reg(Slot slot) {
    return reinterpret_cast<T*>(registers_.get() + slot);
  }
  Mask& predicate(Slot slot) { return *reg<Mask>(slot); }
  /// Per dense register number: lanes in which it has been written. Empty unless tracked.
  std::vector<Mask>& defined() { return defined_; }
  /// The thread-private memory of a lane (.local variables, call parameters); Program::local_bytes of it.
  std::byte* local(int lane) { return local_.data() + static_cast<size_t>(lane) * program_->local_bytes; }
  std::vector<bool>& local_written() { return local_written_; }

  // Control
  // ---------------------------------------------------------------------------------------------------
  /// The split being executed. Bodies that return Step::kNext must leave its pc alone.
  Split& split() { return splits_[current_]; }
  Mask live() const { return live_; }
  bool finished() const { return live_ == 0; }
  std::vector<Split>& splits() { return splits_; }
  std::vector<Join>& joins() { return joins_; }

  /// Sends the lanes of `taken` to `target`, the rest on to the next instruction; `reconverge` is the pc
  /// where both meet, or kNowhere.
  Step branch(Mask taken, uint32_t target, uint32_t reconverge);
  /// The same for several targets: target[lane].
  Step branch_indexed(Mask active, const uint32_t* target, uint32_t reconverge);
  Step call(Mask active, uint32_t target);
  Step ret(Mask active);
  Step exit(Mask active);
  /// Executed as the first instruction of every reconvergence point: parks the split if it is inside a join
  /// there.
  Step arrive_at_join();

  /// Blocks the current split; when `wait` is ready the same instruction is executed again.
  Step wait_and_retry(Wait wait);
  /// Blocks the current split after this instruction; when `wait` is ready the next one follows.
  Step wait_then_continue(Wait wait);
  /// Blocks until all live lanes of `needed` stand at this instruction (in one split); kNext when they do.
  /// To be called first by every .sync and .aligned body.
  Step gather(Mask needed);

  /// Makes one ready split current. False when none can run.
  bool pick();
  /// Lets go of parked lanes whose siblings do not come. `force`: whatever their patience. True if any.
  bool release_joins(bool force);

  int64_t executed = 0;  // instructions of this warp so far
  static constexpr uint32_t kNowhere = ~0u;

 private:
  void remove_current();
  void arrive(JoinIndex join, Mask lanes);
  void leave(JoinIndex join, Mask lanes);  // lanes will never arrive at it
  JoinIndex open_join(uint32_t pc, Mask lanes, JoinIndex parent, bool is_call);
  JoinIndex call_join(JoinIndex join) const;
  bool merge_with_sibling();

  Cta* cta_;
  int index_;
  Mask live_;
  const Program* program_;
  std::unique_ptr<std::byte[]> registers_;
  std::vector<std::byte> local_;
  std::vector<bool> local_written_;
  std::vector<Mask> defined_;
  std::vector<Split> splits_;
  size_t current_ = 0;
  std::vector<Join> joins_;
};

}  // namespace imbrex::vgpu
