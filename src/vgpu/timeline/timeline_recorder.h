// SPDX-License-Identifier: Apache-2.0
// Writes down what a cluster does, for the simulation of its time. The machine tells it (machine/observers.h);
// it asks nothing and changes nothing. A cluster that is not recorded has none. Warps are numbered within the
// cluster: rank * warps per CTA + warp.
#pragma once

#include <deque>
#include <string>
#include <unordered_map>
#include <vector>

#include "vgpu/checks/bank_counter.h"
#include "vgpu/checks/happens_before.h"
#include "vgpu/checks/who.h"
#include "vgpu/memory/memory.h"
#include "vgpu/program/launch.h"
#include "vgpu/timeline/cost_model.h"
#include "vgpu/timeline/flag_writers.h"
#include "vgpu/timeline/machine_costs.h"
#include "vgpu/timeline/recording.h"
#include "vgpu/timeline/signal_board.h"

namespace imbrex::vgpu {

class TimelineRecorder {
 public:
  /// Of cluster `number` of the grid; `ctas`: the linear numbers of its CTAs, by rank. `with_texts`: also what
  /// each operation does, for the picture.
  TimelineRecorder(const LaunchContext& launch, int64_t number, std::vector<int64_t> ctas, bool with_texts);
  bool with_texts() const { return with_texts_; }
  /// The sample has ended, and nobody wants to know how the cluster goes on.
  bool is_enough() const { return recording_.is_cut && ends_when_cut_; }

  /// A warp has executed an instruction (Step::kBlock: it will come again).
  void executed(size_t warp, const Instruction& insn, Step step);
  /// The instruction, which is being executed, reads or writes `bytes` at each lane's host address.
  void accessed(size_t warp, const Instruction& insn, Space space, const std::byte* const* host, Mask lanes,
                uint32_t bytes, BankAccess access);
  /// It updates them atomically; `is_native`: by one of the updates that shared memory has itself.
  void updated(size_t warp, const Instruction& insn, Space space, const std::byte* const* host, Mask lanes,
               uint32_t bytes, bool returns, bool is_native);

  /// It divides float32 numbers, exactly rounded: what is divided says how long that takes.
  void divides(size_t warp, const uint32_t* numerators, Mask lanes);

  /// mbarrier.init: a new object from now on.
  void initialised(const Who& who, SyncKey key);
  /// An arrival, announced or delivered bytes, in a phase of an object; by whoever acts now.
  void arrived(const Who& who, SyncKey key, int64_t phase);
  /// The warp of `who` goes on because that phase is over. Negative phases were never waited for.
  void waited(const Who& who, SyncKey key, int64_t phase);
  /// Columns of tensor memory taken (or given back, when negative) in the CTA of that rank.
  void allocated(const Who& who, int rank, int columns);
  /// tcgen05.relinquish_alloc_permit in the CTA of that rank.
  void relinquished(const Who& who, int rank);

  /// `who` submits work, or the work that is being carried out does so for it. `lines`: the 128-byte lines of
  /// global memory it reads, where the demand names no block. Returns the work's number.
  int32_t submitted(const Who& who, int32_t queue, const WorkDemand& demand,
                    const std::vector<uint64_t>& lines, std::string text);
  /// A warp takes part in a product of its warpgroup, which `submitter` has submitted as that work.
  void joined(size_t warp, const Who& submitter, int32_t product);
  /// Work is carried out from here on, until -1 is.
  void carries_out(int32_t work) { acting_ = work; }

  Recording take();

