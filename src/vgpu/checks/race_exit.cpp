// SPDX-License-Identifier: Apache-2.0
// CTAs of a cluster that exit while others may still arrive at their mbarriers.
#include <fmt/format.h>

#include "vgpu/checks/race.h"

namespace imbrex::vgpu {

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
