// SPDX-License-Identifier: Apache-2.0
// The replay of recordings as a discrete-event simulation: its state. What units do is in replay_units.cpp, the
// rest in timeline_replay.cpp.
#pragma once

#include <memory>
#include <queue>
#include <vector>

#include "vgpu/timeline/critical_path.h"
#include "vgpu/timeline/replay_machine.h"
#include "vgpu/timeline/timeline_lanes.h"
#include "vgpu/timeline/timeline_replay.h"

namespace imbrex::vgpu {

class NodeReplay;

inline constexpr double kNever = -1;
inline constexpr int64_t kLineBytes = 128, kSectorBytes = 32;

/// For every item of a list the positions in another list that refer to it.
class References {
 public:
  template <class List, class Target>
  References(size_t items, const List& list, Target&& target) : begin_(items + 1) {
    for (const auto& entry : list)
      if (target(entry) >= 0) ++begin_[static_cast<size_t>(target(entry)) + 1];
    for (size_t i = 0; i < items; ++i) begin_[i + 1] += begin_[i];
    at_.resize(begin_[items]);
    std::vector<size_t> next(begin_.begin(), begin_.end() - 1);
    for (size_t i = 0; i < list.size(); ++i)
      if (target(list[i]) >= 0) at_[next[static_cast<size_t>(target(list[i]))]++] = static_cast<int32_t>(i);
  }
  template <class Body>
  void for_each(int32_t item, Body&& body) const {
    for (size_t i = begin_[static_cast<size_t>(item)]; i < begin_[static_cast<size_t>(item) + 1]; ++i)
      body(at_[i]);
  }

 private:
  std::vector<size_t> begin_;
  std::vector<int32_t> at_;
};

struct WarpRun {
  size_t next = 0;
  PathNode node = 0;        // what it did last
  bool is_running = false;  // executes instructions until its event
  SmModel::Load load = {};  // of its sub-partition, until then
  float shared_load = 0;    // and of shared memory
  double waits_since = kNever;
  const RecordedStep* waits_at = nullptr;
};

/// When the bytes of a load are there, and what it took.
struct Landing {
  double moved = 0;                      // the slowest of the units on the way has moved them
  Resource by = Resource::kL2Bandwidth;  // that unit
  double latency = 0;                    // of L2, on top
  double memory_latency = 0;             // of memory, on top of that
  double tma_latency = 0;                // of TMA, on top of all
  void take(double end, Resource unit) {
    if (end <= moved) return;
    moved = end;
    by = unit;
  }
  double done() const { return moved + latency + memory_latency + tma_latency; }
};

struct WorkRun {
  double done = kNever, read = kNever;
  double begin = 0;  // of a bulk load's first part
  Landing landing;   // of those of a bulk load's parts that were asked for, the last to be there
  PathNode node = 0, read_node = 0;  // how it came to these
  int joins = 0;                     // warps that must still submit it
  int after = 0;                     // works that must still be done
  std::vector<int32_t> waiters, readers, followers;
};

struct PhaseRun {
  int64_t missing = 0;
  double first = kNever, complete = kNever;
  PathNode node = 0;  // the arrival that completed it
  std::vector<int32_t> waiters;
};

/// A cluster under way.
struct ClusterRun {
  explicit ClusterRun(const Recording& r)
      : recording(&r),
        arrivals(r.works.size(), r.arrivals, [](const RecordedArrival& a) { return a.work; }),
        children(r.works.size(), r.works, [](const RecordedWork& w) { return w.parent; }),
        warps(r.warps.size()),
        works(r.works.size()),
        objects(r.objects.size()),
        acknowledged(r.ctas.size()),
        loads(r.ctas.size()),
        products(r.ctas.size()),
        stored(r.ctas.size()) {
    const auto expect = [&](int32_t object, int64_t phase) {
      std::vector<PhaseRun>& phases = objects[static_cast<size_t>(object)];
      if (phases.size() <= static_cast<size_t>(phase)) phases.resize(static_cast<size_t>(phase) + 1);
      ++phases[static_cast<size_t>(phase)].missing;
    };
    for (const std::vector<RecordedStep>& steps : r.warps)
      for (const RecordedStep& step : steps) {
        if (step.kind == RecordedStep::Kind::kArrive) expect(step.id, step.phase);
        if (step.kind == RecordedStep::Kind::kSubmit) ++works[static_cast<size_t>(step.id)].joins;
      }
    for (const RecordedArrival& arrival : r.arrivals) expect(arrival.object, arrival.phase);
    live = static_cast<int64_t>(warps.size());
    pending = static_cast<int64_t>(works.size());
  }

  const Recording* recording;
  References arrivals, children;
  std::vector<WarpRun> warps;
  std::vector<WorkRun> works;
  std::vector<std::vector<PhaseRun>> objects;
  std::vector<SmModel*> sms;        // by rank
  std::vector<size_t> first_parts;  // sub-partitions of their first warps
  /// The sub-partition of a warp.
  size_t part_of(int32_t warp) const {
    const auto per_cta = static_cast<size_t>(recording->warps_per_cta), index = static_cast<size_t>(warp);
    return (first_parts[index / per_cta] + index % per_cta) % SmModel::kParts;
  }
  struct QueueEnd {
    double done = 0;
    PathNode node = 0;
  };
  std::vector<QueueEnd> queues;
  std::vector<double> acknowledged;        // by rank: when other GPUs have what it stored there, as it knows
  std::vector<Intervals> loads, products;  // by rank
  std::vector<double> stored;              // by rank: when what threads stored can be seen by all
  int64_t live = 0, pending = 0;           // warps, works
  double begin = 0;
  TimelineLanes* lanes = nullptr;
};

class Replay {
 public:
  Replay(const ReplayContext& context, const std::vector<Recording>& recordings);
  Timeline run();

