// SPDX-License-Identifier: Apache-2.0
// The life of the CTAs of a cluster: shared memory of a CTA is used before it has begun, or its mbarriers after it has exited.
// What is known of arrivals at those mbarriers tells, too, for which phase they count.
#include <fmt/format.h>

#include "vgpu/checks/race.h"

namespace imbrex::vgpu {

void RaceChecker::check_begun(const Who& who, const View& view, int rank) {
  uint32_t begun = view.knowledge->begun;
  if (view.parts != nullptr)
    for (const Part& part : *view.parts) begun |= part.more.begun;
  if ((begun >> rank & 1) != 0) return;
  Finding* finding = log_->open(FindingKind::kRace, who);
  if (finding == nullptr) return;
  finding->message = fmt::format(
      "the CTA of rank {} uses shared memory of the CTA of rank {}, which may not have begun by then",
      who.cta->rank(), rank);
  finding->hint = "a cluster barrier at the beginning, before any CTA uses the shared memory of another one";
}

void RaceChecker::remote_use(const Who& who, const CtaIdentity& owner, SyncKey object) {
  constexpr Clock kNeverAwaited = ~Clock{0};
  const bool of_cta = (who.order & kCtaScope) != 0;
  const RemoteUse use{warp_index(who), state(who).clock, who.lane,
                      who.insn->index, object,           of_cta ? kNeverAwaited : objects_[object].phase};
  for (RemoteUse& earlier : remote_uses_[static_cast<size_t>(owner.rank())])
    if (earlier.warp == use.warp && earlier.insn == use.insn && earlier.object == object) {
      earlier = use;
      return;
    }
  remote_uses_[static_cast<size_t>(owner.rank())].push_back(use);
}

bool RaceChecker::may_count_before(const Who& who, SyncKey object) const {
  const auto at = objects_.find(object);
  if (at == objects_.end() || who.origin != nullptr) return false;
  const uint32_t warp = warp_index(who);
  for (const RemoteUse& use : remote_uses_[object >> 48 & 0xFF]) {
    if (use.object != object || use.warp == warp || use.phase + 1 != at->second.phase) continue;
    // Of an arrival that releases nothing it cannot be told who knows of it.
    if (!at->second.remote_done.seen.covers(use.warp, use.clock, use.lane)) continue;
    bool is_known = false;
    each_known(warps_[warp], lanes_of(who), [&](const Knowledge& known) {
      is_known |= known.seen.covers(use.warp, use.clock, use.lane) ||
                  known.bent.find(use.warp, use.clock, use.lane) != nullptr;
    });
    if (!is_known) return true;
  }
  return false;
}

void RaceChecker::cta_exit(const CtaIdentity& cta) {
  const size_t first = static_cast<size_t>(cta.rank()) * warps_per_cta_;
  for (const RemoteUse& use : remote_uses_[static_cast<size_t>(cta.rank())]) {
    // Whoever has seen the end of a phase at the scope of the cluster knows that its arrivals of that scope have been made, relaxed
    // ones too.
    bool is_known = objects_[use.object].awaited > use.phase;
    Bend bend;
    for (size_t w = first; w < first + warps_per_cta_; ++w)
      each_known(warps_[w], kAllLanes, [&](const Knowledge& known) {
        is_known |= known.seen.covers(use.warp, use.clock, use.lane);
        if (const BentClock::Entry* entry = known.bent.find(use.warp, use.clock, use.lane))
          bend = {entry->rule, entry->insn};
      });
    if (!is_known) report_unordered_exit(cta, use, bend);
  }
}

void RaceChecker::report_unordered_exit(const CtaIdentity& cta, const RemoteUse& use, Bend bend) {
  if (!checks().async_lifetime) return;
  const CtaIdentity& other = *ctas_[use.warp / warps_per_cta_];
  const Who who{&other, static_cast<int>(use.warp % warps_per_cta_), use.lane,
                &launch_->program.code[use.insn], ""};
  Finding* finding = log_->open(FindingKind::kAsyncInFlight, who, 0, nullptr, bend);
  if (finding == nullptr) return;
  finding->message = fmt::format(
      "warp {} of the CTA of rank {} uses an mbarrier of the CTA of rank {}, which may have exited by then",
      who.warp, other.rank(), cta.rank());
  finding->hint = "keep a CTA alive while others may use its shared memory: a cluster barrier at the end";
}

}  // namespace imbrex::vgpu
