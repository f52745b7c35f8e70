// SPDX-License-Identifier: Apache-2.0
// What units take for the work they are given.
#include "vgpu/timeline/replay.h"

#include <cmath>

#include "vgpu/timeline/node_replay.h"

namespace imbrex::vgpu {

namespace {

/// Of a bulk load, as far as its bytes go.
int64_t parts_of(const WorkDemand& demand) {
  constexpr int64_t kPartBytes = 4096;
  return std::max<int64_t>(1, demand.bytes / kPartBytes);
}

/// Bytes of global memory that a bulk copy moves, and what it has besides of boxes that reach beyond their tensor.
double moved_bytes(const WorkDemand& demand) {
  return demand.mapped ? static_cast<double>(kSectorBytes * demand.sectors)
                       : static_cast<double>(demand.bytes);
}
double bytes_outside(const WorkDemand& demand) {
  return std::max(0.0, static_cast<double>(demand.bytes) - moved_bytes(demand));
}

/// Which bytes a part of it moves.
uint64_t block_of(const WorkDemand& demand, uint64_t part) {
  constexpr uint64_t kScatter = 0x9E37'79B9'7F4A'7C15;  // so that parts of different blocks differ
  return demand.block + part * kScatter;
}

/// Calls `body` with the number of each half of a line that is touched, and the bytes of its sectors that are.
template <class Body>
void for_each_half(uint64_t line, Body&& body) {
  const uint64_t number = line & TouchedLine::kNumber, sectors = line / TouchedLine::kFirstSector;
  for (uint64_t half = 0; half < 2; ++half)
    if (const uint64_t touched = sectors >> 2 * half & 3; touched != 0)
      body(2 * number + half, touched == 3 ? 2 * kSectorBytes : kSectorBytes);
}

}  // namespace

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

constexpr double kMostDoublings = 7;  // M: of 16 KiB and of 32 KiB the last line is as late

/// By how much the last of the lines that are asked for together is later than one of them.
double Replay::spread_of(double bytes) const {
  return rates_.memory_spread * std::clamp(std::log2(bytes / kLineBytes), 0.0, kMostDoublings);
}

/// The same for each line by itself: late by chance, so that the last of many is as late as the last of those that are asked
/// for together, and the mean of all what is said of one. The chance depends on what loads the line, not on when.
double Replay::spread_of_line(const Recording& recording, const RecordedWork& work, int32_t line) const {
  constexpr double kMean = 1.44;  // of -log2 of a number between 0 and 1
  const auto number = static_cast<uint64_t>(&work - recording.works.data());
  uint64_t x =
      ((static_cast<uint64_t>(recording.cluster) << 20 ^ number) << 5 ^ static_cast<uint64_t>(line)) *
      0x9E37'79B9'7F4A'7C15;
  x = (x ^ x >> 30) * 0xBF58'476D'1CE4'E5B9;
  x = (x ^ x >> 27) * 0x94D0'49BB'1331'11EB;
  const double chance = (static_cast<double>(x >> 11) + 1) * 0x1p-53;
  return rates_.memory_spread * (std::min(kMostDoublings, -std::log2(chance)) - kMean);
}

/// `missed` of the bytes come from memory, which takes `spread` clocks more, `merged` of them are on the way to another SM
/// already.
Landing Replay::fetch(SmModel& sm, double bytes, double missed, double merged, double spread) {
  timeline_.l2_bytes += static_cast<int64_t>(bytes - merged);
  timeline_.hbm_bytes += static_cast<int64_t>(missed);
  Landing landing;
  landing.moved = std::max(sm.l2_port.take(now_, bytes / model_.l2_port_bytes),
                           l2_.take(now_, (bytes - merged + missed * rates_.l2_fill_cost) / l2_rate_));
  landing.latency = model_.l2_latency;
  if (missed > 0) {
    landing.take(hbm_.take(now_, missed / hbm_rate_), Resource::kMemoryBandwidth);
    landing.memory_latency = model_.hbm_latency - model_.l2_latency + spread;
  }
  return landing;
}

/// Bytes that are asked for together. SMs of a GPC that ask for the same ones while they are under way are served
/// together, but not those of clusters, nor of rows that begin within a sector, which ncu counts in full; whoever asks for
/// bytes on their way from memory waits for them.
Landing Replay::load_block(SmModel& sm, uint64_t block, double bytes, double spread, bool alone) {
  const uint64_t key = block * SmModel::kMaxGroups + static_cast<uint64_t>(sm.group);
  const double under_way = alone ? 0 : pending_.arrival(key, now_);
  double* ready = nullptr;
  const bool hit = cache_.use(block, static_cast<int64_t>(bytes), &ready);
  Landing landing = fetch(sm, bytes, hit ? 0 : bytes, under_way > 0 ? bytes : 0, spread);
  const double arrival = landing.moved + landing.latency + landing.memory_latency;
  if (!hit) *ready = arrival;
  if (const double there = std::max(under_way, *ready); there > arrival) {
    landing.memory_latency += there - arrival;
  }
  if (under_way == 0 && !alone)
    pending_.add(key, now_, now_ + rates_.merge_window + (hit ? 0 : landing.memory_latency));
  return landing;
}

PathNode Replay::landed(const Landing& landing, const RecordedWork& work, PathNode node) {
  const auto then = [&](double end, Resource resource) {
    node = path_.then(node, end, resource, work.insn, work.warp);
  };
  then(landing.moved, landing.by);
  then(landing.moved + landing.latency, Resource::kL2Latency);
  then(landing.done() - landing.tma_latency, Resource::kMemoryLatency);
  then(landing.done(), Resource::kTma);
  return node;
}

/// The engine of the SM asks for the bytes part by part, so that requests of all SMs take turns at L2 and memory.
void Replay::begin_bulk_load(int32_t cluster, int32_t id, PathNode node) {
  ClusterRun& c = *clusters_[static_cast<size_t>(cluster)];
  const WorkDemand& demand = c.recording->works[static_cast<size_t>(id)].demand;
  SmModel& sm = *c.sms[static_cast<size_t>(c.recording->works[static_cast<size_t>(id)].rank)];
  const auto bytes = static_cast<double>(demand.bytes);
  // What is multicast is asked for once, whoever gets it.
  const double clocks =
      demand.repeated ? 0 : std::max(model_.tma_issue, bytes / model_.tma_bytes) + demand.clocks;
  const double issued = sm.tma.take(now_, clocks);
  WorkRun& run = c.works[static_cast<size_t>(id)];
  run.begin = now_;
  run.landing = {.moved = issued, .by = Resource::kTma, .latency = 0};
  const auto parts = static_cast<int32_t>(parts_of(demand));
  for (int32_t part = 1; part < parts; ++part)
    post(issued - clocks + clocks * part / parts, EventKind::kPart, cluster, id, part, node);
  if (issued - clocks <= now_)
    load_part(cluster, id, 0, node);
  else
    post(issued - clocks, EventKind::kPart, cluster, id, 0, node);
}

void Replay::load_part(int32_t cluster, int32_t id, int32_t part, PathNode node) {
  ClusterRun& c = *clusters_[static_cast<size_t>(cluster)];
  const RecordedWork& work = c.recording->works[static_cast<size_t>(id)];
  SmModel& sm = *c.sms[static_cast<size_t>(work.rank)];
  WorkRun& run = c.works[static_cast<size_t>(id)];
  const auto parts = static_cast<int32_t>(parts_of(work.demand));
  const double all = moved_bytes(work.demand);
  Landing landing;
  const uint64_t block = block_of(work.demand, static_cast<uint64_t>(part));
  if (work.demand.repeated) {
    landing.moved =
        sm.l2_port.take(now_, static_cast<double>(work.demand.bytes) / parts / model_.l2_port_bytes);
    landing.latency = model_.l2_latency;
    // Not before the first of those who get it.
    double* ready = nullptr;
    cache_.use(block, static_cast<int64_t>(all / parts), &ready);
    landing.memory_latency = std::max(0.0, *ready - landing.done());
  } else {
    // L2 is asked for what lies outside of the tensor as well, and for sectors in part one by one.
    const double outside = bytes_outside(work.demand) / parts;
    sm.l2_port.take(now_, outside / model_.l2_port_bytes);
    l2_.take(now_,
             (outside * rates_.outside_cost + static_cast<double>(kSectorBytes) * rates_.partial_load_cost *
                                                  work.demand.partial_lines / parts) /
                 l2_rate_);
    timeline_.l2_bytes += static_cast<int64_t>(outside);
    const bool alone = c.recording->ctas.size() > 1 || work.demand.partial_lines > 0;
    landing = work.peer >= 0 ? load_from_peer(sm, work.peer, block, all / parts, all)
                             : load_block(sm, block, all / parts, spread_of(all), alone);
  }
  landing.tma_latency = model_.tma_latency + (work.demand.mapped ? rates_.map_latency : 0) +
                        (work.demand.multicast ? rates_.multicast_latency : 0);
  if (landing.done() > run.landing.done()) run.landing = landing;
  if (part + 1 < parts) return;
  if (run.landing.memory_latency > 0)
    post(std::max(now_, run.landing.moved), EventKind::kMoved, cluster, id, 0, node);
  else
    finish_bulk_load(cluster, id, node);
}

/// All of its bytes have been moved. Memory does not answer in the order in which it is asked: the last of them wait for a part of
/// what others have asked for meanwhile.
void Replay::finish_bulk_load(int32_t cluster, int32_t id, PathNode node) {
  ClusterRun& c = *clusters_[static_cast<size_t>(cluster)];
  const RecordedWork& work = c.recording->works[static_cast<size_t>(id)];
  WorkRun& run = c.works[static_cast<size_t>(id)];
  if (run.landing.memory_latency > 0)
    run.landing.memory_latency += rates_.mixing * std::max(0.0, hbm_.free() - now_);
  const double done = run.landing.done();
  run.node = landed(run.landing, work, node);
  c.loads[static_cast<size_t>(work.rank)].add(run.begin, done);
  if (c.lanes != nullptr) c.lanes->work(id, run.begin, done);
  post(done, EventKind::kWorkDone, cluster, id);
}

/// Each line by itself, through L1 unless by cp.async.
Landing Replay::load_by_threads(SmModel& sm, const RecordedWork& work, const Recording& recording) {
  const auto bytes = static_cast<double>(work.demand.bytes);
  const bool is_cached =
      static_cast<CostClass>(context_.program.info[work.insn].cost) == CostClass::kGlobalAccess;
  // What is copied is written to shared memory, which cannot serve accesses meanwhile.
  const double written = is_cached ? 0 : bytes / model_.shared_bytes;
  const double issued = sm.shared.take(now_, work.line_count + written);
  if (!is_cached) sm.copies.take(now_, work.line_count + written);
  Landing last{.moved = now_, .latency = model_.l1_latency};
  for (int32_t i = 0; i < work.line_count; ++i) {
    const uint64_t line = recording.lines[static_cast<size_t>(work.lines + i)];
    double* ready = nullptr;
    if (is_cached && sm.l1.use(line, kLineBytes, &ready)) {
      if (*ready > last.done()) last = {.moved = now_, .latency = *ready - now_};
      continue;
    }
    Landing landing;
    for_each_half(line, [&](uint64_t half, int64_t touched) {
      const auto each = static_cast<double>(touched);
      const Landing there = work.peer >= 0 ? load_from_peer(sm, work.peer, half, each, each)
                                           : load_block(sm, half, each, spread_of_line(recording, work, i));
      if (there.done() > landing.done()) landing = there;
    });
    if (ready != nullptr) *ready = landing.done();
    if (landing.done() > last.done()) last = landing;
  }
  // The lines go through the SM's L1 one by one, but that is no part of the latency.
  if (issued > last.done()) last = {.moved = issued, .by = Resource::kSharedMemory};
  return last;
}

/// Atomic updates: each line by itself at L2, where those of one line follow each other.
Landing Replay::update(SmModel& sm, const RecordedWork& work, const Recording& recording) {
  const double passes = work.demand.clocks;
  Landing last{.moved = sm.l2_store.take(now_, passes * rates_.update_issue)};
  last.take(updates_.take(now_, passes * rates_.update_cost / l2_rate_), Resource::kL2Bandwidth);
  double memory = 0;
  for (int32_t i = 0; i < work.line_count; ++i) {
    const uint64_t line = recording.lines[static_cast<size_t>(work.lines + i)];
    for_each_half(line, [&](uint64_t half, int64_t) {
      constexpr int64_t kHalf = kLineBytes / 2;
      double* ready = nullptr;
      if (!cache_.use(half, kHalf, &ready)) *ready = fetch(sm, kHalf, kHalf, 0, 0).done();
      memory = std::max(memory, *ready);
    });
    last.take(
        updated_lines_[line & TouchedLine::kNumber].take(now_, passes / work.line_count * rates_.update_line),
        Resource::kL2Bandwidth);
  }
  last.latency = model_.l2_latency;
  last.memory_latency = std::max(0.0, memory - last.moved - last.latency);
  return last;
}

/// When L2 has the bytes; `cost`: what they take of L2, and so many times `way` of the way there. It keeps what was written
/// last; the rest is on its way to memory, which nobody waits for but other requests.
double Replay::store(SmModel& sm, double bytes, double cost, double way) {
  timeline_.l2_bytes += static_cast<int64_t>(bytes);
  const double end =
      std::max(sm.l2_store.take(now_, way * cost / rates_.store_bytes), write_to_l2(now_, bytes, cost));
  drained_ = std::max(drained_, end + model_.l2_latency);
  return end;
}

double Replay::write_to_l2(double now, double bytes, double cost) {
  double end = l2_.take(now, cost * rates_.store_cost / l2_rate_);
  dirty_ += bytes;
  const double kept = rates_.dirty_share * static_cast<double>(model_.l2_capacity);
  if (dirty_ > kept) {
    timeline_.hbm_bytes += static_cast<int64_t>(dirty_ - kept);
    end = std::max(end, hbm_.take(now, (dirty_ - kept) * rates_.write_back_cost / hbm_rate_));
    dirty_ = kept;
  }
  return end;
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
  const double drained = drained_;
  const auto note_drain = [&] {
    if (drained_ > drained) drained_by_ = work.insn;
  };
  const bool is_store = work.demand.kind == Kind::kThreadStore || work.demand.kind == Kind::kTmaStore;
  if (is_store && context_.log != nullptr)
    context_.log->stores[static_cast<size_t>(cluster)].push_back({now_, work.demand.bytes});
  switch (work.demand.kind) {
    case Kind::kNone:
      run.done = now_;
      break;
    case Kind::kCommit:
      run.done = queued();
      break;
    case Kind::kTmaLoad:
      return begin_bulk_load(cluster, id, node);
    case Kind::kThreadLoad:
    case Kind::kThreadUpdate: {
      const bool loads = work.demand.kind == Kind::kThreadLoad;
      const Landing landing = loads            ? load_by_threads(sm, work, *c.recording)
                              : work.peer >= 0 ? update_at_peer(sm, work)
                                               : update(sm, work, *c.recording);
      tell(c, work);
      run.done = landing.done();
      node = landed(landing, work, node);
      if (loads) c.loads[rank].add(now_, run.done);
      break;
    }
    case Kind::kThreadStore: {
      const double cost = static_cast<double>(kSectorBytes) *
                          (work.demand.sectors + rates_.partial_line_cost * work.demand.partial_lines);
      const double stored = work.peer >= 0 ? store_to_peer(c, work, bytes, cost) : store(sm, bytes, cost);
      note_drain();
      if (work.peer < 0)
        for (int32_t i = 0; i < work.line_count; ++i)
          for_each_half(c.recording->lines[static_cast<size_t>(work.lines + i)],
                        [&](uint64_t half, int64_t) { cache_.use(half, kLineBytes / 2); });
      const double seen = stored + model_.l2_latency / 2;
      c.stored[rank] = std::max(c.stored[rank], seen);
      set_flag(cluster, id, seen, path_.then(node, seen, Resource::kL2Latency, work.insn, work.warp));
      tell(c, work);
      run.done = now_;
      break;
    }
    case Kind::kTmaStore: {
      const double taken = sm.tma.take(now_, std::max(model_.tma_issue, bytes / model_.tma_bytes));
      const double way = work.demand.reduces ? rates_.bulk_update_issue : 1, moved = moved_bytes(work.demand);
      const double cost =
          moved + static_cast<double>(kSectorBytes) * rates_.partial_line_cost * work.demand.partial_lines;
      const double there = work.peer >= 0 ? store_to_peer(c, work, moved, cost) : store(sm, moved, cost, way);
      note_drain();
      const double latency = work.peer >= 0 ? node_->latency() : 0;
      double stored = std::max(taken, there - latency);
      if (work.demand.reduces && work.peer < 0)
        stored =
            std::max(stored, updates_.take(now_, moved / kSectorBytes * rates_.bulk_update_cost / l2_rate_));
      const auto parts = static_cast<uint64_t>(parts_of(work.demand));
      for (uint64_t part = 0; work.peer < 0 && part < parts; ++part)
        cache_.use(block_of(work.demand, part), work.demand.bytes / static_cast<int64_t>(parts));
      run.read = stored + model_.store_read + (work.demand.mapped ? rates_.map_store_latency : 0);
      run.done = run.read + 2 * latency + model_.store_latency;
      then(taken, Resource::kTma);
      then(stored, Resource::kL2Bandwidth);
      then(run.read, Resource::kTma);
      run.read_node = node;
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