  // The same step by step, for one of several GPUs.
  void join(NodeReplay& node, int rank) {
    node_ = &node;
    rank_ = rank;
  }
  void launch() { launch_clusters(0); }
  bool has_next() const { return !events_.empty(); }
  double next_time() const { return events_.top().time; }
  void step();
  Timeline finish();
  void wake(double now, int32_t cluster, int32_t warp) { post(now, EventKind::kWarp, cluster, warp); }
  Landing read_by_peer(double now, uint64_t block, double bytes, double together);
  double stored_by_peer(double now, double bytes, double cost);

 private:
  enum class EventKind : uint8_t { kWarp, kWorkDone, kWorkRead, kArrival, kPart, kMoved, kSignal };
  struct Event {
    double time;
    uint64_t order;
    EventKind kind;
    int32_t cluster, id;
    int32_t phase = 0;
    PathNode node = 0;
    bool operator<(const Event& other) const {
      return time != other.time ? time > other.time : order > other.order;
    }
  };
  struct Blocked {
    int32_t cluster, warp;
    SmModel* sm;
    int64_t columns;
  };

  void post(double time, EventKind kind, int32_t cluster, int32_t id, int32_t phase = 0, PathNode node = 0) {
    events_.push({time, ++order_, kind, cluster, id, phase, node});
  }
  void launch_clusters(PathNode after);
  bool start(int32_t cluster, PathNode after);
  void finish(int32_t cluster, PathNode last);

  void go_on(int32_t cluster, int32_t warp);
  double execute(ClusterRun& c, int32_t warp, const RecordedStep& step);
  bool wait(int32_t cluster, int32_t warp, const RecordedStep& step);
  void set_flag(int32_t cluster, int32_t work, double seen, PathNode node);
  bool give_up_flags();
  void block(ClusterRun& c, int32_t warp, const RecordedStep& step);
  PathNode awaited(const ClusterRun& c, const RecordedStep& step, PathNode otherwise);
  void arrive(int32_t cluster, int32_t object, int64_t phase, PathNode node);
  bool allocate(int32_t cluster, SmModel& sm, int64_t columns);
  void retry_allocations(SmModel& sm);

  void submit(int32_t cluster, int32_t work, PathNode node);
  void begin_work(int32_t cluster, int32_t work, PathNode node);
  void begin_bulk_load(int32_t cluster, int32_t work, PathNode node);
  void load_part(int32_t cluster, int32_t work, int32_t part, PathNode node);
  void finish_bulk_load(int32_t cluster, int32_t work, PathNode node);
  Landing load_by_threads(SmModel& sm, const RecordedWork& work, const Recording& recording);
  Landing update(SmModel& sm, const RecordedWork& work, const Recording& recording);
  Landing fetch(SmModel& sm, double bytes, double missed, double merged, double spread);
  Landing load_block(SmModel& sm, uint64_t block, double bytes, double spread, bool alone = false);
  double spread_of(double bytes) const;
  double spread_of_line(const Recording& recording, const RecordedWork& work, int32_t line) const;
  PathNode landed(const Landing& landing, const RecordedWork& work, PathNode node);
  double store(SmModel& sm, double bytes, double cost, double way = 1);
  double write_to_l2(double now, double bytes, double cost);
  Landing load_from_peer(SmModel& sm, int peer, uint64_t block, double bytes, double together);
  double store_to_peer(ClusterRun& c, const RecordedWork& work, double bytes, double cost);
  Landing update_at_peer(SmModel& sm, const RecordedWork& work);
  void tell(const ClusterRun& c, const RecordedWork& work);
  void finish_work(int32_t cluster, int32_t work);
  void finish_read(int32_t cluster, int32_t work);
  double wake_latency(const RecordedObject& object) const;

  const ReplayContext& context_;
  const CostModel& model_;
  const ChipRates& rates_;
  const std::vector<Recording>& recordings_;
  NodeReplay* node_ = nullptr;  // null: the GPU is alone
  int rank_ = -1;
  std::vector<SmModel> sms_;
  std::vector<int> places_;  // the first SM of each place for a cluster
  Server l2_, updates_, hbm_, starts_;
  double l2_rate_, hbm_rate_;
  CacheModel cache_;
  PendingRequests pending_;
  std::unordered_map<uint64_t, Server> updated_lines_;  // of global memory, by atomics
  /// Flags: when the stores that have been made are seen, and who waits for others; by cluster and work.
  struct Flag {
    double seen = kNever;
    PathNode node = 0;
    std::vector<std::pair<int32_t, int32_t>> waiters;  // cluster, warp
  };
  std::unordered_map<uint64_t, Flag> flags_;
  static uint64_t flag_key(int32_t cluster, int32_t work) {
    return static_cast<uint64_t>(cluster) << 32 | static_cast<uint32_t>(work);
  }
  std::priority_queue<Event> events_;
  uint64_t order_ = 0;
  double now_ = 0, end_ = 0;
  size_t next_cluster_ = 0;
  std::vector<std::unique_ptr<ClusterRun>> clusters_;
  std::vector<Blocked> blocked_;
  CriticalPath path_;
  bool
      has_order_;  // of a warp's instructions: the machine code's. Those of PTX are taken to be in whatever order suits
  PathNode last_ = 0;  // on the path of the launch's end
  std::unique_ptr<TimelineLanes> lanes_;
  int64_t running_ = 0;
  double dirty_ = 0, drained_ = 0;  // bytes written that are still in L2; when the last store is performed
  uint32_t drained_by_ = CriticalPath::kNoInsn;  // that store
  double waited_ = 0, lived_ = 0, hidden_ = 0, shorter_ = 0;
  Timeline timeline_;
};

}  // namespace imbrex::vgpu
