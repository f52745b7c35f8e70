// SPDX-License-Identifier: Apache-2.0
// A cluster: CTAs that run together on one host thread, their asynchronous operations, and the scheduler that
// interleaves all of it. What happens inside depends on the seed and the cluster's number alone.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "vgpu/async.h"
#include "vgpu/cta.h"
#include "vgpu/findings.h"
#include "vgpu/launch.h"
#include "vgpu/random.h"
#include "vgpu/units.h"

namespace imbrex::vgpu {

/// Why Cluster::advance came back.
enum class ClusterState : uint8_t {
  kRunning,    // the slice is used up
  kNeedsTurn,  // the next instruction is globally visible and it is somebody else's turn
  kFinished,
  kStopped,  // deadlock, budget or too many findings
};

class Cluster {
 public:
  /// `number` counts clusters in launch order; `clock` is where its logical clock starts.
  Cluster(const LaunchContext& launch, int64_t number, uint64_t clock);
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
  ClusterUnits& units() { return units_; }

  /// Logical time: warp instructions and asynchronous steps executed.
  uint64_t clock() const { return clock_; }
  /// True when an operation visible to other clusters may be done now. A body that may not returns
  /// Step::kTurn.
  bool has_turn();
  /// Something happened that others may wait for (store, arrival, exit): the cluster is not stalled.
  void note_progress() { last_progress_ = clock_; }
  /// Ends the launch after the current instruction, a finding having been reported.
  void stop() { stopped_ = true; }

  /// Runs for about `slice` warp instructions.
  ClusterState advance(int64_t slice);

 private:
  template <class Checks>
  ClusterState advance_with(int64_t slice);
  template <class Checks>
  Step run_warp(Warp& warp, int64_t quantum);
  bool run_some_async();
  bool resolve_stall();
  void report_deadlock();
  void report_endless(const Warp& warp, int64_t budget, const char* what);
  void retire_finished_ctas();

  const LaunchContext* launch_;
  int64_t number_;
  Random random_;
  std::vector<std::unique_ptr<Cta>> ctas_;
  std::vector<Warp*> warps_;  // of all CTAs, those not finished
  size_t next_warp_ = 0;
  int64_t quantum_left_ = 0;
  bool resuming_ = false;  // stopped for a turn in the middle of warps_[next_warp_]'s quantum
  AsyncAgents async_;
  ClusterUnits units_;
  FindingLog log_;
  Statistics statistics_;
  std::string printed_;
  uint64_t clock_;
  uint64_t last_progress_;
  int timeouts_in_a_row_ = 0;
  bool stopped_ = false;
};

}  // namespace imbrex::vgpu
