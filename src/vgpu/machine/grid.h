// SPDX-License-Identifier: Apache-2.0
// Running a grid: slots, host threads, and the order of what clusters can see of each other.
//
// A slot stands for a place on the chip where one cluster is resident. Each slot runs its own list of
// clusters one after the other, so who runs where depends on nothing but the grid, the number of slots and
// the seed; a cluster that cancels another (cluster launch control) takes the next of its own slot's list.
//
// Operations that other clusters can observe (atomics, asynchronous reductions, volatile, relaxed, acquire
// and release accesses to global memory) happen in the order of (epoch, slot), an epoch being 1024
// instructions of the slot's logical clock: a cluster may do them only while it is the least of all slots.
// Launches on several GPUs that run together are one grid in this respect: each brings its slots.
// Whoever is not waits (Step::kTurn) while others catch up. Hence a run depends on the seed alone, whatever
// the number of host threads, and a loop that spins on another cluster's flag lets that cluster get on.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "vgpu/checks/bank_counter.h"
#include "vgpu/checks/sector_counter.h"
#include "vgpu/machine/slot_queue.h"
#include "vgpu/program/launch.h"
#include "vgpu/timeline/recording.h"

namespace imbrex::vgpu {

struct Watch;
class Cluster;
class Grid;

/// One place where clusters run.
class GridSlot {
 public:
  /// The slot's next cluster, or -1.
  int64_t take_next() { return next_ < queue_.size() ? queue_[next_++] : -1; }
  /// True when (epoch of `clock`, slot) is the least of all slots.
  bool has_turn(uint64_t clock);
  /// Tells the others how far this slot has come.
  void publish(uint64_t clock) { clock_.store(clock, std::memory_order_release); }
  /// Tells the others when, on its clock, it last did what they may wait for: once that can be seen, and before the slot's clock is
  /// published or its loops are looked at.
  void publish_progress(uint64_t clock) { progress_.store(clock, std::memory_order_release); }
  /// A number that changes whenever any slot makes progress.
  uint64_t grid_progress() const;
  /// All that this slot's cluster does is known to repeat itself while grid_progress() is `stamp`. True when that
  /// is so for all slots: then nothing will ever happen again, however the host has interleaved them. For if something does, the
  /// first thing since any of them began to be looked at is done by one of them; not since its own stamp was first taken, for it
  /// then goes round until something happens; nor before, for that stamp would tell of it, and those taken earlier do not.
  bool all_loop(uint64_t stamp);
  /// True when the slot should soon return to the host threads' queue, because a thread waits for others to
  /// get on.
  bool should_return() const;
  int index() const { return index_; }

  ~GridSlot();

 private:
  friend class Grid;
  static constexpr uint64_t kNotLooping = ~uint64_t{0};
  enum class State : uint8_t { kIdle, kReady, kRunning, kNeedsTurn, kDone };
  Grid* grid_ = nullptr;
  int index_ = 0;
  size_t launch_ = 0;  // in Grid::launches_
  std::vector<int64_t> queue_;
  size_t next_ = 0;
  std::atomic<uint64_t> clock_{0};
  std::atomic<uint64_t> progress_{0};
  std::atomic<uint64_t> loops_at_{kNotLooping};  // grid_progress() for which it is known to loop
  uint64_t turn_until_ = 0;                      // epochs below this one are known to be this slot's turn
  State state_ = State::kIdle;
  SlotQueue<GridSlot>::Keys keys_;  // while it waits in Grid::queue_
  std::unique_ptr<Cluster> cluster_;
};

/// A launch, and of how many clusters the GPU holds at once.
struct ResidentLaunch {
  const LaunchContext* context = nullptr;
  int slots = 1;
};

/// A launch being run, or several on as many GPUs.
class Grid {
 public:
  explicit Grid(std::span<const ResidentLaunch> launches);
  ~Grid();
  /// Runs everything on `host_threads` threads, this one included. Returns a report per launch.
  std::vector<Report> run(int host_threads);
  /// Of the clusters of a launch that ran, in the order of their numbers, when it asked for a timeline.
  std::vector<Recording> take_recordings(size_t launch);

 private:
  friend class GridSlot;
  static constexpr int kEpochShift = 10;
  static constexpr uint64_t kNever = ~uint64_t{0};
  static uint64_t epoch(uint64_t clock) { return clock >> kEpochShift; }

  struct NumberedFinding {
    int64_t cluster;
    uint64_t epoch;
    int slot;
    std::pair<uint32_t, uint32_t> places;
    Finding finding;
  };
  /// One of the launches, and what is known of its clusters that ended.
  struct Running {
    const LaunchContext* context;
    std::vector<NumberedFinding> findings = {};
    std::vector<std::pair<int64_t, std::string>> printed = {};
    Statistics statistics = {};
    std::vector<Recording> recordings = {};
    std::unique_ptr<BankCounter> banks = {};
    std::unique_ptr<SectorCounter> sectors = {};
  };

  void worker();
  /// Tells Options::watch how far the launch has come; to be called with the lock.
  void look_around();
  void describe_all(std::vector<std::string>& lines, const GridSlot* but = nullptr);
  /// Where the other clusters of all launches are, for a finding that ends them.
  void describe_others(const GridSlot& slot, std::vector<std::string>& lines);
  /// How many CTAs of the launch there is no room for before others have ended, where there are some.
  void describe_unstarted(size_t launch, std::vector<std::string>& lines) const;
  bool is_interrupted() const;
  Finding interruption(const Running& running);
  /// The next slot of the queue that may run, or null.
  GridSlot* choose();
  /// Puts a slot that is not running into the queue, or retires it where nothing is left to run.
  void put_back(GridSlot& slot);
  void retire(GridSlot& slot);
  /// Once a cluster has stopped the launch: what would come later is not run.
  void retire_beyond_stop();
  bool all_done() const;
  void start_cluster(GridSlot& slot);
  bool needs_others(Cluster& stopped) const;
  /// Until no cluster runs: what they are at can be read then.
  void pause_others(std::unique_lock<std::mutex>& lock);
  void finish_cluster(GridSlot& slot, bool stopped);
  std::vector<Report> collect();
  Report collect(Running& running, bool interrupted);

  std::vector<Running> launches_;
  std::shared_ptr<const Watch> watch_;  // of the first of them
  std::vector<std::unique_ptr<GridSlot>> slots_;
  SlotQueue<GridSlot> queue_;  // those that are neither running nor done
  std::mutex mutex_;
  std::condition_variable changed_;
  int idle_threads_ = 0;
  int pausing_threads_ = 0;  ///< that wait for the others to stand still
  std::atomic<int> waiting_threads_{0};
  // Where a cluster stopped the launch: nothing that comes later in (epoch, slot) order counts.
  uint64_t stop_epoch_ = kNever;
  int stop_slot_ = 0;
  std::exception_ptr failure_;
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  double next_look_ = 0;  // in seconds since then
};

}  // namespace imbrex::vgpu
