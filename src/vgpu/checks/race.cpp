// SPDX-License-Identifier: Apache-2.0
#include "vgpu/checks/race.h"

#include <string_view>

#include "vgpu/checks/global_races.h"
#include "vgpu/checks/touched_cells.h"

namespace imbrex::vgpu {

namespace {

/// cp.async goes through the generic proxy, as threads do.
bool is_async_proxy(CompletedBy by) { return by != CompletedBy::kCopyGroup; }

SyncKind kind_of(SyncKey key) { return static_cast<SyncKind>(key >> 56); }
/// An mbarrier of another CTA.
bool is_remote(SyncKey key, const Who& who) {
  return kind_of(key) == SyncKind::kMbarrier && static_cast<int>(key >> 48 & 0xFF) != who.cta->rank();
}
/// A word as the threads of one CTA use it among themselves.
SyncKey inside_cta(SyncKey word, const Who& who) {
  return word | static_cast<SyncKey>(who.cta->rank() + 1) << 36;
}

}  // namespace

std::unique_ptr<RaceObserver> RaceObserver::make(const LaunchContext& launch, int64_t number,
                                                 std::vector<const CtaIdentity*> ctas, FindingLog& log) {
  return std::make_unique<RaceChecker>(launch, number, std::move(ctas), log);
}

RaceChecker::RaceChecker(const LaunchContext& launch, int64_t number, std::vector<const CtaIdentity*> ctas,
                         FindingLog& log)
    : launch_(&launch),
      ctas_(std::move(ctas)),
      log_(&log),
      global_(launch.global_races),
      cluster_number_(launch.first_cluster + static_cast<uint32_t>(number)),
      warps_per_cta_(static_cast<size_t>(launch.warps())) {
  warps_.resize(ctas_.size() * warps_per_cta_);
  agents_.reserve(warps_.size());
  for (uint32_t w = 0; w < warps_.size(); ++w) {
    warps_[w].flows.fill(kNoAgent);
    warps_[w].knowledge.begun = 1u << w / warps_per_cta_;
    if (global_ != nullptr && launch.rank >= 0)
      warps_[w].knowledge.foreign = global_->known_before(launch.rank);
    add_agent("", w, -1);
  }
  remote_uses_.resize(ctas_.size());
  shared_.resize(ctas_.size());
  tensor_.resize(ctas_.size());
}

// ---- agents

AgentId RaceChecker::add_agent(const char* unit, uint32_t warp, int flow) {
  agents_.push_back({unit, warp, flow});
  return static_cast<AgentId>(agents_.size() - 1);
}

AgentId RaceChecker::flow_agent(uint32_t warp, Flow flow) {
  static constexpr const char* kUnits[kFlows] = {"cp.async",    "TMA",         "TMA",        "tensor core",
                                                 "tensor core", "tensor core", "tcgen05.ld", "tcgen05.st"};
  AgentId& agent = warps_[warp].flows[static_cast<size_t>(flow)];
  if (agent == kNoAgent) agent = add_agent(kUnits[static_cast<size_t>(flow)], warp, static_cast<int>(flow));
  return agent;
}

AgentId RaceChecker::barrier_agent(SyncObject& object, uint32_t warp, const char* unit) {
  for (const AgentId agent : object.agents)
    if (agents_[agent].warp == warp && std::string_view(agents_[agent].unit) == unit) return agent;
  object.agents.push_back(add_agent(unit, warp, -1));
  return object.agents.back();
}

bool RaceChecker::is_whole(const Who& who, Mask lanes) {
  return lanes == kAllLanes || (who.cta->live(who.warp) & ~lanes) == 0;
}

Known RaceChecker::publish(WarpState& warp, const Who& who) {
  const Mask lanes = lanes_of(who);
  const bool has_more = (warp.dirty & lanes) != 0;
  const Clock last = has_more ? warp.clock++ : warp.clock - 1;
  if (has_more) warp.dirty = 0;
  if (!is_whole(who, lanes)) return {warp.synced_before, last, lanes};
  warp.unfenced_copies = 0;
  return Known(last + 1);
}

Knowledge& RaceChecker::known_to(WarpState& warp, const Who& who) {
  const Mask lanes = lanes_of(who);
  if (is_whole(who, lanes)) return warp.knowledge;
  for (Part& part : warp.parts)
    if (part.lanes == lanes) return part.more;
  if (warp.parts.size() == kParts) return warp.knowledge;
  return warp.parts.emplace_back(Part{lanes, {}}).more;
}

void RaceChecker::unite(WarpState& warp) {
  for (const Part& part : warp.parts) warp.knowledge.absorb(part.more);
  warp.parts.clear();
}

const std::shared_ptr<const Knowledge>& RaceChecker::snapshot(WarpState& warp, Mask lanes) {
  bool has_parts = false;
  for (const Part& part : warp.parts) has_parts |= (part.lanes & lanes) != 0;
  if (!has_parts) lanes = 0;
  if (warp.snapshot_version != warp.version || warp.snapshot_lanes != lanes) {
    auto now = std::make_shared<Knowledge>(warp.knowledge);
    for (const Part& part : warp.parts)
      if ((part.lanes & lanes) != 0) now->absorb(part.more);
    warp.snapshot = std::move(now);
    warp.snapshot_version = warp.version;
    warp.snapshot_lanes = lanes;
  }
  return warp.snapshot;
}

// ---- synchronisation

void RaceChecker::release(const Who& who, SyncKey key) {
  if (who.cta == nullptr || who.warp < 0) return;
  SyncObject& object = objects_[key];
  if (who.origin != nullptr) {
    const AsyncOrigin& origin = *who.origin;
    object.pending.begun |= origin.knowledge->begun;
    // A delivery of bytes says nothing about its thread; complete_phase() knows whose work it was.
    if (origin.completion.by == CompletedBy::kMbarrier) return;
    object.pending.learn(*origin.knowledge);
    object.pending.seen.join(origin.issuer, origin.own);
    if (origin.completion.by == CompletedBy::kCopyGroup)
      object.pending.seen.join(origin.agent, Known(static_cast<Clock>(origin.completion.number) + 1));
    if (origin.completion.by == CompletedBy::kCommit) {
      object.pending.synced.join(origin.knowledge->ready);
      object.pending.seen.join(origin.agent, Known(origin.clock));
      object.pending.synced.join(origin.agent, Known(origin.clock));
    }
    object.last_agent = kNoAgent;
    return;
  }
  const uint32_t warp = warp_index(who);
  WarpState& s = warps_[warp];
  if (kind_of(key) == SyncKind::kNamedBarrier) {
    object.arrived_at.resize(warps_.size(), PassedBarrier::kNowhere);
    object.arrived_at[warp] = who.insn->index;
  }
  const bool remote = is_remote(key, who);
  const bool releases = (who.order & kReleases) != 0 && !(remote && (who.order & kCtaScope) != 0);
  const Mask lanes = lanes_of(who);
  // Whoever arrives runs, whatever the arrival orders.
  each_known(s, lanes, [&](const Knowledge& known) { object.pending.begun |= known.begun; });
  if (!releases || remote) {
    // tcgen05.fence::before_thread_sync does without a release, and so does asynchronous work that has been
    // waited for: what a product has read may be overwritten.
    each_known(s, lanes, [&](const Knowledge& known) {
      object.pending.synced.join(known.synced);
      object.pending.seen.join_from(static_cast<AgentId>(warps_.size()), known.seen);
    });
  }
  if (!releases) {
    object.last_agent = kNoAgent;
    if ((who.order & kReleases) != 0) bend_arrival(s, who, object);
    const bool leaves_cta = remote || kind_of(key) == SyncKind::kClusterBarrier;
    if (leaves_cta && s.at_fence.knowledge != s.at_cluster_fence.knowledge) {
      bend_scope(object.pending.bent, *s.at_fence.knowledge, s.fence_insn);
      object.pending.bent.join(warp, {s.at_fence.own, BentRule::kArrivalScope, s.fence_insn});
    }
    const WarpState::AtFence& fence = leaves_cta ? s.at_cluster_fence : s.at_fence;
    if (fence.knowledge == nullptr) return;
    Knowledge& pending = remote ? object.remote_pending : object.pending;
    pending.learn(*fence.knowledge);
    pending.seen.join(warp, fence.own);
    return;
  }
  // Told apart, for those who wait at the scope of their CTA.
  Knowledge& pending = remote ? object.remote_pending : object.pending;
  pending.seen.join(warp, publish(s, who));
  if (const AgentId issue = s.flows[static_cast<size_t>(Flow::kTensorIssue)]; issue != kNoAgent)
    pending.seen.join(issue, Known(s.tensor_clock[0]));
  if (object.last_agent == warp && object.last_version == s.version && object.last_lanes == lanes) return;
  each_known(s, lanes, [&](const Knowledge& known) { pending.learn(known); });
  object.last_agent = warp;
  object.last_version = s.version;
  object.last_lanes = lanes;
}

/// An arrival of CTA scope at another CTA's object releases nothing there, by the letter.
void RaceChecker::bend_arrival(WarpState& warp, const Who& who, SyncObject& object) {
  const Mask unfenced = warp.unfenced_copies;
  object.pending.bent.join(warp_index(who), {publish(warp, who), BentRule::kArrivalScope, who.insn->index});
  warp.unfenced_copies = unfenced;
  each_known(warp, lanes_of(who),
             [&](const Knowledge& known) { bend_scope(object.pending.bent, known, who.insn->index); });
}

void RaceChecker::release_word(const Who& who, SyncKey key) {
  if (who.cta == nullptr || who.warp < 0) return;
  const bool of_cta = ctas_.size() > 1 && (who.order & kCtaScope) != 0;
  if (!of_cta) release(who, key);
  if (ctas_.size() > 1) release(who, inside_cta(key, who));
  if (of_cta) bend_arrival(state(who), who, objects_[key]);
}

void RaceChecker::acquire_word(const Who& who, SyncKey key) {
  if (who.cta == nullptr || who.warp < 0) return;
  if (ctas_.size() > 1) acquire(who, inside_cta(key, who));
  if (ctas_.size() == 1 || (who.order & kCtaScope) == 0) return acquire(who, key);
  if (const auto at = objects_.find(key); at != objects_.end())
    bend_scope(known_to(state(who), who).bent, at->second.pending, who.insn->index);
}

void RaceChecker::learn(WarpState& warp, const Who& who, const Knowledge& what, bool remote) {
  ++warp.version;
  Knowledge& known = known_to(warp, who);
  if ((who.order & kAcquires) != 0) {
    known.learn(what);
    if (&known == &warp.knowledge) return;
    // Other clusters are no matter of lanes.
    warp.knowledge.published.join(what.published);
    warp.knowledge.published_to_system.join(what.published_to_system);
    warp.knowledge.foreign = join(warp.knowledge.foreign, what.foreign);
    warp.knowledge.narrow = join(warp.knowledge.narrow, what.narrow);
    warp.knowledge.unfenced = join(warp.knowledge.unfenced, what.unfenced);
    warp.knowledge.heard = join(warp.knowledge.heard, what.heard);
    return;
  }
  known.synced.join(what.synced);
  known.bent.join(what.bent);
  known.begun |= what.begun;
  if (who.insn != nullptr) known.bent.join(what.seen, BentRule::kRelaxedWait, who.insn->index);
  std::shared_ptr<Knowledge>& stashed = remote ? warp.stashed_remote : warp.stashed;
  if (stashed == nullptr) stashed = std::make_shared<Knowledge>();
  stashed->learn(what);
}

void RaceChecker::acquire(const Who& who, SyncKey key) {
  if (who.cta == nullptr || who.warp < 0) return;
  const auto at = objects_.find(key);
  if (at == objects_.end()) return;
  WarpState& s = state(who);
  learn(s, who, at->second.pending);
  // The lanes of a warp that all come to a barrier of the CTA have brought what each of them knew.
  if (kind_of(key) != SyncKind::kNamedBarrier) return;
  if (is_whole(who, lanes_of(who))) unite(s);
  s.barrier = {key, at->second.arrived_at[warp_index(who)]};
}

void RaceChecker::complete_phase(SyncKey key) {
  SyncObject& object = objects_[key];
  object.done.learn(object.pending);
  object.remote_done.learn(object.remote_pending);
  ++object.phase;
  for (const AgentId agent : object.agents) object.done.seen.join(agent, Known(object.phase));
}

void RaceChecker::acquire_phases(const Who& who, SyncKey key) {
  const auto at = objects_.find(key);
  if (at == objects_.end()) return;
  WarpState& s = state(who);
  if ((who.order & kCtaScope) == 0)
    at->second.awaited = at->second.phase;  // by threads of its CTA: nobody else may wait
  const Knowledge& remote = at->second.remote_done;
  learn(s, who, at->second.done);
  if ((who.order & kCtaScope) == 0) return learn(s, who, remote, true);
  bend_scope(known_to(s, who).bent, remote, who.insn->index);
}

void RaceChecker::warp_sync(const Who& who) {
  WarpState& s = state(who);
  const Known own = publish(s, who);
  ++s.version;
  if (is_whole(who, lanes_of(who))) {
    s.synced_before = s.clock;
    unite(s);
    return;
  }
  Knowledge shared;
  for (const Part& part : s.parts)
    if ((part.lanes & lanes_of(who)) != 0) shared.absorb(part.more);
  shared.seen.join(warp_index(who), own);
  known_to(s, who).absorb(shared);
}

/// CUDA's cooperative groups of several warps exchange values so: lanes overwrite what the others have read, and read what one lane
/// alone has waited for.
void RaceChecker::warp_met(const Who& who) {
  if (!is_whole(who, lanes_of(who))) return;
  WarpState& s = state(who);
  for (const Part& part : s.parts)
    s.knowledge.bent.join(part.more.seen, BentRule::kWarpCollective, who.insn->index);
  if (!s.parts.empty()) ++s.version;
  if (s.dirty != 0) ++s.clock;
  s.dirty = 0;
  s.met_before = s.clock;
}

void RaceChecker::proxy_fence(const Who& who, bool shared, bool global) {
  WarpState& s = state(who);
  const Known own = publish(s, who);
  const Mask lanes = lanes_of(who);
  // A lane's fence is for its own copies, and for those of others that it has synchronised with.
  s.unfenced_copies &= ~lanes;
  const AgentId copies = s.unfenced_copies != 0 ? s.flows[static_cast<size_t>(Flow::kCopyGroup)] : kNoAgent;
  Knowledge& known = known_to(s, who);
  const auto join = [&](VectorClock& fenced) {
    each_known(s, lanes, [&](const Knowledge& k) { fenced.join_except(copies, k.seen); });
    fenced.join(warp_index(who), own);
  };
  if (shared) join(known.fenced);
  if (global) join(known.fenced_global);
  ++s.version;
}

void RaceChecker::tensor_fence_before(const Who& who) {
  WarpState& s = state(who);
  Knowledge& known = known_to(s, who);
  each_known(s, lanes_of(who), [&](const Knowledge& k) { known.synced.join(k.ready); });
  ++s.version;
}

void RaceChecker::tensor_fence_after(const Who& who) {
  WarpState& s = state(who);
  Knowledge& known = known_to(s, who);
  each_known(s, lanes_of(who), [&](const Knowledge& k) { known.ready.join(k.synced); });
  ++s.version;
}

// ---- asynchronous work

void RaceChecker::issue(Who& who, const Completion& completion, AsyncOrigin& origin) {
  if (who.cta == nullptr || who.warp < 0) return;
  const uint32_t warp = warp_index(who);
  WarpState& s = warps_[warp];
  if (who.origin != nullptr) {  // goes on for an operation that was issued
    origin = *who.origin;
  } else {
    origin.knowledge = snapshot(s, lanes_of(who));
    origin.issuer = warp;
    origin.own = publish(s, who);
    origin.barrier = s.barrier;
  }
  origin.completion = completion;
  origin.agent = kNoAgent;
  switch (origin.completion.by) {
    case CompletedBy::kNothing:
    case CompletedBy::kMbarrier:
    case CompletedBy::kBulkGroup:
      break;  // view() finds the agent
    case CompletedBy::kCopyGroup:
      origin.agent = flow_agent(warp, Flow::kCopyGroup);
      s.unfenced_copies |= lanes_of(who);
      origin.clock = static_cast<Clock>(origin.completion.number) + 1;
      break;
    case CompletedBy::kWgmmaGroup:
      origin.agent = flow_agent(warp, Flow::kWgmma);
      origin.clock = static_cast<Clock>(origin.completion.number) + 1;
      break;
    case CompletedBy::kCommit:
      origin.agent = flow_agent(warp, Flow::kTensorCore);
      flow_agent(warp, Flow::kTensorIssue);
      origin.clock = s.tensor_clock[0]++;
      break;
    case CompletedBy::kWaitLoad:
      origin.agent = flow_agent(warp, Flow::kLoad);
      origin.clock = s.tensor_clock[1];
      break;
    case CompletedBy::kWaitStore:
      origin.agent = flow_agent(warp, Flow::kStore);
      origin.clock = s.tensor_clock[2];
      break;
  }
  who.origin = &origin;
}

void RaceChecker::issue_also(AsyncOrigin& origin, const Who& who) {
  WarpState& s = state(who);
  auto joined = std::make_shared<Knowledge>(*origin.knowledge);
  joined->learn(*snapshot(s, lanes_of(who)));
  joined->seen.join(warp_index(who), publish(s, who));
  origin.knowledge = std::move(joined);
}

void RaceChecker::waited(const Who& waiter, CompletedBy by, int starter, uint64_t end) {
  const uint32_t warp = warp_index({waiter.cta, starter});
  WarpState& s = state(waiter);
  const Known known(static_cast<Clock>(end) + 1);
  const auto learn = [&](Flow flow) { known_to(s, waiter).seen.join(flow_agent(warp, flow), known); };
  if (by == CompletedBy::kCopyGroup) learn(Flow::kCopyGroup);
  if (by == CompletedBy::kWgmmaGroup) learn(Flow::kWgmma);
  if (by == CompletedBy::kBulkGroup) {
    learn(Flow::kBulkRead);
    learn(Flow::kBulkWrite);
  }
  ++s.version;
}

void RaceChecker::waited_for_reads(const Who& waiter, uint64_t end) {
  WarpState& s = state(waiter);
  known_to(s, waiter).seen.join(flow_agent(warp_index(waiter), Flow::kBulkRead),
                                Known(static_cast<Clock>(end) + 1));
  ++s.version;
}

void RaceChecker::waited_for_transfers(const Who& waiter, CompletedBy by) {
  const uint32_t warp = warp_index(waiter);
  WarpState& s = warps_[warp];
  const bool loads = by == CompletedBy::kWaitLoad;
  const AgentId agent = s.flows[static_cast<size_t>(loads ? Flow::kLoad : Flow::kStore)];
  if (agent == kNoAgent) return;  // none issued yet
  const Known known(++s.tensor_clock[loads ? 1 : 2]);
  s.knowledge.seen.join(agent, known);
  s.knowledge.ready.join(agent, known);
  ++s.version;
}

RaceChecker::View RaceChecker::view(const Who& who, bool space_is_shared) {
  const uint32_t warp = warp_index(who);
  if (who.origin == nullptr) return thread_view(warps_[warp], warp, lanes_of(who));
  AsyncOrigin& origin = *who.origin;
  if (origin.completion.by == CompletedBy::kMbarrier && origin.agent == kNoAgent) {
    // It delivers to the phase in which it is carried out.
    SyncObject& object = objects_[origin.completion.barrier];
    origin.agent = barrier_agent(object, warp, who.unit);
    origin.clock = object.phase;
  }
  View v{origin.knowledge.get(), nullptr, origin.agent, origin.issuer, origin.own, origin.clock, 0, true};
  if (origin.completion.by == CompletedBy::kBulkGroup) {
    v.agent = flow_agent(warp, space_is_shared ? Flow::kBulkRead : Flow::kBulkWrite);
    v.clock = static_cast<Clock>(origin.completion.number) + 1;
  }
  return v;
}

// ---- shared memory

Access RaceChecker::access_of(const Who& who, const View& v, bool writes) const {
  Access now(v.clock, v.agent);
  now.set_insn(who.insn->index);
  now.set_lanes(std::max(who.lane, 0), 7);
  now.set(Access::kWrite, writes);
  now.set(Access::kAsyncProxy, v.is_unit && is_async_proxy(who.origin->completion.by));
  return now;
}

RaceChecker::Excuse RaceChecker::excuse(const View& view, Access earlier, Access now, bool repeats) const {
  if (repeats && earlier.is_write()) return {BentRule::kEqualValues};
  const auto begins_cas = [&](Access access) {
    return !access.is_write() && !access.is_strong() && launch_->program.info[access.insn()].in_cas;
  };
  const auto is_atomic = [](Access access) { return access.is_write() && access.is_strong(); };
  if ((begins_cas(earlier) && is_atomic(now)) || (begins_cas(now) && is_atomic(earlier)))
    return {BentRule::kReadBeforeCas};
  const int byte = std::countr_zero(earlier.common(now));
  const BentClock::Entry* entry = view.bent(earlier, byte, now.lane_of(byte));
  if (entry == nullptr) return {};
  // A thread's own access may be moved before a wait that does not acquire, and so may its cp.async.
  bool passes = now.is_async_proxy() || entry->rule != BentRule::kRelaxedWait;
  // What threads have written is stale behind an arrival of CTA scope: an H200 showed 2 % of it so in shared memory.
  if (entry->rule == BentRule::kArrivalScope && !view.is_unit && earlier.agent() < warps_.size())
    passes = false;
  return {passes ? entry->rule : BentRule::kNone, entry};
}

struct SharedJudge {
  RaceChecker& checker;
  const RaceChecker::View& view;
  const Who& who;
  uint32_t offset;
  bool repeats;                         // kSameWrite
  int lane_shift;                       // as of shared_access()
  const WritesTheSame* same = nullptr;  // else
  std::span<const LaneTouch> touches;