 private:
  using Kind = RecordedStep::Kind;
  /// Commit groups of one sort of asynchronous work of a warp.
  struct Groups {
    std::vector<int32_t> open;
    std::deque<std::vector<int32_t>> closed;
    void commit() {
      closed.push_back(std::move(open));
      open.clear();
    }
  };
  /// The last time that a warp looked whether another has stored something.
  struct Look {
    uint32_t insn = ~0u;
    const std::byte* at = nullptr;
    size_t wait = 0, steps = 0;  // in the warp's steps: its kWaitSignal, and what was behind its load
    int32_t load = -1;
    double clock = 0;
  };
  struct WarpState {
    // Of the warp alone, without its waits: the earliest begin of the instructions of this block, which overlap as far as
    // they do not depend on each other; when all of them have been issued one by one; and when the last of them has been.
    double clock = 0, port = 0, last = 0;
    double run_begin = 0, issue = 0, slots = 0, shared = 0, matrix = 0;  // since the last event
    PipeClocks pipes = {};                                               // the same
    std::vector<uint16_t> code;    // lines of machine code, since the last event ...
    std::vector<bool> is_fetched;  // ... by number
    uint32_t run_insn = 0;
    double matrix_free = 0;
    int32_t operand_groups = 0;  // loads from shared memory with products behind them, since the last event
    bool has_operands = false;   // loaded since the last product
    std::vector<double> ready;   // by register: when it may be used
    std::vector<int32_t> loads;  // by register: the load that fills it, or -1
    int32_t load = -1;           // by the instruction being executed
    bool has_stored = false;     // to global memory, since it last waited until all see that
    int32_t open_store = -1;     // of parts of sectors, with which others are gathered; its room, in bytes
    int64_t room = 0;
    double wavefronts = 0;                     // clocks its access takes of shared memory
    Numerator numerator = Numerator::kNormal;  // of its lanes, the one that takes longest
    int32_t product = -1;  // the one submitted or joined last, unless its group has been closed
    Groups copies, bulk_reads, bulk_writes, products;
    std::vector<int32_t> tensor_loads, tensor_stores;
    std::vector<int32_t> copies_for_barrier;  // since the last arrival that waits for copies
    int32_t after = -1, after_count = 0;      // what that one waits for
    // The strong load that it executed last, and where it stands among the steps.
    struct Poll {
      uint32_t insn = ~0u;
      const std::byte* word = nullptr;
      size_t end = 0;  // of the steps that submit it
      int32_t work = -1;
    } poll;
    // A test that fails again costs nothing: how often depends on the schedule.
    uint32_t spin_insn = ~0u;
    size_t spin_steps = 0;
    double spin_clock = 0, spin_issue = 0, spin_slots = 0;
    PipeClocks spin_pipes = {};
    Look look;
  };

  size_t index_of(const Who& who) const;
  int32_t object_of(const Who& who, SyncKey key);
  void flush(size_t warp, uint32_t insn);
  bool follows_at_once(size_t warp, int32_t queue, const WorkDemand& product);
  void push(size_t warp, RecordedStep step) { recording_.warps[warp].push_back(step); }
  void wait_for(size_t warp, uint32_t insn, Kind kind, const std::vector<int32_t>& works);
  void wait_for_groups(size_t warp, const Instruction& insn, Kind kind, Groups& groups);
  void wait_for_group_of(size_t warp, const Instruction& insn, CostClass cost);
  void issue(size_t warp, const Instruction& insn, const InstructionInfo& info);
  void submit_access(size_t warp, const Instruction& insn, const WorkDemand& demand,
                     const std::byte* const* host, Mask lanes, uint32_t bytes, bool loads);
  bool looks_again(size_t warp, const Instruction& insn, const std::byte* at);
  /// Whose memory it is, where not this GPU's.
  int16_t peer_of(uint64_t address) const;
  int16_t peer_of(const std::byte* host) const;
  /// A strong load, submitted just now or as often before as a poll looks: waits for who stored what it finds.
  void wait_for_flags(size_t warp, uint32_t insn, const std::byte* const* host, Mask lanes);
  bool polls_again(size_t warp, uint32_t insn, const std::byte* word);
  void drain(size_t warp, uint32_t insn);
  static void end_block(WarpState& state);
  bool is_gathered(WarpState& state, const RecordedWork& store) const;
  void add_lines(RecordedWork& work, const std::byte* const* host, Mask lanes, uint32_t bytes);

  const Program* program_;
  const MachineCosts* machine_;  // null: only PTX is at hand
  bool is_long_;                 // the machine code: an SM does not hold all of it
  const GlobalMemory* memory_;
  SignalBoard* signals_;  // null: nobody asks who waits for which store
  int rank_;              // of the GPU among those of a node; -1: it is alone
  BankMeter banks_;
  CostModel model_;
  /// True when the sample has ended; nothing more is recorded but how much is stored.
  bool is_cut();

  bool with_texts_;
  bool computes_;  // what it divides is what the chip would
  size_t most_works_;
  /// Rounds of a persistent kernel, as far as the order of works shows them.
  struct Rounds {
    int count = 0;
    size_t longest = 0, end = 0;  // works between two stores at most; where the last store's end is
    void stored(size_t work);
  } rounds_;
  Recording recording_;
  std::vector<WarpState> states_;
  std::unordered_map<SyncKey, int32_t> objects_;
  int32_t acting_ = -1;
  bool ends_when_cut_;  // the run, with its recording
  FlagWriters* flags_;  // null where no cluster heeds others
};

}  // namespace imbrex::vgpu
