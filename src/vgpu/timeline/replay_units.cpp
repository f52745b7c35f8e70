// SPDX-License-Identifier: Apache-2.0
// What units take for the work they are given.
#include "vgpu/timeline/replay.h"

namespace imbrex::vgpu {

void Replay::submit(int32_t cluster, int32_t id, PathNode node) {
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
  if (run.after == 0) begin_work(cluster, id, node);
}

Landing Replay::fetch(SmModel& sm, double now, double bytes, double missed) {
  timeline_.l2_bytes += static_cast<int64_t>(bytes);
  timeline_.hbm_bytes += static_cast<int64_t>(missed);
  Landing landing;
  landing.moved =
      std::max(sm.l2_port.take(now, bytes / model_.l2_port_bytes), l2_.take(now, bytes / l2_rate_));
  landing.latency = model_.l2_latency;
  if (missed > 0) {
    landing.take(hbm_.take(now, missed / hbm_rate_), Resource::kMemoryBandwidth);
    landing.memory_latency = model_.hbm_latency - model_.l2_latency;
  }
  return landing;
}

Landing Replay::load(SmModel& sm, const RecordedWork& work, const Recording& recording, bool by_tma) {
  const auto bytes = static_cast<double>(work.demand.bytes);
  if (by_tma) {
    const double issued = sm.tma.take(now_, std::max(model_.tma_issue, bytes / model_.tma_bytes));
    Landing landing;
    if (work.demand.repeated) {
      landing.moved = sm.l2_port.take(now_, bytes / model_.l2_port_bytes);
      landing.latency = model_.l2_latency;
    } else {
      const bool hit = cache_.use(work.demand.block, work.demand.bytes);
      landing = fetch(sm, now_, bytes, hit ? 0 : bytes);
    }
    landing.take(issued, Resource::kTma);
    landing.tma_latency = model_.tma_latency;
    return landing;
  }
  double missed = 0;
  for (int32_t i = 0; i < work.line_count; ++i)
    if (!cache_.use(recording.lines[static_cast<size_t>(work.lines + i)], kLineBytes)) missed += kLineBytes;
  const double moved = std::max(bytes, static_cast<double>(work.line_count * kSectorBytes));
  const double issued = sm.shared.take(now_, work.line_count);
  Landing landing = fetch(sm, now_, moved, missed);
  // The lines go through the SM's L1 one by one, but that is no part of the latency.
  if (issued > landing.done()) landing = {.moved = issued, .by = Resource::kSharedMemory};
  return landing;
}

void Replay::store(SmModel& sm, double bytes) {
  timeline_.l2_bytes += static_cast<int64_t>(bytes);
  timeline_.hbm_bytes += static_cast<int64_t>(bytes);
  sm.l2_port.take(now_, bytes / model_.l2_port_bytes);
  l2_.take(now_, bytes / l2_rate_);
  hbm_.take(now_, bytes / hbm_rate_);
}

void Replay::begin_work(int32_t cluster, int32_t id, PathNode node) {
  using Kind = WorkDemand::Kind;
  ClusterRun& c = *clusters_[static_cast<size_t>(cluster)];
  WorkRun& run = c.works[static_cast<size_t>(id)];
  const RecordedWork& work = c.recording->works[static_cast<size_t>(id)];
  const auto rank = static_cast<size_t>(work.rank);
  SmModel& sm = *c.sms[rank];
  const auto bytes = static_cast<double>(work.demand.bytes);
  double begin = now_, drawn_end = kNever;
  ClusterRun::QueueEnd* queue = nullptr;
  if (work.queue >= 0) {
    if (c.queues.size() <= static_cast<size_t>(work.queue))
      c.queues.resize(static_cast<size_t>(work.queue) + 1);
    queue = &c.queues[static_cast<size_t>(work.queue)];
  }
  // After what is before it in its queue.
  const auto queued = [&] {
    if (queue == nullptr || queue->done <= now_) return now_;
    node = queue->node;
    return queue->done;
  };
  const auto then = [&](double end, Resource resource) {
    node = path_.then(node, end, resource, work.insn, work.warp);
  };
  switch (work.demand.kind) {
    case Kind::kNone:
      run.done = now_;
      break;
    case Kind::kCommit:
      run.done = queued();
      break;
    case Kind::kThreadLoad:
    case Kind::kTmaLoad: {
      const Landing landing = load(sm, work, *c.recording, work.demand.kind == Kind::kTmaLoad);
      run.done = landing.done();
      then(landing.moved, landing.by);
      then(landing.moved + landing.latency, Resource::kL2Latency);
      then(run.done - landing.tma_latency, Resource::kMemoryLatency);
      then(run.done, Resource::kTma);
      c.loads[rank].add(now_, run.done);
      break;
    }
    case Kind::kThreadStore:
      store(sm, std::max(bytes, static_cast<double>(work.line_count * kSectorBytes)));
      run.done = now_;
      break;
    case Kind::kTmaStore: {
      const double taken = sm.tma.take(now_, std::max(model_.tma_issue, bytes / model_.tma_bytes));
      store(sm, bytes);
      run.read = taken + model_.store_read;
      run.done = std::max(taken, sm.l2_port.free()) + model_.store_latency;
      then(taken, Resource::kTma);
      run.read_node = path_.then(node, run.read, Resource::kTma, work.insn, work.warp);
      then(run.done - model_.store_latency, Resource::kL2Bandwidth);
      then(run.done, Resource::kL2Latency);
      post(run.read, EventKind::kWorkRead, cluster, id);
      break;
    }
    case Kind::kMatrix: {
      SmModel* peer = work.demand.pair && rank % 2 == 0 ? c.sms[rank + 1]
                      : work.demand.pair                ? c.sms[rank - 1]
                                                        : nullptr;
      const double from = peer != nullptr ? std::max(now_, peer->tensor.free()) : now_;
      const double clocks = context_.free == Resource::kTensorCore ? 0 : work.demand.clocks;
      drawn_end = sm.tensor.take(from, clocks);
      begin = drawn_end - clocks;
      c.products[rank].add(begin, drawn_end);
      if (peer != nullptr) {
        peer->tensor.take(begin, clocks);
        c.products[rank ^ 1].add(begin, drawn_end);
      }
      run.done = drawn_end + model_.tensor_latency;
      then(run.done, Resource::kTensorCore);
      break;
    }
    case Kind::kTensorLoad:
    case Kind::kTensorStore:
      run.done = sm.tensor_memory[static_cast<size_t>(work.warp) % 4].take(
                     now_, bytes / model_.tensor_memory_bytes) +
                 model_.tensor_memory_latency;
      then(run.done, Resource::kTensorMemory);
      break;
    case Kind::kTensorCopy:
      run.done = queued() + bytes / model_.shared_bytes + model_.tensor_memory_latency;
      then(run.done, Resource::kTensorMemory);
      break;
    case Kind::kCancel:
      run.done = now_ + model_.cancel_latency;
      then(run.done, Resource::kLaunchControl);
      break;
    case Kind::kRemote:
      run.done = now_ + model_.cluster_latency + bytes / model_.l2_port_bytes;
      then(run.done, Resource::kSynchronisation);
      break;
  }
  if (queue != nullptr && run.done >= queue->done) *queue = {run.done, node};
  run.node = node;
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
    arrive(cluster, arrival.object, arrival.phase, run.node);
  });
  for (int32_t warp : run.waiters) post(now_, EventKind::kWarp, cluster, warp);
  for (int32_t warp : run.readers) post(now_, EventKind::kWarp, cluster, warp);
  run.waiters.clear();
  run.readers.clear();
  for (int32_t follower : run.followers)
    if (--c.works[static_cast<size_t>(follower)].after == 0) begin_work(cluster, follower, run.node);
  c.children.for_each(id, [&](int32_t child) { begin_work(cluster, child, run.node); });
  if (--c.pending == 0 && c.live == 0) finish(cluster, run.node);
}

}  // namespace imbrex::vgpu
