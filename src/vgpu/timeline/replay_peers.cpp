// SPDX-License-Identifier: Apache-2.0
// What a GPU's replay does in the memory of another GPU of its node. As elsewhere, each unit on the way is asked at once,
// and latencies come on top: a request that takes a while to get there does not keep the units busy meanwhile.
#include <cmath>

#include "vgpu/timeline/node_replay.h"
#include "vgpu/timeline/replay.h"

namespace imbrex::vgpu {

/// Bytes that another GPU reads of this one's memory: when L2 has moved them, and the latency of memory where it has not got
/// them.
Landing Replay::read_by_peer(double now, uint64_t block, double bytes, double together) {
  double* ready = nullptr;
  const bool hit = cache_.use(block, static_cast<int64_t>(bytes), &ready);
  timeline_.l2_bytes += static_cast<int64_t>(bytes);
  Landing landing;
  landing.moved = l2_.take(now, (bytes + (hit ? 0 : bytes) * rates_.l2_fill_cost) / l2_rate_);
  landing.latency = model_.l2_latency;
  if (!hit) {
    timeline_.hbm_bytes += static_cast<int64_t>(bytes);
    landing.take(hbm_.take(now, bytes / hbm_rate_), Resource::kMemoryBandwidth);
    landing.memory_latency = model_.hbm_latency - model_.l2_latency +
                             rates_.memory_spread * std::log2(std::max(1.0, together / kLineBytes));
    *ready = landing.done();
  } else if (*ready > landing.done()) {
    landing.memory_latency = *ready - landing.done();
  }
  return landing;
}

/// Bytes that another GPU stores here; when L2 has them.
double Replay::stored_by_peer(double now, double bytes, double cost) {
  timeline_.l2_bytes += static_cast<int64_t>(bytes);
  const double end = write_to_l2(now, bytes, cost);
  drained_ = std::max(drained_, end + model_.l2_latency);
  return end;
}

Landing Replay::load_from_peer(SmModel& sm, int peer, uint64_t block, double bytes, double together) {
  Landing landing;
  landing.moved = sm.l2_port.take(now_, bytes / model_.l2_port_bytes);
  landing.take(node_->carry(peer, rank_, now_, bytes), Resource::kL2Bandwidth);
  landing.latency = model_.l2_latency + 2 * node_->latency();
  if (Replay* other = node_->gpu(peer)) {
    const Landing there = other->read_by_peer(now_, block, bytes, together);
    landing.take(there.moved, there.by);
    landing.memory_latency = there.memory_latency;
  }
  return landing;
}

/// When the other GPU has the bytes; a further latency, and this GPU knows that it has.
double Replay::store_to_peer(ClusterRun& c, const RecordedWork& work, double bytes, double cost) {
  SmModel& sm = *c.sms[static_cast<size_t>(work.rank)];
  double end =
      std::max(sm.l2_store.take(now_, cost / rates_.store_bytes), node_->carry(rank_, work.peer, now_, cost));
  if (Replay* other = node_->gpu(work.peer)) end = std::max(end, other->stored_by_peer(now_, bytes, cost));
  const double there = end + node_->latency();
  double& acknowledged = c.acknowledged[static_cast<size_t>(work.rank)];
  acknowledged = std::max(acknowledged, there + node_->latency());
  drained_ = std::max(drained_, there);
  return there;
}

/// An atomic update at another GPU's L2.
Landing Replay::update_at_peer(SmModel& sm, const RecordedWork& work) {
  const double passes = work.demand.clocks;
  Landing landing;
  landing.moved = sm.l2_store.take(now_, passes * rates_.update_issue);
  landing.take(node_->carry(rank_, work.peer, now_, static_cast<double>(work.line_count * kSectorBytes)),
               Resource::kL2Bandwidth);
  landing.latency = model_.l2_latency + 2 * node_->latency();
  return landing;
}

/// A store that others may wait for: with .release it comes after what its CTA has stored at other GPUs.
void Replay::tell(const ClusterRun& c, const RecordedWork& work) {
  if (node_ == nullptr || work.signal < 0) return;
  double begin = now_;
  if (context_.program.info[work.insn].releases)
    begin = std::max(begin, c.acknowledged[static_cast<size_t>(work.rank)]);
  const double way = work.peer >= 0 ? node_->latency() : model_.l2_latency / 2;
  post(begin + way, EventKind::kSignal, 0, work.signal);
}

}  // namespace imbrex::vgpu
