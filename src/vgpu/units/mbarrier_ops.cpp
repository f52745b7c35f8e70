// SPDX-License-Identifier: Apache-2.0
#include "vgpu/units/mbarrier_ops.h"

#include <fmt/format.h>

namespace imbrex::vgpu {

MbarrierRef find_mbarrier_at(Cluster& cluster, const Who& who, Cta& owner, uint32_t offset) {
  Mbarrier* object = owner.units().mbarriers.find(offset);
  if (owner.finished()) {
    cluster.report_fatal(
        FindingKind::kAsyncInFlight, who, offset,
        fmt::format("signals the {}, whose CTA has exited", barrier_text(who, owner, offset)),
        "keep the CTA alive while others may signal it, e.g. with a cluster barrier at the end");
    return {&owner, offset, nullptr};
  }
  if (object == nullptr)
    cluster.report_fatal(FindingKind::kInvalidBarrier, who, offset,
                         fmt::format("no mbarrier was initialised at {}", shared_text(who, owner, offset)),
                         "mbarrier.init by one thread, then a barrier before others use the object");
  return {&owner, offset, object};
}

MbarrierRef find_mbarrier(Cluster& cluster, const Who& who, Space space, uint64_t address, bool own_only) {
  Place place;
  if (!locate(cluster, who, space, address, 8, 8, AccessKind::kAtomic, place)) return {};
  if (place.space != Space::kSharedCta) {
    cluster.report_fatal(FindingKind::kIllegalInstruction, who, address,
                         fmt::format("{:#x} is not in shared memory, where mbarriers live", address));
    return {};
  }
  if (own_only && place.cta != who.cta) {
    cluster.report_fatal(
        FindingKind::kIllegalInstruction, who, address,
        fmt::format("the mbarrier at {:#x} belongs to the CTA of rank {}; this operation takes one of the "
                    "own CTA only",
                    address, place.cta->rank()),
        "signal a remote mbarrier, wait on a local one");
    return {};
  }
  return find_mbarrier_at(cluster, who, *place.cta, static_cast<uint32_t>(place.address));
}

bool accept(Cluster& cluster, const Who& who, const MbarrierRef& ref, MbarrierOutcome outcome) {
  cluster.note_progress();
  const SyncKey key = sync_key(SyncKind::kMbarrier, ref.cta->rank(), ref.offset);
  const int64_t phase = ref.object->phase() - (outcome.completed ? 1 : 0);
  cluster.observe().mbarrier_changed(who, key, phase, outcome.completed);
  if (outcome.overtook && cluster.checks().barriers) {
    const bool waits_there =
        who.cta != ref.cta && !outcome.completed && !cluster.observe().may_count_before(who, key);
    cluster.report(
        FindingKind::kInvalidBarrier, who, ref.offset,
        fmt::format("arrives at the {} for phase {} before any wait has seen the end of phase {}",
                    barrier_text(who, *ref.cta, ref.offset), ref.object->phase() - outcome.completed,
                    ref.object->phase() - outcome.completed - 1),
        "of every phase, at least one wait must have returned before anybody arrives for the next one: "
        "look for an arrival too many, a count too small or a wait left out",
        waits_there ? BentRule::kArrivalAhead : BentRule::kNone);
  }
  if (outcome.fault == MbarrierFault::kNone) return true;
  std::string message =
      fmt::format("{}: {}", barrier_text(who, *ref.cta, ref.offset), explain(outcome.fault, *ref.object));
  // The hardware lets a .noComplete arrive complete and ends the kernel for the rest.
  if (outcome.fault == MbarrierFault::kNoCompleteCompletes)
    cluster.report(FindingKind::kInvalidBarrier, who, ref.offset, std::move(message));
  else
    cluster.report_fatal(FindingKind::kInvalidBarrier, who, ref.offset, std::move(message));
  return false;
}

bool deliver_bytes(Cluster& cluster, const Who& who, Cta& owner, uint32_t offset, int64_t bytes) {
  return apply(cluster, who, find_mbarrier_at(cluster, who, owner, offset), [&](Mbarrier& object) {
    object.last_copy = who.insn;
    return object.complete_tx(bytes);
  });
}

bool deliver_arrival(Cluster& cluster, const Who& who, Cta& owner, uint32_t offset) {
  return apply(cluster, who, find_mbarrier_at(cluster, who, owner, offset),
               [&](Mbarrier& object) { return object.arrive(1); });
}

}  // namespace imbrex::vgpu
