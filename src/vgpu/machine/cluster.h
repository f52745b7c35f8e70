// SPDX-License-Identifier: Apache-2.0
// A cluster: CTAs that run together on one host thread, their asynchronous operations, and the scheduler that
// interleaves all of it. What happens inside depends on the seed and the cluster's number alone.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "vgpu/checks/findings.h"
#include "vgpu/machine/adversary.h"
#include "vgpu/machine/async.h"
#include "vgpu/machine/cta.h"
#include "vgpu/machine/endless_loops.h"
#include "vgpu/machine/grid.h"
#include "vgpu/machine/observers.h"
#include "vgpu/machine/random.h"
#include "vgpu/machine/units.h"
#include "vgpu/program/launch.h"

namespace imbrex::vgpu {

/// Why Cluster::advance came back.
enum class ClusterState : uint8_t {
  kRunning,    // the slice is used up
  kNeedsTurn,  // the next instruction or operation is globally visible and it is another cluster's turn
  kFinished,
  kStopped,  // deadlock, budget or too many findings
};

/// The allocation that an instruction touched last: most touch one only.
struct CachedRange {
  uint64_t begin = 0;
  uint64_t bytes = 0;
};

class Cluster {
 public:
  /// `number` counts clusters in x, y, z order; `clock` is where its logical clock starts.
  Cluster(const LaunchContext& launch, GridSlot& slot, int64_t number, uint64_t clock);
  ~Cluster();

  const LaunchContext& launch() const { return *launch_; }
  const Program& program() const { return launch_->program; }
  int64_t number() const { return number_; }
  std::vector<std::unique_ptr<Cta>>& ctas() { return ctas_; }
  /// The CTA of that rank, or null.
  Cta* cta(uint32_t rank) { return rank < ctas_.size() ? ctas_[rank].get() : nullptr; }

  AsyncAgents& async() { return async_; }
  FindingLog& log() { return log_; }
  Statistics& statistics() { return statistics_; }
  std::string& printed() { return printed_; }
  Random& random() { return random_; }
  /// Whom to tell what happens.
  Observers& observe() { return observers_; }
  const CheckSet& checks() const { return launch_->options.checks; }
  /// A finding of one line, with a remedy. Counted silently when it is there already.
  void report(FindingKind kind, const Who& who, uint64_t address, std::string message, std::string hint = "",
              BentRule rule = BentRule::kNone);
  /// The same for what the hardware ends the kernel for: the launch stops.
  void report_fatal(FindingKind kind, const Who& who, uint64_t address, std::string message,
                    std::string hint = "");
  ClusterUnits& units() { return units_; }

  CachedRange& cached_range(const Instruction* insn) { return cached_ranges_[insn->index]; }
  /// %clusterid.
  const std::array<uint32_t, 3>& id() const { return id_; }
  /// Where the cluster runs; stands in for %smid.
  const GridSlot& slot() const { return *slot_; }

  /// Logical time: warp instructions and asynchronous steps executed.
  uint64_t clock() const { return clock_; }
  /// True when an operation visible to other clusters may be done now. A body that may not returns
  /// Step::kTurn.
  bool has_turn() { return slot_->has_turn(clock_); }
  /// Takes the next cluster of the grid that has not been launched out of the queue: its number, or -1.
  int64_t take_unlaunched() { return slot_->take_next(); }
  /// Something happened that others may wait for (store, arrival, exit): the cluster is not stalled.
  void note_progress() { last_progress_ = clock_; }
  /// A look at what another cluster may change: time-outs in between are no sign of a deadlock.
  void note_poll() {
    stalls_ = 0;
    has_polled_ = true;
  }
  /// A load into registers has come upon bytes that were never written: take_unwritten_load() says so once.
  void note_unwritten_load() { unwritten_load_ = true; }
  bool take_unwritten_load() { return std::exchange(unwritten_load_, false); }
  /// Ends the launch after the current instruction, a finding having been reported.
  void stop() { stopped_ = true; }

  /// Runs for about `slice` warp instructions.
  ClusterState advance(int64_t slice);

 private:
  static std::vector<std::unique_ptr<Cta>> make_ctas(Cluster& cluster);
  template <class Checks>
  ClusterState advance_with(int64_t slice);
  /// Lets the warp whose turn it is within the cluster run for a while.
  template <class Checks>
  Step run_next_warp();
  template <class Checks>
  Step run_warp(Warp& warp);
  void choose_next_warp();
  /// Lets an asynchronous operation happen; `pressing` when no warp can run.
  AsyncStep run_async(bool pressing);
  /// No warp can run and no operation is ready: lets go of parked lanes, times out a try_wait. False:
  /// deadlock.
  bool resolve_stall();
  void report_deadlock();
  void report_endless(const Warp& warp, std::string message, std::string hint);
  int64_t new_quantum();
  /// The warps have done nothing that others may wait for in a long time. True when they never will.
  bool loops_for_ever();
  /// Of loops that repeat while `stamp` stays: whether they look at memory that a thread of the program may be about to write.
  bool host_may_write(uint64_t stamp);
  /// Reports such loops, if a look at them was due since the clock stood at `before`.
  bool finds_endless_loops(uint64_t before);

  const LaunchContext* launch_;
  GridSlot* slot_;
  int64_t number_;
  std::array<uint32_t, 3> id_;
  Random random_;
  Adversary adversary_;
  ClusterUnits units_;
  AsyncAgents async_;
  FindingLog log_;
  Statistics statistics_;
  std::string printed_;
  std::vector<CachedRange> cached_ranges_;
  std::vector<std::unique_ptr<Cta>> ctas_;
  Observers observers_;
  std::vector<Warp*> warps_;  // of all CTAs, those that have not finished
  size_t next_warp_ = 0;
  int64_t quantum_left_ = 0;  // of warps_[next_warp_], when it was stopped for a turn
  size_t idle_warps_ = 0;     // in a row that could not run
  uint64_t clock_;
  uint64_t clock_at_start_;
  uint64_t last_progress_;
  bool resuming_ = false;  // its current split goes on where it stopped
  int stalls_ = 0;         // in a row, without progress in between
  uint64_t progress_at_stall_ = 0;
  uint64_t async_interval_ = 1;           // one operation is carried out in so many quanta
  std::optional<uint64_t> async_choice_;  // of an operation that waits for its turn
  Warp* ran_last_ = nullptr;
  EndlessLoops loops_;
  int64_t global_bytes_seen_ = 0;  // moved to or from global memory until the latest look at loops
  bool has_polled_ = false;        // since then
  uint64_t host_awaited_at_ = 0;   // the stamp for which the host has been waited for since
  std::chrono::steady_clock::time_point host_awaited_since_;
  bool unwritten_load_ = false;
  bool stopped_ = false;
};

}  // namespace imbrex::vgpu
