// SPDX-License-Identifier: Apache-2.0
// What the race checker says.
#include <fmt/format.h>

#include "vgpu/checks/global_races.h"
#include "vgpu/checks/race.h"
#include "vgpu/program/late_reads.h"

namespace imbrex::vgpu {

namespace {

std::string name_of(const Who& who) {
  if (who.unit[0] == 0) return fmt::format("warp {}", who.warp);
  return fmt::format("{} for warp {}", who.unit, who.warp);
}

std::string columns_text(TensorAddress at, uint32_t columns) {
  return fmt::format("tensor memory lane {} on, columns {} to {}", at.lane, at.column,
                     at.column + columns - 1);
}

}  // namespace

Who RaceChecker::who_did(Access access) const {
  const Agent& agent = agents_[access.agent()];
  const int byte = std::countr_zero(access.bytes());
  return {ctas_[agent.warp / warps_per_cta_], static_cast<int>(agent.warp % warps_per_cta_),
          access.lane_of(byte & 15), &launch_->program.code[access.insn()], agent.unit};
}

/// An agent of any cluster: a warp is known by its number, units have been named.
Actor RaceChecker::actor_of(AgentId everywhere) const {
  const size_t local = local_agent(everywhere);
  if (!is_of_launch(cluster_of(everywhere))) {
    const GlobalRaces::Launched* launch = global_->launch_of(cluster_of(everywhere));
    if (launch == nullptr) return global_->actor(everywhere);
    const size_t warps = launch->warps_per_cta * static_cast<size_t>(launch->cluster.count());
    Actor actor;
    if (local >= warps) {
      actor = global_->actor(everywhere);
    } else {
      const std::array<int64_t, 3> id =
          cta_id_in(launch->grid, launch->cluster, cluster_of(everywhere) - launch->first,
                    static_cast<int64_t>(local / launch->warps_per_cta));
      for (size_t i = 0; i < 3; ++i) actor.cta[i] = static_cast<int>(id[i]);
      actor.warp = static_cast<int>(local % launch->warps_per_cta);
    }
    actor.rank = launch->rank;
    return actor;
  }
  if (local >= warps_.size()) return global_->actor(everywhere);
  Actor actor;
  const std::array<int64_t, 3> id = launch_->cta_id(cluster_of(everywhere) - launch_->first_cluster,
                                                    static_cast<int64_t>(local / warps_per_cta_));
  for (size_t i = 0; i < 3; ++i) actor.cta[i] = static_cast<int>(id[i]);
  actor.warp = static_cast<int>(local % warps_per_cta_);
  return actor;
}

/// Names the wait or the arrival that would have ordered the two.
void RaceChecker::add_bent_wait(Finding& finding, const BentClock::Entry& entry) const {
  const std::string where = launch_->program.place_text(entry.insn);
  if (entry.rule == BentRule::kRelaxedWait) {
    finding.facts.push_back(
        fmt::format("the wait at {} is .relaxed: it would order the two if it acquired", where));
    finding.hint = "make that wait .acquire, which it is without a word";
  } else if (entry.rule == BentRule::kWarpCollective) {
    finding.facts.push_back(fmt::format(
        "another lane has waited for it before {}, which would order the two if it were bar.warp.sync",
        where));
    finding.hint = "bar.warp.sync (__syncwarp) behind the lane's wait";
  } else {
    finding.facts.push_back(
        fmt::format("the signal at {} is of CTA scope: it would order the two with .cluster", where));
    finding.hint = "arrive with .release.cluster, and wait with .acquire.cluster";
  }
}

void RaceChecker::report_race(Who who, uint32_t offset, Access earlier, Access now, int lane_shift,
                              Excuse excuse) {
  if (!checks().races) return;
  if (const uint16_t common = earlier.common(now); common != 0 && lane_shift < 7 && who.lane >= 0) {
    // Of all the lanes those two that meet.
    const int byte = std::countr_zero(common), lane = now.lane_of(byte) & 31;
    offset += static_cast<uint32_t>(lane - who.lane) << lane_shift;
    who.lane = lane;
    earlier.set_bytes(uint16_t(1u << byte));
  }
  const Who other = who_did(earlier);
  Finding* finding = log_->open(FindingKind::kRace, who, offset, &other, excuse.bend());
  if (finding == nullptr) return;
  if (finding->other_place.ptx.find("mbarrier.init") != std::string::npos) {
    const std::string& variable = finding->other_place.object;
    const std::string of_array = variable.empty() ? "" : fmt::format("of {} ", variable);
    finding->message = fmt::format(
        "{} uses the mbarrier {}at shared 0x{:x}, which {} initialises with nothing that orders the two",
        name_of(who), of_array, offset, name_of(other));
    finding->hint =
        "a barrier of the CTA between mbarrier.init and the first use; for other CTAs fence.mbarrier_init "
        "and a "
        "cluster barrier";
    return;
  }
  const bool same_warp = other.cta == who.cta && other.warp == who.warp;
  const bool of_lanes = same_warp && other.unit[0] == 0 && who.unit[0] == 0;
  finding->message =
      fmt::format("{} {} shared memory at 0x{:x}, which {} {} with nothing that orders the two",
                  of_lanes ? fmt::format("lane {} of warp {}", who.lane, who.warp) : name_of(who),
                  now.is_write() ? "writes" : "reads", offset,
                  of_lanes ? fmt::format("lane {} of the same warp", other.lane) : name_of(other),
                  earlier.is_write() ? "wrote" : "read");
  if (excuse.wait != nullptr) return add_bent_wait(*finding, *excuse.wait);
  if (of_lanes)
    finding->hint =
        "the lanes of a warp run on their own: a barrier between the two, sync() in Imbrex, bar.warp.sync "
        "(__syncwarp) if no other warp is concerned";
  else if (other.unit[0] != 0 || (who.unit[0] != 0 && !same_warp))
    finding->hint =
        "wait for the asynchronous operation, by its mbarrier or its group, and let the waiting "
        "thread synchronise with this one";
  else if (same_warp)
    finding->hint =
        "bar.warp.sync between the lanes' accesses and the lane that starts the asynchronous operation";
  else
    finding->hint =
        "a barrier between them, waited for by the later one; where one lane arrives for its warp, "
        "bar.warp.sync before it";
}

bool RaceChecker::is_of_rank(uint32_t cluster) const {
  if (is_of_launch(cluster)) return true;
  const GlobalRaces::Launched* launch = global_->launch_of(cluster);
  return launch != nullptr && launch->rank == launch_->rank;
}

const char* RaceChecker::hint_between_launches(Access earlier, Access now, bool is_narrow) {
  if (earlier.is_strong() && now.is_strong())
    return "both are atomic, but of a scope that does not reach the other GPU: use .sys (Scope::kSystem)";
  if (is_narrow)
    return "a signal stands between the two, but of .gpu scope, which orders nothing between GPUs: release "
           "and acquire with .sys (Scope::kSystem)";
  return "a signal between GPUs: a release of .sys scope by the earlier rank behind its access, and an "
         "acquire of .sys scope by the later rank before its own";
}

void RaceChecker::report_global_race(const Who& who, uint64_t address, Access earlier, Access now,
                                     Excuse excuse, bool is_narrow) {
  if (!checks().races) return;
  const bool own = cluster_of(earlier.agent()) == cluster_number_;
  const bool of_launch = own || is_of_launch(cluster_of(earlier.agent()));
  Access here = earlier;
  here.set_agent(local_agent(earlier.agent()));
  const std::vector<Instruction>& code = launch_->program.code;
  const Who other =
      own ? who_did(here)
          : Who{nullptr, -1, -1, earlier.insn() < code.size() ? &code[earlier.insn()] : nullptr, ""};
  // What is read behind a relaxed flag is there, but the L1 cache may answer with what was there before.
  const bool is_flag = excuse.rule == BentRule::kRelaxedWait && excuse.wait == nullptr;
  const bool may_be_stale =
      is_flag && !now.is_write() && who.insn != nullptr && asks_l1(launch_->program, who.insn->index);
  Finding* finding =
      log_->open(FindingKind::kRace, who, address, &other, may_be_stale ? Bend() : excuse.bend());
  if (finding == nullptr) return;
  if (may_be_stale)
    finding->facts.push_back(
        "a load by way of the L1 cache: where its SM has read there before, an H200 returned the old value");
  if (!own) {
    finding->other_actor = actor_of(earlier.agent());
    finding->other_actor.lane = earlier.lane_of(std::countr_zero(earlier.bytes()) & 15);
  }
  if (!of_launch)
    if (const GlobalRaces::Launched* launch = global_->launch_of(cluster_of(earlier.agent())))
      finding->other_place = launch->program->place(earlier.insn());
  const Actor& a = finding->other_actor;
  const std::string whose =
      own && other.cta == who.cta
          ? name_of(other)
          : fmt::format("{}{}warp {} of {}CTA ({}, {}, {})", a.unit, a.unit.empty() ? "" : " for ", a.warp,
                        of_launch ? "" : fmt::format("rank {}, ", a.rank), a.cta[0], a.cta[1], a.cta[2]);
  finding->message =
      fmt::format("{}{} {} global memory at 0x{:x}, which {} {} with nothing that orders the two",
                  name_of(who), of_launch ? "" : fmt::format(" of rank {}", launch_->rank),
                  now.is_write() ? "writes" : "reads", address, whose, earlier.is_write() ? "wrote" : "read");
  if (launch_->rank >= 0)
    if (const Allocation* allocation = launch_->memory.find(address))
      finding->facts.push_back(fmt::format("{} [0x{:x}, 0x{:x}), byte {}", allocation->name,
                                           allocation->address, allocation->address + allocation->bytes,
                                           address - allocation->address));
  if (excuse.wait != nullptr) return add_bent_wait(*finding, *excuse.wait);
  if (excuse.rule == BentRule::kRelaxedWait)
    finding->hint =
        "the read that waited for the other CTA is relaxed or volatile: make it .acquire (ld.acquire.gpu, "
        "cuda::memory_order_acquire), or put a fence behind it (fence.acq_rel.gpu, __threadfence())";
  else if (!of_launch)
    finding->hint = hint_between_launches(earlier, now, is_narrow);
  else if (earlier.is_strong() && now.is_strong())
    finding->hint = "both are atomic, but of a scope that does not reach the other's CTA: use .gpu";
  else if (own && (other.unit[0] != 0 || who.unit[0] != 0))
    finding->hint =
        "wait for the asynchronous operation (cp.async.bulk.wait_group without .read, its mbarrier) "
        "and let the waiting thread synchronise with this one";
  else
    finding->hint =
        own ? "a barrier between them, waited for by the later one"
            : "a release (fence and atomic of .gpu scope) by the earlier and an acquire by the later, "
              "or atomics for both accesses";
}

void RaceChecker::report_missing_fence(const Who& who, Space space, uint64_t address, Access earlier,
                                       bool writes) {
  if (!checks().proxy_fences) return;
  const Who other = who_did(earlier);
  Finding* finding = log_->open(FindingKind::kMissingProxyFence, who, address, &other);
  if (finding == nullptr) return;
  finding->message = fmt::format(
      "{} {} {} memory at 0x{:x} through the async proxy, which warp {} {} through the "
      "generic proxy, with no proxy fence in between",
      who.unit, writes ? "writes" : "reads", space == Space::kGlobal ? "global" : "shared", address,
      other.warp, earlier.is_write() ? "wrote" : "read");
  finding->hint =
      earlier.is_write()
          ? "fence.proxy.async by the writing threads, between the write and the barrier"
          : "fence.proxy.async between the read and the write: by the reading threads before they "
            "arrive, or by the thread that starts the copy after it has waited";
}

namespace {

enum class Fence : uint8_t { kBefore, kAfter, kAfterProduct };

/// The rule of the fences of tensor memory, for a finding of a missing one. In practice it is bent by kernels that have none
/// of that side, as Triton's, or none behind a wait for products, as CUTLASS's; one that has some elsewhere has forgotten this one.
BentRule fence_rule(const FindingLog& log, const Habits& habits, Fence missing) {
  if (!log.is_practical()) return BentRule::kTensorFence;
  const bool has_some = missing == Fence::kBefore  ? habits.some_fence_before
                        : missing == Fence::kAfter ? habits.some_fence_after
                                                   : habits.some_fence_after_wait;
  return has_some ? BentRule::kNone : BentRule::kTensorFence;
}

}  // namespace

void RaceChecker::report_tensor(const Who& who, TensorAddress at, uint32_t columns, Access earlier,
                                const View& view, bool writes) {
  const VectorClock& seen = view.knowledge->seen;
  const VectorClock& synced = view.knowledge->synced;
  // A relaxed wait synchronises too.
  const bool is_complete =
      seen.covers(earlier.agent(), earlier.clock(), 0) || synced.covers(earlier.agent(), earlier.clock(), 0);
  if (!(is_complete ? checks().proxy_fences : checks().races)) return;
  const Who other = who_did(earlier);
  const BentClock::Entry* bent = is_complete ? nullptr : view.bent(earlier, 0, 0);
  const bool no_after = is_complete && synced.covers(earlier.agent(), earlier.clock(), 0);
  // Products are waited for at an mbarrier, whoever does so first.
  const bool of_product = *other.unit != 0;
  const Fence missing = !no_after ? Fence::kBefore : of_product ? Fence::kAfterProduct : Fence::kAfter;
  const BentRule rule = is_complete       ? fence_rule(*log_, launch_->program.habits, missing)
                        : bent != nullptr ? bent->rule
                                          : BentRule::kNone;
  Finding* finding = log_->open(is_complete ? FindingKind::kMissingTensorFence : FindingKind::kRace, who,
                                at.bits(), &other, {rule, bent == nullptr ? Bend::kNowhere : bent->insn});
  if (finding == nullptr) return;
  const char* verb = writes ? "writes" : "reads";
  const char* earlier_verb = earlier.is_write() ? "wrote" : "read";
  if (is_complete) {
    finding->message =
        fmt::format("{} {} {}, which {} {} before a synchronisation with no tcgen05.fence::{} at it",
                    name_of(who), verb, columns_text(at, columns), name_of(other), earlier_verb,
                    no_after ? "after_thread_sync" : "before_thread_sync");
    finding->hint = no_after ? "tcgen05.fence::after_thread_sync between the wait and this instruction"
                             : "tcgen05.fence::before_thread_sync by the other side, before it arrives";
    return;
  }
  finding->message = fmt::format("{} {} {}, which {} {} with nothing that orders the two", name_of(who), verb,
                                 columns_text(at, columns), name_of(other), earlier_verb);
  if (bent != nullptr) return add_bent_wait(*finding, *bent);
  finding->hint =
      "an mma or cp is done when the mbarrier of a later tcgen05.commit has completed its phase, a "
      "tcgen05.ld after "
      "tcgen05.wait::ld, a tcgen05.st after tcgen05.wait::st: the later of the two has to wait for that, "
      "through a "
      "barrier if it is another thread";
}

void RaceChecker::report_tensor_release(const Who& who, TensorAddress at, uint32_t columns, Access earlier,
                                        const Knowledge& knowledge) {
  const bool is_complete = knowledge.seen.covers(earlier.agent(), earlier.clock(), 0);
  if (!(is_complete ? checks().proxy_fences : checks().races)) return;
  const Who other = who_did(earlier);
  Finding* finding =
      log_->open(is_complete ? FindingKind::kMissingTensorFence : FindingKind::kRace, who, at.bits(), &other,
                 is_complete ? fence_rule(*log_, launch_->program.habits, Fence::kBefore) : BentRule::kNone);
  if (finding == nullptr) return;
  finding->message =
      fmt::format("warp {} gives back {}, which {} {} {}", who.warp, columns_text(at, columns),
                  name_of(other), earlier.is_write() ? "writes" : "reads",
                  is_complete ? "before a synchronisation with no tcgen05.fence::before_thread_sync at it"
                              : "with nothing that orders the two");
  finding->hint =
      "tcgen05.commit or tcgen05.wait, tcgen05.fence::before_thread_sync, a barrier, then "
      "tcgen05.dealloc";
}

std::array<uint32_t, 2> RaceChecker::barriers_before(const AsyncOrigin& origin, Access load) const {
  const auto object = objects_.find(origin.barrier.key);
  if (object == objects_.end() || load.agent() >= object->second.arrived_at.size())
    return {origin.barrier.insn, PassedBarrier::kNowhere};
  return {origin.barrier.insn, object->second.arrived_at[load.agent()]};
}

bool RaceChecker::is_late(Access load, const AsyncOrigin& copy) {
  if (used_behind_.empty()) used_behind_.resize(launch_->program.code.size(), kNotAsked);
  uint32_t& behind = used_behind_[load.insn()];
  if (behind == kNotAsked) behind = used_behind(launch_->program, load.insn());
  if (behind >= kNotAsked) return behind == kBehindArrival;
  const std::array<uint32_t, 2> barriers = barriers_before(copy, load);
  return behind == barriers[0] || behind == barriers[1];
}

}  // namespace imbrex::vgpu
