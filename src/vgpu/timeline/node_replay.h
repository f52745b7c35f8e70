// SPDX-License-Identifier: Apache-2.0
// Simulates the time of launches that run together on the GPUs of a node: a replay for each, at one clock. What one GPU reads
// and stores in another's memory takes both GPUs' links and the other's L2 and memory; who waits for a signal goes on
// when the store that ended its wait has arrived.
#pragma once

#include <memory>
#include <vector>

#include "vgpu/timeline/link_rates.h"
#include "vgpu/timeline/replay_machine.h"
#include "vgpu/timeline/timeline_replay.h"

namespace imbrex::vgpu {

class Replay;

/// One GPU's launch.
struct RankRecordings {
  int rank = 0;
  ReplayContext context;
  std::vector<Recording> recordings;
};

class NodeReplay {
 public:
  /// `gpus`: of the node; `signals`: as many as a SignalBoard was told. The launches are of GPUs of one kind.
  NodeReplay(const std::vector<RankRecordings>& launches, int gpus, const LinkRates& links, int32_t signals);
  ~NodeReplay();
  /// By launch.
  std::vector<Timeline> run();

  // What the GPUs' replays ask for.

  /// Moves bytes from one GPU to another; when the last has been sent, without the latency.
  double carry(int from, int to, double now, double bytes);
  double latency() const { return latency_; }  // in clocks
  /// Null where it runs nothing.
  Replay* gpu(int rank) { return of_rank_[static_cast<size_t>(rank)]; }
  /// Store `signal` has arrived: its waiters go on.
  void land(int32_t signal, double now);
  /// False where a warp of a GPU's cluster has to wait for it; then it will be woken.
  bool has_landed(int32_t signal, Replay& waiter, int32_t cluster, int32_t warp);

 private:
  struct Port {
    Server server;
    Intervals busy;
    double bytes = 0;
    double take(double now, double clocks, double more);
  };
  struct Waiter {
    Replay* gpu;
    int32_t cluster, warp;
  };
  struct Signal {
    bool has_landed = false;
    std::vector<Waiter> waiters;
  };
  void add_links(Timeline& timeline, int rank) const;

  double rate_ = 0, latency_ = 0;  // bytes per clock, clocks
  std::vector<std::unique_ptr<Replay>> replays_;
  std::vector<int> ranks_;  // of the replays
  std::vector<Replay*> of_rank_;
  std::vector<Port> out_, in_;  // by rank
  std::vector<Signal> signals_;
};

}  // namespace imbrex::vgpu
