// SPDX-License-Identifier: Apache-2.0
#include "vgpu/timeline/timeline_replay.h"

#include <cmath>
#include <memory>
#include <optional>
#include <queue>

#include "vgpu/timeline/replay_machine.h"
#include "vgpu/timeline/timeline_lanes.h"

namespace imbrex::vgpu {

namespace {

constexpr double kNever = -1;
constexpr int64_t kLineBytes = 128, kSectorBytes = 32;

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
  double waits_since = kNever;
  const RecordedStep* waits_at = nullptr;
};

struct WorkRun {
  double done = kNever, read = kNever;
  int joins = 0;  // warps that must still submit it
  int after = 0;  // works that must still be done
  std::vector<int32_t> waiters, readers, followers;
};

struct PhaseRun {
  int64_t missing = 0;
  double first = kNever, complete = kNever;
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
        loads(r.ctas.size()),
        products(r.ctas.size()) {
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
  std::vector<SmModel*> sms;  // by rank
  std::vector<double> queue_done;
  std::vector<Intervals> loads, products;  // by rank
  int64_t live = 0, pending = 0;           // warps, works
  double begin = 0;
  TimelineLanes* lanes = nullptr;
};

class Replay {
 public:
  Replay(const ReplayContext& context, const std::vector<Recording>& recordings);
  Timeline run();

 private:
  enum class EventKind : uint8_t { kWarp, kWorkDone, kWorkRead, kArrival };
  struct Event {
    double time;
    uint64_t order;
    EventKind kind;
    int32_t cluster, id;
    int32_t phase = 0;
    bool operator<(const Event& other) const {
      return time != other.time ? time > other.time : order > other.order;
    }
  };
  struct Blocked {
    int32_t cluster, warp;
    SmModel* sm;
    int64_t columns;
  };

  void post(double time, EventKind kind, int32_t cluster, int32_t id, int32_t phase = 0) {
    events_.push({time, ++order_, kind, cluster, id, phase});
  }
  void launch_clusters();
  bool start(int32_t cluster);
  void finish(int32_t cluster);

  void go_on(int32_t cluster, int32_t warp);
  double execute(ClusterRun& c, int32_t warp, const RecordedStep& step);
  bool wait(int32_t cluster, int32_t warp, const RecordedStep& step);
  void block(ClusterRun& c, int32_t warp, const RecordedStep& step);
  void arrive(int32_t cluster, int32_t object, int64_t phase);
  bool allocate(int32_t cluster, SmModel& sm, int64_t columns);
  void retry_allocations(SmModel& sm);

  void submit(int32_t cluster, int32_t work);
  void begin_work(int32_t cluster, int32_t work);
  double load(SmModel& sm, const RecordedWork& work, const Recording& recording, bool by_tma);
  double fetch(SmModel& sm, double now, double bytes, double missed);
  void store(SmModel& sm, double bytes);
  void finish_work(int32_t cluster, int32_t work);
  void finish_read(int32_t cluster, int32_t work);
  double wake_latency(const RecordedObject& object) const;

