// SPDX-License-Identifier: Apache-2.0
#include "vgpu/timeline/timeline_replay.h"

#include <cmath>
#include <memory>

#include "vgpu/timeline/machine_costs.h"
#include "vgpu/timeline/node_replay.h"
#include "vgpu/timeline/replay.h"
#include "vgpu/timeline/sm_groups.h"
#include "vgpu/timeline/what_if.h"

namespace imbrex::vgpu {

Replay::Replay(const ReplayContext& context, const std::vector<Recording>& recordings)
    : context_(context),
      model_(context.model),
      rates_(context.rates),
      recordings_(recordings),
      cache_(model_.l2_capacity),
      path_(context.explain),
      has_order_(assembled_costs_of(context.program) != nullptr) {
  const double share = std::min(1.0, static_cast<double>(context.sms) / model_.sms);
  l2_rate_ = model_.l2_bytes * share;
  hbm_rate_ = model_.hbm_bytes * share;
  size_t cluster_size = 1;
  for (const Recording& r : recordings) cluster_size = std::max(cluster_size, r.ctas.size());
  sms_.resize(std::max(static_cast<size_t>(context.sms), cluster_size));
  places_ = cluster_places(context.groups, static_cast<int64_t>(cluster_size));
  for (size_t i = 0; i < sms_.size(); ++i) {
    sms_[i].columns_free = context.tensor_columns;
    sms_[i].group = static_cast<int>(i * static_cast<size_t>(rates_.gpcs) /
                                     std::max(sms_.size(), static_cast<size_t>(model_.sms)));
    sms_[i].l1 = CacheModel(context.l1_bytes);
  }
  clusters_.resize(recordings.size());
  for (const Recording& r : recordings)
    for (const std::vector<RecordedStep>& steps : r.warps)
      for (const RecordedStep& step : steps)
        if (step.kind == RecordedStep::Kind::kFlag) flags_.try_emplace(flag_key(step.phase, step.id));
  if (context.log != nullptr) context.log->stores.resize(recordings.size());
}

// ---- clusters

bool Replay::start(int32_t cluster, PathNode after) {
  // A cluster takes neighbouring SMs of a group; of the places with room the emptiest.
  const Recording& recording = recordings_[static_cast<size_t>(cluster)];
  const size_t size = recording.ctas.size();
  SmModel* best = nullptr;
  for (const int first : places_) {
    SmModel& sm = sms_[static_cast<size_t>(first)];
    if (sm.resident < context_.ctas_per_sm && (best == nullptr || sm.resident < best->resident)) best = &sm;
  }
  if (best == nullptr) return false;
  auto run = std::make_unique<ClusterRun>(recording);
  run->begin = now_;
  for (size_t rank = 0; rank < size; ++rank) {
    run->sms.push_back(best + rank);
    run->first_parts.push_back(best[rank].take_warps(recording.warps_per_cta));
    ++best[rank].resident;
    best[rank].was_used = true;
  }
  if (std::find(recording.ctas.begin(), recording.ctas.end(), context_.drawn_cta) != recording.ctas.end()) {
    lanes_ = std::make_unique<TimelineLanes>(context_.program, recording);
    run->lanes = lanes_.get();
  }
  // An SM starts one CTA after the other, and so does the chip.
  double begin = starts_.take(now_, rates_.grid_start * static_cast<double>(size)) + model_.cta_launch;
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
    c.sms[rank]->give_back_warps(c.first_parts[rank], c.recording->warps_per_cta);
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

constexpr size_t kAhead = 3;  // steps that a warp reads ahead

/// How much longer a warp waits for units, and for shared memory, than when it is alone, by the part of the time that others keep them: as
/// long as whoever asks a server at random times (M/D/1).
double in_company(const SmModel& sm, size_t part, const RunDemand& demand) {
  const auto waits = [](double clocks, double load) {
    return clocks * load / (2 * (1 - std::min<double>(load, 0.9)));
  };
  const SmModel::Load& load = sm.load[part];
  double all = waits(demand.issue, load[0]) + waits(demand.shared, sm.shared_load);
  for (size_t pipe = 0; pipe < kPipes; ++pipe) all += waits(demand.pipes[pipe], load[1 + pipe]);
  return all;
}
/// M: pieces of code that do several things took so many times what they take alone, or what the unit that they need most takes for all
/// warps (docs/measurements/2026-11-25-fetch.md).
constexpr double kMostInCompany = 1.2;

double Replay::execute(ClusterRun& c, int32_t warp, const RecordedStep& step) {
  const auto per_cta = static_cast<size_t>(c.recording->warps_per_cta);
  const size_t rank = static_cast<size_t>(warp) / per_cta, part = c.part_of(warp);
  SmModel& sm = *c.sms[rank];
  const RunDemand demand = demand_of(step, context_.free);
  double end = now_ + demand.alone;
  Resource by = Resource::kInstructions;
  const double company = has_order_ ? in_company(sm, part, demand) : 0;
  const int others = sm.running[part]++;
  c.warps[static_cast<size_t>(warp)].is_running = true;
  const auto take = [&](Server& server, double clocks, Resource resource, int with, double behind = 0) {
    const double taken = server.take_turns(now_, clocks, with, behind);
    if (taken <= end) return;
    end = taken;
    by = resource;
  };
  if (step.phase >= 0 && rates_.code_line > 0) {
    const uint16_t* const told = &c.recording->code[static_cast<size_t>(step.phase)];
    end =
        std::max(end, sm.code.fetch(now_, told + 1, *told, rates_.code_bytes / kLineBytes, rates_.code_line));
  }
  sm.slots += step.slots;
  take(sm.issue[part], demand.issue, Resource::kInstructions, others);
  for (size_t pipe = 0; pipe < kPipes; ++pipe)
    if (demand.pipes[pipe] > 0)
      take(sm.pipes[part][pipe], demand.pipes[pipe], Resource::kInstructions, others);
  if (demand.shared > 0) {
    take(sm.shared, demand.shared, Resource::kSharedMemory, sm.all_running() - 1,
         std::max(0.0, sm.copies.free() - now_));
  }
  end = std::max(end, now_ + std::min(demand.alone + company, kMostInCompany * (end - now_)));
  if (demand.matrix > 0) {
    // The assembler puts copies behind the loads of the first products' operands; those of the next products wait for them,
    // and so does the tensor core when it has done the first ones.
    const double first = demand.matrix * (others + 1) / std::max(1, step.id);
    if (step.id > 1) end += std::max(0.0, sm.copies.free() - now_ - first);
    take(sm.mma_sync[part], demand.matrix, Resource::kTensorCore, others);
    c.products[rank].add(now_, end);
  }
  if (end > now_) {
    WarpRun& run = c.warps[static_cast<size_t>(warp)];
    const auto part_of_time = [&](double clocks) { return static_cast<float>(clocks / (end - now_)); };
    run.load[0] = part_of_time(demand.issue);
    for (size_t pipe = 0; pipe < kPipes; ++pipe) run.load[1 + pipe] = part_of_time(demand.pipes[pipe]);
    for (size_t i = 0; i < run.load.size(); ++i) sm.load[part][i] += run.load[i];
    sm.shared_load += run.shared_load = part_of_time(demand.shared);
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
    SmModel& sm = *c.sms[static_cast<size_t>(warp / c.recording->warps_per_cta)];
    const size_t part = c.part_of(warp);
    for (size_t i = 0; i < run.load.size(); ++i) sm.load[part][i] -= run.load[i];
    sm.shared_load -= run.shared_load;
    if (--sm.running[part] == 0) sm.load[part] = {};  // no rounding is kept
    if (sm.all_running() == 0) sm.shared_load = 0;
    run.load = {};
    run.shared_load = 0;
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
    // Other warps come between, and the caches do not hold what all of them do next.
    __builtin_prefetch(&step + kAhead);
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
    case RecordedStep::Kind::kWaitSignal:
      if (node_ == nullptr || node_->has_landed(step.id, *this, cluster, warp)) return true;
      block(c, warp, step);
      return false;
    case RecordedStep::Kind::kWaitWork: {
      WorkRun& work = c.works[static_cast<size_t>(step.id)];
      return until(work.done, work.waiters);
    }
    case RecordedStep::Kind::kWaitRead: {
      WorkRun& work = c.works[static_cast<size_t>(step.id)];
      return until(work.read == kNever ? work.done : work.read, work.readers);
    }
    case RecordedStep::Kind::kFlag: {
      Flag& flag = flags_.at(flag_key(step.phase, step.id));
      if (flag.seen == kNever) {
        block(c, warp, step);
        flag.waiters.emplace_back(cluster, warp);
        return false;
      }
      std::vector<int32_t> none;
      return flag.seen <= now_ || until(flag.seen + rates_.flag_latency, none);
    }
    case RecordedStep::Kind::kDrain: {
      std::vector<int32_t> none;
      const double stored = c.stored[static_cast<size_t>(warp / c.recording->warps_per_cta)];
      return until(std::max(stored, now_) + rates_.far_fence, none);
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
    case RecordedStep::Kind::kWaitSignal:
      return path_.then(otherwise, now_, Resource::kSynchronisation, step.insn);
    case RecordedStep::Kind::kFlag:
      return path_.then(flags_.at(flag_key(step.phase, step.id)).node, now_, Resource::kSynchronisation,
                        step.insn);
    case RecordedStep::Kind::kDrain:
      return path_.then(otherwise, now_, Resource::kL2Latency, step.insn);
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

/// What a thread's store sets is seen by all from then on.
void Replay::set_flag(int32_t cluster, int32_t work, double seen, PathNode node) {
  const auto at = flags_.find(flag_key(cluster, work));
  if (at == flags_.end()) return;
  Flag& flag = at->second;
  flag.seen = seen;
  flag.node = node;
  for (const auto& [waiting, warp] : flag.waiters)
    post(seen + rates_.flag_latency, EventKind::kWarp, waiting, warp);
  flag.waiters.clear();
}

/// Where clusters wait for those that find no room (they were told of each other in another order when the launch was
/// recorded), they go on. False where none waits.
bool Replay::give_up_flags() {
  bool some = false;
  for (auto& [key, flag] : flags_) {
    some |= !flag.waiters.empty();
    if (!flag.waiters.empty())
      set_flag(static_cast<int32_t>(key >> 32), static_cast<int32_t>(key), now_, flag.node);
  }
  return some;
}

Timeline Replay::run() {
  launch();
  do
    while (has_next()) step();
  while (give_up_flags());
  return finish();
}

void Replay::step() {
  const Event event = events_.top();
  events_.pop();
  now_ = event.time;
  if (event.kind == EventKind::kSignal) return node_->land(event.id, now_);
  if (clusters_[static_cast<size_t>(event.cluster)] == nullptr) return;  // has ended meanwhile
  switch (event.kind) {
    case EventKind::kWarp:
      return go_on(event.cluster, event.id);
    case EventKind::kWorkDone:
      return finish_work(event.cluster, event.id);
    case EventKind::kWorkRead:
      return finish_read(event.cluster, event.id);
    case EventKind::kPart:
      return load_part(event.cluster, event.id, event.phase, event.node);
    case EventKind::kMoved:
      return finish_bulk_load(event.cluster, event.id, event.node);
    case EventKind::kArrival:
      return arrive(event.cluster, event.id, event.phase, event.node);
    case EventKind::kSignal:
      return;
  }
}

Timeline Replay::finish() {
  Timeline& t = timeline_;
  t.complete = running_ == 0;
  t.chip = model_.chip;
  t.clock_ghz = model_.clock_ghz;
  t.sms = context_.sms;
  t.ctas_per_sm = context_.ctas_per_sm;
  last_ = path_.then(last_, drained_, Resource::kL2Bandwidth, drained_by_);
  end_ = std::max({end_, now_, drained_});
  t.cycles = std::llround(end_);
  double tensor = 0, tma = 0, issue = 0;
  for (const SmModel& sm : sms_) {
    t.active_sms += sm.was_used ? 1 : 0;
    tensor += sm.tensor.busy();
    tma += sm.tma.busy();
    issue += sm.slots / SmModel::kParts;
    for (size_t part = 0; part < SmModel::kParts; ++part) {
      tensor += sm.mma_sync[part].busy() / SmModel::kParts;
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
