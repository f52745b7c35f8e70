// SPDX-License-Identifier: Apache-2.0
#include "vgpu/timeline/node_replay.h"

#include <cmath>

#include "vgpu/timeline/replay.h"

namespace imbrex::vgpu {

NodeReplay::NodeReplay(const std::vector<RankRecordings>& launches, int gpus, const LinkRates& links,
                       int32_t signals)
    : of_rank_(static_cast<size_t>(gpus)),
      out_(static_cast<size_t>(gpus)),
      in_(static_cast<size_t>(gpus)),
      signals_(static_cast<size_t>(signals)) {
  const double clocks_per_second = launches.front().context.model.clock_ghz * 1e9;
  rate_ = links.bytes_per_second / clocks_per_second;
  latency_ = links.latency_seconds * clocks_per_second;
  for (const RankRecordings& launch : launches) {
    replays_.push_back(std::make_unique<Replay>(launch.context, launch.recordings));
    ranks_.push_back(launch.rank);
    replays_.back()->join(*this, launch.rank);
    of_rank_[static_cast<size_t>(launch.rank)] = replays_.back().get();
  }
}
NodeReplay::~NodeReplay() = default;

std::vector<Timeline> NodeReplay::run() {
  for (const std::unique_ptr<Replay>& replay : replays_) replay->launch();
  for (;;) {
    Replay* next = nullptr;
    for (const std::unique_ptr<Replay>& replay : replays_)
      if (replay->has_next() && (next == nullptr || replay->next_time() < next->next_time()))
        next = replay.get();
    if (next == nullptr) break;
    next->step();
  }
  std::vector<Timeline> timelines;
  for (size_t i = 0; i < replays_.size(); ++i) {
    timelines.push_back(replays_[i]->finish());
    add_links(timelines.back(), ranks_[i]);
  }
  return timelines;
}

double NodeReplay::Port::take(double now, double clocks, double more) {
  const double end = server.take(now, clocks);
  busy.add(end - clocks, end);
  bytes += more;
  return end;
}

double NodeReplay::carry(int from, int to, double now, double bytes) {
  const double clocks = bytes / rate_;
  return std::max(out_[static_cast<size_t>(from)].take(now, clocks, bytes),
                  in_[static_cast<size_t>(to)].take(now, clocks, bytes));
}

void NodeReplay::land(int32_t signal, double now) {
  Signal& landed = signals_[static_cast<size_t>(signal)];
  landed.has_landed = true;
  for (const Waiter& waiter : landed.waiters) waiter.gpu->wake(now, waiter.cluster, waiter.warp);
  landed.waiters.clear();
}

bool NodeReplay::has_landed(int32_t signal, Replay& waiter, int32_t cluster, int32_t warp) {
  if (signal < 0) return true;
  Signal& awaited = signals_[static_cast<size_t>(signal)];
  if (!awaited.has_landed) awaited.waiters.push_back({&waiter, cluster, warp});
  return awaited.has_landed;
}

void NodeReplay::add_links(Timeline& timeline, int rank) const {
  const Port &out = out_[static_cast<size_t>(rank)], &in = in_[static_cast<size_t>(rank)];
  const double time = std::max<double>(1, static_cast<double>(timeline.cycles));
  timeline.rank = rank;
  timeline.use.links_out = out.server.busy() / time;
  timeline.use.links_in = in.server.busy() / time;
  timeline.link_bytes_out = std::llround(out.bytes);
  timeline.link_bytes_in = std::llround(in.bytes);
  if (timeline.lanes.empty()) return;
  const auto add = [&](const Port& port, int index, const char* name) {
    TimelineLane lane;
    lane.kind = LaneKind::kLinks;
    lane.cta = timeline.lanes.front().cta;
    lane.index = index;
    lane.name = name;
    for (const auto& [begin, end] : port.busy.parts())
      lane.spans.push_back(
          {std::llround(begin), std::llround(end), index == 0 ? SpanKind::kStore : SpanKind::kLoad});
    timeline.lanes.push_back(std::move(lane));
  };
  add(out, 0, "links out");
  add(in, 1, "links in");
}

}  // namespace imbrex::vgpu
