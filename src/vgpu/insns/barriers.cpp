// SPDX-License-Identifier: Apache-2.0
// The 16 named barriers of a CTA: bar.sync, bar.arrive, bar.red and their barrier.* spellings.
#include <fmt/format.h>

#include "vgpu/machine/cluster.h"
#include "vgpu/program/control.h"
#include "vgpu/program/decode.h"

namespace imbrex::vgpu {

namespace {

using ptx::Mod;
using ptx::Op;
using ptx::ScalarType;

constexpr uint32_t kBarriers = 16;

/// Indices of Instruction::small: flags of all of them, the operation of bar.red.
enum Small : int { kFlags, kReduction };
enum Flag : uint8_t { kAligned = 1, kHasCount = 2, kWaits = 4, kReduces = 8, kInvert = 16 };
enum ReductionKind : uint8_t { kPopc, kAnd, kOr };

void report(Warp& w, const Instruction& n, Mask active, std::string message) {
  Cluster& cluster = w.cta().cluster();
  const Who who = w.thread(n, first_lane(active));
  if (Finding* f = cluster.log().open(FindingKind::kInvalidBarrier, who)) f->message = std::move(message);
}

bool phase_passed(Warp& w, const Wait& wait) {
  return w.cta().barrier(static_cast<int>(wait.a)).phase != static_cast<int64_t>(wait.b);
}

std::string describe(Warp& w, const Wait& wait) {
  const Cta& cta = w.cta();
  const NamedBarrier& barrier = w.cta().barrier(static_cast<int>(wait.a));
  int arrived = 0, live = 0;
  std::string missing;
  for (const std::unique_ptr<Warp>& other : cta.warps()) {
    const Mask here = barrier.arrived.empty() ? 0 : barrier.arrived[static_cast<size_t>(other->index())];
    arrived += count_lanes(here);
    live += count_lanes(other->live());
    if (barrier.expected_threads == 0 && (other->live() & ~here) != 0)
      missing += fmt::format("{}{}", missing.empty() ? "" : ", ", other->index());
  }
  if (barrier.expected_threads > 0)
    return fmt::format("at barrier {}: {} of {} threads have arrived", wait.a, arrived,
                       barrier.expected_threads);
  return fmt::format("at barrier {}: {} of {} threads have arrived, warps {} have not", wait.a, arrived, live,
                     missing);
}

/// Lanes must name the same barrier and count; -1 in `id` when they do not, or when it is none.
void operands(Warp& w, const Instruction& n, Mask active, int& id, int& count) {
  const uint32_t* ids = w.reg<uint32_t>(n.a);
  const uint32_t* counts = w.reg<uint32_t>(n.b);
  const bool has_count = (n.small[kFlags] & kHasCount) != 0;
  const int first = first_lane(active);
  id = static_cast<int>(ids[first]);
  count = has_count ? static_cast<int>(counts[first]) : 0;
  bool same = true;
  for_each_lane(active,
                [&](int i) { same &= ids[i] == ids[first] && (!has_count || counts[i] == counts[first]); });
  if (!same) {
    report(w, n, active, "the lanes of the warp name different barriers or counts");
    id = -1;
  } else if (ids[first] >= kBarriers) {
    report(w, n, active, fmt::format("there is no barrier {}, only 0 to 15", ids[first]));
    id = -1;
  } else if (has_count && (count <= 0 || count % kWarpSize != 0)) {
    report(w, n, active, fmt::format("{} threads are expected, which is not a multiple of 32", count));
    id = -1;
  }
}

/// Without a count all threads are expected; to say so in numbers is the same.
bool same_count(const Cta& cta, int a, int b) {
  const int all_threads = static_cast<int>(cta.warps().size()) * kWarpSize;
  return a == b || (a == 0 && b == all_threads) || (b == 0 && a == all_threads);
}

void open_phase(Cta& cta, NamedBarrier& barrier, const Instruction& n, int count) {
  barrier.arrived.assign(cta.warps().size(), 0);
  barrier.waiting.assign(cta.warps().size(), 0);
  barrier.expected_threads = count;
  barrier.opened_by = n.index;
}

void take_votes(Warp& w, const Instruction& n, Mask active, NamedBarrier& barrier) {
  const Mask p = w.predicate(n.c) ^ ((n.small[kFlags] & kInvert) != 0 ? kAllLanes : 0);
  barrier.reduction_count += count_lanes(p & active);
  barrier.reduction_lanes += count_lanes(active);
}

/// An .aligned arrival counts for the whole warp, lanes that have exited included.
Mask arrival(const Instruction& n, Mask active, int count) {
  return (n.small[kFlags] & kAligned) != 0 && count > 0 ? kAllLanes : active;
}

Step exec_barrier(Warp& w, const Instruction& n, Mask active) {
  if ((n.small[kFlags] & kAligned) != 0) {
    const Step step = w.gather(active, kAllLanes);
    if (step != Step::kNext) return step;
  }
  int id = 0, count = 0;
  operands(w, n, active, id, count);
  if (id < 0) return Step::kNext;
  Cta& cta = w.cta();
  NamedBarrier& barrier = cta.barrier(id);
  if (barrier.arrived.empty()) {
    open_phase(cta, barrier, n, count);
  } else if (!same_count(cta, barrier.expected_threads, count)) {
    report(w, n, active,
           fmt::format("barrier {} is in use with a count of {} (by {}), here it is {}", id,
                       barrier.expected_threads, w.program().place_text(barrier.opened_by), count));
  }
  Mask& arrived = barrier.arrived[static_cast<size_t>(w.index())];
  if ((arrived & active) != 0) {
    report(w, n, active, fmt::format("threads arrive at barrier {} a second time in the same phase", id));
  }
  arrived |= arrival(n, active, count);
  if ((n.small[kFlags] & kWaits) != 0) barrier.waiting[static_cast<size_t>(w.index())] |= active;
  const Who who{&cta, w.index(), -1, &n, "", active};
  const SyncKey key = sync_key(SyncKind::kNamedBarrier, cta.rank(), static_cast<uint64_t>(id));
  cta.cluster().observe().released(who, key);
  cta.cluster().observe().arrived(who, key, barrier.phase);
  if ((n.small[kFlags] & kReduces) != 0) take_votes(w, n, active, barrier);
  const int64_t phase = barrier.phase;
  cta.cluster().note_progress();
  cta.try_complete(barrier);
  if ((n.small[kFlags] & kWaits) == 0 || barrier.phase != phase) return Step::kNext;
  Wait wait;
  wait.ready = phase_passed;
  wait.describe = describe;
  wait.a = static_cast<uint64_t>(id);
  wait.b = static_cast<uint64_t>(phase);
  return w.wait_then_continue(active, wait);
}

/// Stands behind bar.red: all have come, the result is known.
Step exec_barrier_result(Warp& w, const Instruction& n, Mask active) {
  const NamedBarrier& barrier =
      w.cta().barrier(static_cast<int>(w.reg<uint32_t>(n.a)[first_lane(active)] % kBarriers));
  const int count = barrier.last_count, lanes = barrier.last_lanes;
  const bool truth = n.small[kReduction] == kAnd ? count == lanes : count > 0;
  if (n.small[kReduction] == kPopc)
    for_each_lane(active, [&](int i) { w.reg<uint32_t>(n.d)[i] = static_cast<uint32_t>(count); });
  else
    w.predicate(n.d) = (w.predicate(n.d) & ~active) | (truth ? active : 0);
  return Step::kNext;
}

}  // namespace

Instruction barrier_result_instruction(const Instruction& barrier) {
  Instruction out = barrier;
  out.exec[0] = out.exec[1] = exec_barrier_result;
  return out;
}

bool decode_barriers(Decoder& d, Instruction& out) {
  const Op op = d.op();
  uint8_t flags = 0;
  const bool bar = op == Op::bar_sync || op == Op::bar_arrive || op == Op::bar_red;
  if (bar || d.has(Mod::aligned)) flags |= kAligned;
  if (op != Op::bar_arrive && op != Op::barrier_arrive) flags |= kWaits;
  const bool reduces = op == Op::bar_red || op == Op::barrier_red;
  size_t next = 0;
  if (reduces) {
    flags |= kReduces;
    out.small[kReduction] = d.has(Mod::popc) ? kPopc : d.has(Mod::and_) ? kAnd : kOr;
    out.d = out.small[kReduction] == kPopc ? d.destination(0, ScalarType::u32)
                                           : d.predicate_destination(d.operand(0));
    next = 1;
  }
  out.a = out.b = d.source(next++, ScalarType::u32);
  const size_t last = d.operand_count() - (reduces ? 1 : 0);
  if (next < last) {
    flags |= kHasCount;
    out.b = d.source(next++, ScalarType::u32);
  }
  if (reduces) {
    const PredicateSource p = d.predicate(d.operand_count() - 1);
    out.c = p.slot;
    if (p.flip != 0) flags |= kInvert;
  }
  out.small[kFlags] = flags;
  set_body(out, exec_barrier);
  return true;
}

}  // namespace imbrex::vgpu
