// SPDX-License-Identifier: Apache-2.0
#include "vgpu/timeline/timeline_replay.h"

#include <cmath>
#include <memory>

#include "vgpu/timeline/replay.h"
#include "vgpu/timeline/what_if.h"

namespace imbrex::vgpu {

Replay::Replay(const ReplayContext& context, const std::vector<Recording>& recordings)
    : context_(context),
      model_(context.model),
      rates_(context.rates),
      recordings_(recordings),
      cache_(model_.l2_capacity),
      path_(context.explain) {
  const double share = std::min(1.0, static_cast<double>(context.sms) / model_.sms);
  l2_rate_ = model_.l2_bytes * share;
  hbm_rate_ = model_.hbm_bytes * share;
  size_t cluster_size = 1;
  for (const Recording& r : recordings) cluster_size = std::max(cluster_size, r.ctas.size());
  sms_.resize(std::max(static_cast<size_t>(context.sms), cluster_size));
  for (size_t i = 0; i < sms_.size(); ++i) {
    sms_[i].columns_free = context.tensor_columns;
    sms_[i].group = static_cast<int>(i * static_cast<size_t>(rates_.gpcs) /
                                     std::max(sms_.size(), static_cast<size_t>(model_.sms)));
    sms_[i].l1 = CacheModel(context.l1_bytes);
  }
  clusters_.resize(recordings.size());
  if (context.log != nullptr) context.log->stores.resize(recordings.size());
}

// ---- clusters

bool Replay::start(int32_t cluster, PathNode after) {
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
  // An SM starts one CTA after the other.
  double begin = now_ + model_.cta_launch;
  for (size_t rank = 0; rank < size; ++rank)
    begin = std::max(
        begin, best[rank].starts.take(now_, rates_.warp_start * recording.warps_per_cta) + model_.cta_launch);
  const PathNode started = path_.then(after, begin, Resource::kStart);
  for (WarpRun& warp : run->warps) warp.node = started;
  for (size_t warp = 0; warp < run->warps.size(); ++warp)
    post(begin, EventKind::kWarp, cluster, static_cast<int32_t>(warp));
  clusters_[static_cast<size_t>(cluster)] = std::move(run);
  ++running_;
  return true;
}

void Replay::launch_clusters(PathNode after) {
  while (next_cluster_ < recordings_.size() && start(static_cast<int32_t>(next_cluster_), after))
    ++next_cluster_;
}

void Replay::finish(int32_t cluster, PathNode last) {
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
  if (context_.log != nullptr) context_.log->ends.push_back(now_);
  last_ = last;
  clusters_[static_cast<size_t>(cluster)].reset();
  --running_;
  launch_clusters(last);
}

// ---- warps

double Replay::execute(ClusterRun& c, int32_t warp, const RecordedStep& step) {
  const auto per_cta = static_cast<size_t>(c.recording->warps_per_cta);
  const size_t rank = static_cast<size_t>(warp) / per_cta, part = static_cast<size_t>(warp) % per_cta % 4;
  SmModel& sm = *c.sms[rank];
  const RunDemand demand = demand_of(step, context_.free);
  double end = now_ + demand.alone;
  Resource by = Resource::kInstructions;
  const int others = sm.running[part]++;
  c.warps[static_cast<size_t>(warp)].is_running = true;
  const auto take = [&](Server& server, double clocks, Resource resource, int with) {
    const double taken = server.take_turns(now_, clocks, with);
    if (taken <= end) return;
    end = taken;
    by = resource;
  };
  take(sm.issue[part], demand.issue, Resource::kInstructions, others);
  if (demand.shared > 0) {
    int all = 0;
    for (int running : sm.running) all += running;
    take(sm.shared, demand.shared, Resource::kSharedMemory, all - 1);
  }
  if (demand.matrix > 0) {
    take(sm.mma_sync[part], demand.matrix, Resource::kTensorCore, others);
    c.products[rank].add(now_, end);
  }
  if (c.lanes != nullptr) c.lanes->run(static_cast<size_t>(warp), now_, end, step.insn);
  if (path_.is_kept()) {
    // Of the warp's own time, what its accesses and products take belongs to them.
    PathNode& node = c.warps[static_cast<size_t>(warp)].node;
    const int index = static_cast<int>(static_cast<size_t>(warp) % per_cta);
    if (by == Resource::kInstructions) {
      node = path_.then(node, now_ + demand.matrix, Resource::kTensorCore, step.insn, index);
      node = path_.then(node, now_ + std::min(demand.alone, demand.matrix + demand.shared),
                        Resource::kSharedMemory, step.insn, index);
    }
    node = path_.then(node, end, by, step.insn, index);
  }
  return end;
}

void Replay::go_on(int32_t cluster, int32_t warp) {
  ClusterRun& c = *clusters_[static_cast<size_t>(cluster)];
  WarpRun& run = c.warps[static_cast<size_t>(warp)];
  if (run.is_running) {
    const auto per_cta = static_cast<size_t>(c.recording->warps_per_cta), index = static_cast<size_t>(warp);
    --c.sms[index / per_cta]->running[index % per_cta % SmModel::kParts];
    run.is_running = false;
  }
  if (run.waits_since >= 0) {
    if (c.lanes != nullptr) c.lanes->wait(static_cast<size_t>(warp), run.waits_since, now_, *run.waits_at);
    waited_ += now_ - run.waits_since;
    if (path_.is_kept()) {
      run.node = awaited(c, *run.waits_at, run.node);
      if (c.lanes != nullptr)
        c.lanes->waited(static_cast<size_t>(warp), run.waits_since, now_, *run.waits_at,
                        path_.shares(run.node, run.waits_since));
    }
    run.waits_since = kNever;
  }
  const std::vector<RecordedStep>& steps = c.recording->warps[static_cast<size_t>(warp)];
  while (run.next < steps.size()) {
    const RecordedStep& step = steps[run.next++];
    switch (step.kind) {
      case RecordedStep::Kind::kRun:
        post(execute(c, warp, step), EventKind::kWarp, cluster, warp);
        return;
      case RecordedStep::Kind::kSubmit: {
        submit(cluster, step.id, run.node);
        const WorkDemand::Kind kind = c.recording->works[static_cast<size_t>(step.id)].demand.kind;
        if (kind == WorkDemand::Kind::kTmaLoad || kind == WorkDemand::Kind::kTmaStore) {
          run.node = path_.then(run.node, now_ + rates_.tma_submit, Resource::kTma, step.insn);
          post(now_ + rates_.tma_submit, EventKind::kWarp, cluster, warp);
          return;
        }
        break;
      }
      case RecordedStep::Kind::kArrive: {
        const int rank = warp / c.recording->warps_per_cta;
        const RecordedObject& object = c.recording->objects[static_cast<size_t>(step.id)];
        const bool is_remote = object.kind == RecordedObject::Kind::kMbarrier && object.rank != rank;
        if (is_remote)
          post(now_ + model_.cluster_latency, EventKind::kArrival, cluster, step.id,
               static_cast<int32_t>(step.phase),
               path_.then(run.node, now_ + model_.cluster_latency, Resource::kSynchronisation, step.insn));
        else
          arrive(cluster, step.id, step.phase, run.node);
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
  if (c.lanes != nullptr) c.lanes->ended(static_cast<size_t>(warp), now_ - c.begin);
  if (--c.live == 0 && c.pending == 0) finish(cluster, run.node);
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

/// What a warp that waited in `step` and goes on now owes that to.
PathNode Replay::awaited(const ClusterRun& c, const RecordedStep& step, PathNode otherwise) {
  switch (step.kind) {
    case RecordedStep::Kind::kWait: {
      const PhaseRun& phase = c.objects[static_cast<size_t>(step.id)][static_cast<size_t>(step.phase)];
      return path_.then(phase.node, now_, Resource::kSynchronisation, step.insn);
    }
    case RecordedStep::Kind::kWaitWork:
      return c.works[static_cast<size_t>(step.id)].node;
    case RecordedStep::Kind::kWaitRead:
      return c.works[static_cast<size_t>(step.id)].read_node;
    default:
      return path_.then(otherwise, now_, Resource::kTensorMemory, step.insn);
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
      return rates_.cluster_barrier_latency;
  }
}

void Replay::arrive(int32_t cluster, int32_t object, int64_t index, PathNode node) {
  ClusterRun& c = *clusters_[static_cast<size_t>(cluster)];
  PhaseRun& phase = c.objects[static_cast<size_t>(object)][static_cast<size_t>(index)];
  if (phase.first == kNever) phase.first = now_;
  if (--phase.missing > 0) return;
  phase.complete = now_;
  phase.node = node;
  if (c.lanes != nullptr) c.lanes->phase(object, index, phase.first, now_);
  const double at = now_ + wake_latency(c.recording->objects[static_cast<size_t>(object)]);
  for (int32_t warp : phase.waiters) post(at, EventKind::kWarp, cluster, warp);
  phase.waiters.clear();
}

// ---- the whole

Timeline Replay::run() {
  launch_clusters(0);
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
      case EventKind::kPart:
        load_part(event.cluster, event.id, event.phase, event.node);
        break;
      case EventKind::kArrival:
        arrive(event.cluster, event.id, event.phase, event.node);
        break;
    }
  }
  Timeline& t = timeline_;
  t.complete = running_ == 0;
  t.chip = model_.chip;
  t.clock_ghz = model_.clock_ghz;
  t.sms = context_.sms;
  t.ctas_per_sm = context_.ctas_per_sm;
  last_ = path_.then(last_, drained_, Resource::kL2Bandwidth);
  end_ = std::max({end_, now_, drained_});
  t.cycles = std::llround(end_);
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
  std::shared_ptr<TimelineExplanation> why;
  if (path_.is_kept()) {
    why = std::make_shared<TimelineExplanation>();
    path_.explain(
        last_, end_, [&](uint32_t insn) { return lanes_ == nullptr ? -1 : lanes_->place(insn); }, *why);
    if (lanes_ != nullptr) lanes_->explain(*why);
  }
  if (lanes_ != nullptr) lanes_->finish(t);
  t.why = std::move(why);
  return std::move(timeline_);
}

Timeline replay(const ReplayContext& context, const std::vector<Recording>& recordings) {
  return Replay(context, recordings).run();
}

}  // namespace imbrex::vgpu
