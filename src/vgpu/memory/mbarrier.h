// SPDX-License-Identifier: Apache-2.0
// The mbarrier object as a state machine: phases, pending arrivals, announced bytes. Instructions that reach
// it are in mbarrier_exec.cpp.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace imbrex::vgpu {

/// Why an operation on an mbarrier is undefined.
enum class MbarrierFault : uint8_t {
  kNone,
  kCountRange,       // init count or arrive count outside 1 ... 2^20-1
  kTooManyArrivals,  // pending count below 0
  kTxRange,          // |tx-count| above 2^20-1
  kNoCompleteCompletes,
  kStaleState,  // a waited-for state more than one phase old
  kNotLive,     // no object at this address
  kAlreadyLive,
};

/// What an operation did: whether it was legal, and whether it completed the phase (waiters may go on).
struct MbarrierOutcome {
  MbarrierFault fault = MbarrierFault::kNone;
  bool completed = false;
  bool overtook = false;  // an arrival for a phase before any wait has seen the end of the one before
};

struct Instruction;

class Mbarrier {
 public:
  static constexpr int64_t kMaxCount = (1 << 20) - 1;
  static constexpr int64_t kMaxTx = (1 << 20) - 1;

  Mbarrier() = default;
  explicit Mbarrier(int64_t count) : expected_(count), pending_(count) {}

  MbarrierOutcome expect_tx(int64_t bytes);
  MbarrierOutcome complete_tx(int64_t bytes);
  MbarrierOutcome arrive(int64_t count);
  /// expect_tx(bytes), then arrive(1), as one step.
  MbarrierOutcome arrive_expect_tx(int64_t bytes);
  /// An arrival that must not be the one that completes the phase (nothing changes where it would).
  MbarrierOutcome arrive_no_complete(int64_t count);
  /// One arrival more is needed in the current phase (cp.async.mbarrier.arrive without .noinc).
  MbarrierOutcome add_pending();
  /// `count` arrivals fewer from the next phase on. To be followed, in the same step, by an arrive of the
  /// same count.
  MbarrierOutcome drop(int64_t count);

  /// The opaque word an arrive returns: the object before that arrive.
  uint64_t state() const;
  /// P of the object that produced `state`.
  static uint32_t pending_count(uint64_t state);

  /// True iff the phase of this parity is not the running one.
  bool is_done_parity(uint32_t parity) const { return (phase_ & 1) != (parity & 1); }
  bool is_done_state(uint64_t state) const {
    return static_cast<uint32_t>(state) != static_cast<uint32_t>(phase_);
  }
  /// A state says something only about the running phase and the one before.
  bool is_stale_state(uint64_t state) const;

  /// A wait has been satisfied: the phase before the running one is known to be over.
  void note_wait() {
    is_end_seen_ = true;
    unseen_bytes_ = 0;
  }
  /// Bytes delivered in phases that no wait has seen the end of, and by which instruction last.
  int64_t unseen_bytes() const { return unseen_bytes_ + bytes_in_phase_; }
  const Instruction* last_copy = nullptr;
  const char* file = "";  ///< where the source initialises it, when that is known
  int line = 0;
  const char* variable = "";  ///< that holds it and its array, when the PTX tells

  int64_t phase() const { return phase_; }
  int64_t expected() const { return expected_; }
  int64_t pending() const { return pending_; }
  int64_t tx_count() const { return tx_; }

  /// "pending 1 of 2 arrivals, 4096 bytes missing".
  std::string describe() const;

 private:
  MbarrierOutcome change_tx(int64_t delta);
  bool try_complete();

  int64_t phase_ = 0;
  int64_t expected_ = 0;
  int64_t pending_ = 0;
  int64_t tx_ = 0;
  bool is_end_seen_ = true;     // of the phase before; that before the first counts as seen
  int64_t bytes_in_phase_ = 0;  // delivered in the running phase
  int64_t unseen_bytes_ = 0;    // delivered in phases that are over
};

/// One sentence for a report, with the object's counts.
std::string explain(MbarrierFault fault, const Mbarrier& object);

/// The live objects of one CTA, by shared offset. The hardware keeps them apart from the bytes as well: what
/// a plain load of a live object returns is undefined.
class MbarrierTable {
 public:
  struct Entry {
    uint32_t offset;
    Mbarrier object;
  };

  /// The object at `offset`, or null.
  Mbarrier* find(uint32_t offset);
  /// "ready[1]" where the PTX or the source line of its mbarrier.init names a variable; else "".
  std::string variable_of(uint32_t offset) const;
  /// "the barrier ready[1] at shared 0x408", or "the barrier at shared 0x408".
  std::string name_of(uint32_t offset) const;
  /// The live object overlapping the `size` bytes from `offset`, or null.
  const Entry* overlapping(uint32_t offset, uint32_t size) const;
  MbarrierFault init(uint32_t offset, int64_t count);
  MbarrierFault invalidate(uint32_t offset);
  const std::vector<Entry>& entries() const { return entries_; }

 private:
  std::vector<Entry> entries_;  // few: a linear search beats a map
};

}  // namespace imbrex::vgpu