  const ReplayContext& context_;
  const CostModel& model_;
  const std::vector<Recording>& recordings_;
  std::vector<SmModel> sms_;
  Server l2_, hbm_;
  double l2_rate_, hbm_rate_;
  CacheModel cache_;
  std::priority_queue<Event> events_;
  uint64_t order_ = 0;
  double now_ = 0, end_ = 0;
  size_t next_cluster_ = 0;
  std::vector<std::unique_ptr<ClusterRun>> clusters_;
  std::vector<Blocked> blocked_;
  std::unique_ptr<TimelineLanes> lanes_;
  int64_t running_ = 0;
  double waited_ = 0, lived_ = 0, hidden_ = 0, shorter_ = 0;
  Timeline timeline_;
};

Replay::Replay(const ReplayContext& context, const std::vector<Recording>& recordings)
    : context_(context), model_(context.model), recordings_(recordings), cache_(model_.l2_capacity) {
  const double share = std::min(1.0, static_cast<double>(context.sms) / model_.sms);
  l2_rate_ = model_.l2_bytes * share;
  hbm_rate_ = model_.hbm_bytes * share;
  size_t cluster_size = 1;
  for (const Recording& r : recordings) cluster_size = std::max(cluster_size, r.ctas.size());
  sms_.resize(std::max(static_cast<size_t>(context.sms), cluster_size));
  for (SmModel& sm : sms_) sm.columns_free = context.tensor_columns;
  clusters_.resize(recordings.size());
}

// ---- clusters

bool Replay::start(int32_t cluster) {
  // A cluster takes neighbouring SMs; of the groups with room the emptiest.
  const Recording& recording = recordings_[static_cast<size_t>(cluster)];
  const size_t size = recording.ctas.size();
  SmModel* best = nullptr;
  for (size_t first = 0; first + size <= sms_.size(); first += size)
    if (sms_[first].resident < context_.ctas_per_sm &&
        (best == nullptr || sms_[first].resident < best->resident))
      best = &sms_[first];
  if (best == nullptr) return false;
  auto run = std::make_unique<ClusterRun>(recording);
  run->begin = now_;
  for (size_t rank = 0; rank < size; ++rank) {
    run->sms.push_back(best + rank);
    ++best[rank].resident;
    best[rank].was_used = true;
  }
  if (std::find(recording.ctas.begin(), recording.ctas.end(), context_.drawn_cta) != recording.ctas.end()) {
    lanes_ = std::make_unique<TimelineLanes>(context_.program, recording);
    run->lanes = lanes_.get();
  }
  for (size_t warp = 0; warp < run->warps.size(); ++warp)
    post(now_ + model_.cta_launch, EventKind::kWarp, cluster, static_cast<int32_t>(warp));
  clusters_[static_cast<size_t>(cluster)] = std::move(run);
  ++running_;
  return true;
}

void Replay::launch_clusters() {
  while (next_cluster_ < recordings_.size() && start(static_cast<int32_t>(next_cluster_))) ++next_cluster_;
}

void Replay::finish(int32_t cluster) {
  ClusterRun& c = *clusters_[static_cast<size_t>(cluster)];
  for (size_t rank = 0; rank < c.sms.size(); ++rank) {
    --c.sms[rank]->resident;
    if (c.sms[rank]->permit_of == cluster) {
      c.sms[rank]->permit_of = -1;
      retry_allocations(*c.sms[rank]);
    }
    const double shorter = std::min(c.loads[rank].length(), c.products[rank].length());
    shorter_ += shorter;
    hidden_ += c.loads[rank].common(c.products[rank]);
  }
  end_ = std::max(end_, now_);
  clusters_[static_cast<size_t>(cluster)].reset();
  --running_;
  launch_clusters();
}

// ---- warps

double Replay::execute(ClusterRun& c, int32_t warp, const RecordedStep& step) {
  const auto per_cta = static_cast<size_t>(c.recording->warps_per_cta);
  const size_t rank = static_cast<size_t>(warp) / per_cta, part = static_cast<size_t>(warp) % per_cta % 4;
  SmModel& sm = *c.sms[rank];
  double end = std::max(now_ + step.alone, sm.issue[part].take(now_, step.issue));
  if (step.shared > 0) end = std::max(end, sm.shared.take(now_, step.shared));
  if (step.matrix > 0) {
    end = std::max(end, sm.mma_sync[part].take(now_, step.matrix));
    c.products[rank].add(now_, end);
  }
  if (c.lanes != nullptr) c.lanes->run(static_cast<size_t>(warp), now_, end, step.insn);
  return end;
}

void Replay::go_on(int32_t cluster, int32_t warp) {
  ClusterRun& c = *clusters_[static_cast<size_t>(cluster)];
  WarpRun& run = c.warps[static_cast<size_t>(warp)];
  if (run.waits_since >= 0) {
    if (c.lanes != nullptr) c.lanes->wait(static_cast<size_t>(warp), run.waits_since, now_, *run.waits_at);
    waited_ += now_ - run.waits_since;
    run.waits_since = kNever;
  }
  const std::vector<RecordedStep>& steps = c.recording->warps[static_cast<size_t>(warp)];
  while (run.next < steps.size()) {
    const RecordedStep& step = steps[run.next++];
    switch (step.kind) {
      case RecordedStep::Kind::kRun:
        post(execute(c, warp, step), EventKind::kWarp, cluster, warp);
        return;
      case RecordedStep::Kind::kSubmit:
        submit(cluster, step.id);
        break;
      case RecordedStep::Kind::kArrive: {
        const int rank = warp / c.recording->warps_per_cta;
        const RecordedObject& object = c.recording->objects[static_cast<size_t>(step.id)];
        const bool is_remote = object.kind == RecordedObject::Kind::kMbarrier && object.rank != rank;
        if (is_remote)
          post(now_ + model_.cluster_latency, EventKind::kArrival, cluster, step.id,
               static_cast<int32_t>(step.phase));
        else
          arrive(cluster, step.id, step.phase);
        break;
      }
      case RecordedStep::Kind::kFree:
      case RecordedStep::Kind::kRelinquish: {
        SmModel& sm = *c.sms[static_cast<size_t>(step.phase)];
        sm.columns_free += step.id;
        if (step.kind == RecordedStep::Kind::kRelinquish) sm.permit_of = -1;
        retry_allocations(sm);
        break;
      }
      default:
        if (!wait(cluster, warp, step)) return;
    }
  }
  lived_ += now_ - c.begin;
  if (--c.live == 0 && c.pending == 0) finish(cluster);
}

/// True when the warp need not wait. Otherwise blocks it; an event at the awaited time wakes it.
bool Replay::wait(int32_t cluster, int32_t warp, const RecordedStep& step) {
  ClusterRun& c = *clusters_[static_cast<size_t>(cluster)];
  const auto until = [&](double ready, std::vector<int32_t>& waiters) {
    if (ready != kNever && ready <= now_) return true;
    block(c, warp, step);
    if (ready == kNever)
      waiters.push_back(warp);
    else
      post(ready, EventKind::kWarp, cluster, warp);
    return false;
  };
  switch (step.kind) {
    case RecordedStep::Kind::kWait: {
      std::vector<PhaseRun>& phases = c.objects[static_cast<size_t>(step.id)];
      if (static_cast<size_t>(step.phase) >= phases.size()) return true;
      PhaseRun& phase = phases[static_cast<size_t>(step.phase)];
      const RecordedObject& object = c.recording->objects[static_cast<size_t>(step.id)];
      return until(phase.complete == kNever ? kNever : phase.complete + wake_latency(object), phase.waiters);
    }
    case RecordedStep::Kind::kWaitWork: {
      WorkRun& work = c.works[static_cast<size_t>(step.id)];
      return until(work.done, work.waiters);
    }
    case RecordedStep::Kind::kWaitRead: {
      WorkRun& work = c.works[static_cast<size_t>(step.id)];
      return until(work.read == kNever ? work.done : work.read, work.readers);
    }
    default: {  // kAllocate
      SmModel& sm = *c.sms[static_cast<size_t>(step.phase)];
      if (allocate(cluster, sm, step.id)) return true;
      block(c, warp, step);
      blocked_.push_back({cluster, warp, &sm, step.id});
      return false;
    }
  }
}

void Replay::block(ClusterRun& c, int32_t warp, const RecordedStep& step) {
  c.warps[static_cast<size_t>(warp)].waits_since = now_;
  c.warps[static_cast<size_t>(warp)].waits_at = &step;
}

/// Tensor memory is given to one CTA of an SM at a time until it relinquishes the permit.
bool Replay::allocate(int32_t cluster, SmModel& sm, int64_t columns) {
  if ((sm.permit_of >= 0 && sm.permit_of != cluster) || sm.columns_free < columns) return false;
  sm.permit_of = cluster;
  sm.columns_free -= columns;
  return true;
}

void Replay::retry_allocations(SmModel& sm) {
  for (size_t i = 0; i < blocked_.size();) {
    const Blocked b = blocked_[i];
    if (b.sm != &sm || !allocate(b.cluster, sm, b.columns)) {
      ++i;
      continue;
    }
    post(now_, EventKind::kWarp, b.cluster, b.warp);
    blocked_.erase(blocked_.begin() + static_cast<ptrdiff_t>(i));
  }
}

double Replay::wake_latency(const RecordedObject& object) const {
  switch (object.kind) {
    case RecordedObject::Kind::kMbarrier:
      return model_.mbarrier_wake;
    case RecordedObject::Kind::kNamed:
      return model_.barrier_latency;
    default:
      return model_.cluster_latency;
  }
}

void Replay::arrive(int32_t cluster, int32_t object, int64_t index) {
  ClusterRun& c = *clusters_[static_cast<size_t>(cluster)];
  PhaseRun& phase = c.objects[static_cast<size_t>(object)][static_cast<size_t>(index)];
  if (phase.first == kNever) phase.first = now_;
  if (--phase.missing > 0) return;
  phase.complete = now_;
  if (c.lanes != nullptr) c.lanes->phase(object, index, phase.first, now_);
  const double at = now_ + wake_latency(c.recording->objects[static_cast<size_t>(object)]);
  for (int32_t warp : phase.waiters) post(at, EventKind::kWarp, cluster, warp);
  phase.waiters.clear();
}

// ---- units

void Replay::submit(int32_t cluster, int32_t id) {
  ClusterRun& c = *clusters_[static_cast<size_t>(cluster)];
  WorkRun& run = c.works[static_cast<size_t>(id)];
  if (--run.joins > 0) return;
  const RecordedWork& work = c.recording->works[static_cast<size_t>(id)];
  for (int32_t i = 0; i < work.after_count; ++i) {
    WorkRun& before = c.works[static_cast<size_t>(c.recording->lists[static_cast<size_t>(work.after + i)])];
    if (before.done != kNever && before.done <= now_) continue;
    before.followers.push_back(id);
    ++run.after;
  }
  if (run.after == 0) begin_work(cluster, id);
}

double Replay::fetch(SmModel& sm, double now, double bytes, double missed) {
  timeline_.l2_bytes += static_cast<int64_t>(bytes);
  timeline_.hbm_bytes += static_cast<int64_t>(missed);
  double end = sm.l2_port.take(now, bytes / model_.l2_port_bytes);
  end = std::max(end, l2_.take(now, bytes / l2_rate_));
  if (missed > 0) end = std::max(end, hbm_.take(now, missed / hbm_rate_));
  return end + (missed > 0 ? model_.hbm_latency : model_.l2_latency);
}

double Replay::load(SmModel& sm, const RecordedWork& work, const Recording& recording, bool by_tma) {
  const auto bytes = static_cast<double>(work.demand.bytes);
  if (by_tma) {
    const double issued = sm.tma.take(now_, std::max(model_.tma_issue, bytes / model_.tma_bytes));
    if (work.demand.repeated)
      return std::max(issued, sm.l2_port.take(now_, bytes / model_.l2_port_bytes)) + model_.l2_latency +
             model_.tma_latency;
    const bool hit = cache_.use(work.demand.block, work.demand.bytes);
    return std::max(issued, fetch(sm, now_, bytes, hit ? 0 : bytes)) + model_.tma_latency;
  }
  double missed = 0;
  for (int32_t i = 0; i < work.line_count; ++i)
    if (!cache_.use(recording.lines[static_cast<size_t>(work.lines + i)], kLineBytes)) missed += kLineBytes;
  const double moved = std::max(bytes, static_cast<double>(work.line_count * kSectorBytes));
  const double issued = sm.shared.take(now_, work.line_count);
  return std::max(issued, fetch(sm, now_, moved, missed));
}

void Replay::store(SmModel& sm, double bytes) {
  timeline_.l2_bytes += static_cast<int64_t>(bytes);
  timeline_.hbm_bytes += static_cast<int64_t>(bytes);
  sm.l2_port.take(now_, bytes / model_.l2_port_bytes);
  l2_.take(now_, bytes / l2_rate_);
  hbm_.take(now_, bytes / hbm_rate_);
}

void Replay::begin_work(int32_t cluster, int32_t id) {
  using Kind = WorkDemand::Kind;
  ClusterRun& c = *clusters_[static_cast<size_t>(cluster)];
  WorkRun& run = c.works[static_cast<size_t>(id)];
  const RecordedWork& work = c.recording->works[static_cast<size_t>(id)];
  const auto rank = static_cast<size_t>(work.rank);
  SmModel& sm = *c.sms[rank];
  const auto bytes = static_cast<double>(work.demand.bytes);
  double begin = now_, drawn_end = kNever;
  double* queue = nullptr;
  if (work.queue >= 0) {
    if (c.queue_done.size() <= static_cast<size_t>(work.queue))
      c.queue_done.resize(static_cast<size_t>(work.queue) + 1, 0.0);
    queue = &c.queue_done[static_cast<size_t>(work.queue)];
  }
  switch (work.demand.kind) {
    case Kind::kNone:
      run.done = now_;
      break;
    case Kind::kCommit:
      run.done = queue != nullptr ? std::max(now_, *queue) : now_;
      break;
    case Kind::kThreadLoad:
    case Kind::kTmaLoad:
      run.done = load(sm, work, *c.recording, work.demand.kind == Kind::kTmaLoad);
      c.loads[rank].add(now_, run.done);
      break;
    case Kind::kThreadStore:
      store(sm, std::max(bytes, static_cast<double>(work.line_count * kSectorBytes)));
      run.done = now_;
      break;
    case Kind::kTmaStore: {
      const double taken = sm.tma.take(now_, std::max(model_.tma_issue, bytes / model_.tma_bytes));
      store(sm, bytes);
      run.read = taken + model_.store_read;
      run.done = std::max(taken, sm.l2_port.free()) + model_.store_latency;
      post(run.read, EventKind::kWorkRead, cluster, id);
      break;
    }
    case Kind::kMatrix: {
      SmModel* peer = work.demand.pair && rank % 2 == 0 ? c.sms[rank + 1]
                      : work.demand.pair                ? c.sms[rank - 1]
                                                        : nullptr;
      const double from = peer != nullptr ? std::max(now_, peer->tensor.free()) : now_;
      drawn_end = sm.tensor.take(from, work.demand.clocks);
      begin = drawn_end - work.demand.clocks;
      c.products[rank].add(begin, drawn_end);
      if (peer != nullptr) {
        peer->tensor.take(begin, work.demand.clocks);
        c.products[rank ^ 1].add(begin, drawn_end);
      }
      run.done = drawn_end + model_.tensor_latency;
      break;
    }
    case Kind::kTensorLoad:
    case Kind::kTensorStore:
      run.done = sm.tensor_memory[static_cast<size_t>(work.warp) % 4].take(
                     now_, bytes / model_.tensor_memory_bytes) +
                 model_.tensor_memory_latency;
      break;
    case Kind::kTensorCopy:
      run.done = std::max(now_, queue != nullptr ? *queue : 0.0) + bytes / model_.shared_bytes +
                 model_.tensor_memory_latency;
      break;
    case Kind::kCancel:
      run.done = now_ + model_.cancel_latency;
      break;
    case Kind::kRemote:
      run.done = now_ + model_.cluster_latency + bytes / model_.l2_port_bytes;
      break;
  }
  if (queue != nullptr) *queue = std::max(*queue, run.done);
  if (c.lanes != nullptr) c.lanes->work(id, begin, drawn_end == kNever ? run.done : drawn_end);
  const double done = run.done;
  run.done = kNever;  // until the event
  post(done, EventKind::kWorkDone, cluster, id);
}

void Replay::finish_read(int32_t cluster, int32_t id) {
  WorkRun& run = clusters_[static_cast<size_t>(cluster)]->works[static_cast<size_t>(id)];
  run.read = now_;
  for (int32_t warp : run.readers) post(now_, EventKind::kWarp, cluster, warp);
  run.readers.clear();
}

void Replay::finish_work(int32_t cluster, int32_t id) {
  ClusterRun& c = *clusters_[static_cast<size_t>(cluster)];
  WorkRun& run = c.works[static_cast<size_t>(id)];
  run.done = now_;
  c.arrivals.for_each(id, [&](int32_t i) {
    const RecordedArrival& arrival = c.recording->arrivals[static_cast<size_t>(i)];
    arrive(cluster, arrival.object, arrival.phase);
  });
  for (int32_t warp : run.waiters) post(now_, EventKind::kWarp, cluster, warp);
  for (int32_t warp : run.readers) post(now_, EventKind::kWarp, cluster, warp);
  run.waiters.clear();
  run.readers.clear();
  for (int32_t follower : run.followers)
    if (--c.works[static_cast<size_t>(follower)].after == 0) begin_work(cluster, follower);
  c.children.for_each(id, [&](int32_t child) { begin_work(cluster, child); });
  if (--c.pending == 0 && c.live == 0) finish(cluster);
}

// ---- the whole

Timeline Replay::run() {
  launch_clusters();
  while (!events_.empty()) {
    const Event event = events_.top();
    events_.pop();
    now_ = event.time;
    if (clusters_[static_cast<size_t>(event.cluster)] == nullptr) continue;  // has ended meanwhile
    switch (event.kind) {
      case EventKind::kWarp:
        go_on(event.cluster, event.id);
        break;
      case EventKind::kWorkDone:
        finish_work(event.cluster, event.id);
        break;
      case EventKind::kWorkRead:
        finish_read(event.cluster, event.id);
        break;
      case EventKind::kArrival:
        arrive(event.cluster, event.id, event.phase);
        break;
    }
  }
  Timeline& t = timeline_;
  t.complete = running_ == 0;
  t.chip = model_.chip;
  t.clock_ghz = model_.clock_ghz;
  t.sms = context_.sms;
  t.ctas_per_sm = context_.ctas_per_sm;
  t.cycles = std::llround(std::max(end_, now_));
  double tensor = 0, tma = 0, issue = 0;
  for (const SmModel& sm : sms_) {
    t.active_sms += sm.was_used ? 1 : 0;
    tensor += sm.tensor.busy();
    tma += sm.tma.busy();
    for (size_t part = 0; part < SmModel::kParts; ++part) {
      tensor += sm.mma_sync[part].busy() / SmModel::kParts;
      issue += sm.issue[part].busy() / SmModel::kParts;
    }
  }
  for (const Recording& recording : recordings_) t.ctas += static_cast<int64_t>(recording.ctas.size());
  const double time = std::max<double>(1, static_cast<double>(t.cycles));
  const double everywhere = time * static_cast<double>(sms_.size());
  t.use.tensor_core = tensor / everywhere;
  t.use.tma = tma / everywhere;
  t.use.issue = issue / everywhere;
  t.use.l2 = l2_.busy() / time;
  t.use.hbm = hbm_.busy() / time;
  t.use.waiting = lived_ > 0 ? waited_ / lived_ : 0;
  if (shorter_ > 0) t.overlap = hidden_ / shorter_;
  if (lanes_ != nullptr) lanes_->finish(t);
  return std::move(timeline_);
}

}  // namespace

Timeline replay(const ReplayContext& context, const std::vector<Recording>& recordings) {
  return Replay(context, recordings).run();
}

}  // namespace imbrex::vgpu