  bool repeats_values() const {
    return repeats || (same != nullptr && *same && std::ranges::all_of(touches, *same));
  }

  bool ordered(Access earlier, Access now, int byte) const {
    return RaceChecker::in_program_order(view, earlier, now, byte) ||
           view.has_seen(earlier, byte, now.lane_of(byte));
  }
  bool ordered_for_all(Access earlier, Access now) const {
    return RaceChecker::all_in_program_order(view, earlier, now) || view.has_seen_all(earlier);
  }
  bool in_order_says_nothing(Access earlier, Access now) const {
    return !now.is_async_proxy() || earlier.is_async_proxy() ||
           view.knowledge->fenced.covers_all(earlier.agent(), earlier.clock()) ||
           (now.is_write() && may_overwrite(earlier));
  }
  bool may_meet(Access earlier, Access now) const {
    return (earlier.is_strong() && now.is_strong()) ||
           RaceChecker::repeats_it(view, earlier, now, repeats_values());
  }
  void race(Access earlier, Access now) {
    RaceChecker::Excuse excuse = checker.excuse(view, earlier, now, repeats_values());
    if (excuse.rule == BentRule::kNone && checker.have_met(view, earlier, now))
      excuse = {BentRule::kWarpCollective};
    checker.report_race(who, offset, earlier, now, lane_shift, excuse);
    if (excuse.rule == BentRule::kRelaxedWait || excuse.rule == BentRule::kWarpCollective)
      in_order(earlier, now);
  }
  /// Does it do without a proxy fence? Loads may still be on their way when their thread arrives, which a copy then
  /// overtakes: not those whose values have been used. PTX does not say so, nor through which proxy st.async goes.
  bool may_overwrite(Access earlier) const {
    const std::string_view unit = who.unit;
    if (unit == "cluster launch control") return false;
    const bool is_loose = unit == "async store" || !is_strict();
    return is_loose && (earlier.is_write() || !checker.is_late(earlier, *who.origin));
  }
  bool is_strict() const { return checker.launch_->options.strictness == Strictness::kStrict; }
  void in_order(Access earlier, Access now) {
    if (!now.is_async_proxy() || earlier.is_async_proxy() || (now.is_write() && may_overwrite(earlier)))
      return;
    const int byte = std::countr_zero(earlier.common(now));
    if (view.knowledge->fenced.covers(earlier.agent(), earlier.clock(), earlier.lane_of(byte) & 31)) return;
    checker.report_missing_fence(who, Space::kSharedCta, offset, earlier, now.is_write());
  }
};

void RaceChecker::shared_access(const Who& who, int rank, uint32_t offset, uint32_t bytes, AccessKind kind,
                                int lane_shift, uint32_t done) {
  if (who.cta == nullptr || who.warp < 0) return;
  SharedShadow& shadow = shared_[static_cast<size_t>(rank)];
  if (shadow.empty()) shadow.resize(static_cast<uint32_t>(launch_->shared_end()));
  const View v = view(who, true);
  if (rank != who.cta->rank()) check_begun(who, v, rank);
  Access now = access_of(who, v, is_write(kind));
  now.set(Access::kStrong, is_strong(kind));
  now.set_lanes(now.lane(), lane_shift);
  SharedJudge judge{*this, v, who, offset, kind == AccessKind::kSameWrite, lane_shift};
  now.set_bytes(0xFFFF);
  record_run(shadow, now, offset, offset + done, offset + bytes, judge);
}

void RaceChecker::shared_lanes(const Who& who, int rank, std::span<const LaneTouch> touches, bool writes,
                               const WritesTheSame& same) {
  if (who.cta == nullptr || who.warp < 0) return;
  SharedShadow& shadow = shared_[static_cast<size_t>(rank)];
  if (shadow.empty()) shadow.resize(static_cast<uint32_t>(launch_->shared_end()));
  const View v = view(who, true);
  if (rank != who.cta->rank()) check_begun(who, v, rank);
  Access now = access_of(who, v, writes);
  Who lanes = who;
  SharedJudge judge{*this, v, lanes, 0, false, 7};
  judge.same = &same;
  now.set_bytes(0xFFFF);
  const auto one_by_one = [&](std::span<const LaneTouch> alike) {
    constexpr size_t kAhead = 4;
    for (size_t i = 0; i < alike.size(); ++i) {
      const LaneTouch& touch = alike[i];
      if (i + kAhead < alike.size()) shadow.prefetch(alike[i + kAhead].address);
      lanes.lane = touch.lane;
      lanes.lanes = touch.lanes;
      judge.touches = {&touch, 1};
      judge.offset = static_cast<uint32_t>(touch.address);
      now.set_lanes(std::max(touch.lane, 0), touch.lane_shift);
      if (touch.lane_shift == 7 && is_one_cell(touch) && shadow.tile(touch.address).is_split())
        record(shadow.cells(touch.address)[touch.address % kTileBytes / ShadowCell::kBytes], now, judge);
      else
        record_run(shadow, now, touch.address, touch.address, touch.address + touch.bytes, judge);
    }
  };
  while (!touches.empty()) {
    ShadowTile& tile = shadow.tile(touches[0].address);
    TouchedCells cells;
    if (tile.is_split())
      cells.touches = touches_in_split_tiles(shadow, touches);
    else
      cells = cells_touched(touches);
    judge.touches = touches.first(cells.touches);
    touches = touches.subspan(cells.touches);
    now.set_lane(cells.lane);
    now.set_lane_shift(cells.lane_shift & 0xF);
    if (cells.cells == 0 || !record_in_tile(tile, {now, cells.cells}, judge)) one_by_one(judge.touches);
  }
}

uint32_t RaceObserver::record_shared_run(const Who& who, int rank, uint32_t offset, uint32_t bytes,
                                         bool writes, int lane_shift) {
  return static_cast<RaceChecker&>(*this).record_shared_run(who, rank, offset, bytes, writes, lane_shift);
}

uint32_t RaceChecker::record_shared_run(const Who& who, int rank, uint32_t offset, uint32_t bytes,
                                        bool writes, int lane_shift) {
  SharedShadow& shadow = shared_[static_cast<size_t>(rank)];
  if (shadow.empty()) return 0;
  const uint32_t warp = warp_index(who);
  const View v = thread_view(warps_[warp], warp, kAllLanes);
  Access now(v.clock, warp);
  now.set_bytes(0xFFFF);
  now.set_insn(who.insn->index);
  now.set_lanes(0, lane_shift);
  now.set(Access::kWrite, writes);
  SharedJudge judge{*this, v, who, offset, false, lane_shift};
  return static_cast<uint32_t>(record_tiles(shadow, now, offset, offset, offset + bytes, judge) - offset);
}

}  // namespace imbrex::vgpu
