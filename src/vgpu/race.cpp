// SPDX-License-Identifier: Apache-2.0
#include "vgpu/race.h"

#include <string_view>

#include "vgpu/checks.h"

namespace imbrex::vgpu {

namespace {

/// cp.async goes through the generic proxy, as threads do.
bool is_async_proxy(CompletedBy by) { return by != CompletedBy::kCopyGroup; }

/// An mbarrier of another CTA.
bool is_remote(SyncKey key, const Who& who) {
  return static_cast<SyncKind>(key >> 56) == SyncKind::kMbarrier &&
         static_cast<int>(key >> 48 & 0xFF) != who.cta->rank();
}

}  // namespace

RaceChecker::RaceChecker(Cluster& cluster)
    : cluster_(&cluster),
      global_(cluster.launch().global_races),
      cluster_number_(static_cast<uint32_t>(cluster.number())),
      warps_per_cta_(static_cast<size_t>(cluster.launch().warps())) {
  const size_t ctas = cluster.ctas().size();
  warps_.resize(ctas * warps_per_cta_);
  for (uint32_t w = 0; w < warps_.size(); ++w) {
    warps_[w].flows.fill(kNoAgent);
    add_agent("", w, -1);
  }
  remote_uses_.resize(ctas);
  shared_.resize(ctas);
  tensor_.resize(ctas);
}

// ---- agents
// ------------------------------------------------------------------------------------------------

uint32_t RaceChecker::warp_index(const Who& who) const {
  return static_cast<uint32_t>(static_cast<size_t>(who.cta->rank()) * warps_per_cta_ +
                               static_cast<size_t>(who.warp));
}

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

Mask RaceChecker::lanes_of(const Who& who) {
  return who.lanes != 0 ? who.lanes : who.lane < 0 ? kAllLanes : lane_bit(who.lane);
}

Known RaceChecker::publish(WarpState& warp, Mask lanes) {
  if ((warp.dirty & ~lanes) != 0) return {warp.clock, warp.dirty & lanes};
  if (warp.dirty != 0) ++warp.clock;
  warp.dirty = 0;
  return {warp.clock, 0};
}

const std::shared_ptr<const Knowledge>& RaceChecker::snapshot(WarpState& warp) {
  if (warp.snapshot_version != warp.version) {
    warp.snapshot = std::make_shared<const Knowledge>(warp.knowledge);
    warp.snapshot_version = warp.version;
  }
  return warp.snapshot;
}

// ---- synchronisation
// ---------------------------------------------------------------------------------------

void RaceChecker::release(const Who& who, SyncKey key) {
  if (who.cta == nullptr || who.warp < 0) return;
  SyncObject& object = objects_[key];
  if (who.origin != nullptr) {
    const AsyncOrigin& origin = *who.origin;
    // A delivery of bytes says nothing about its thread; complete_phase() knows whose work it was.
    if (origin.completion.by == CompletedBy::kMbarrier) return;
    object.pending.learn(*origin.knowledge);
    object.pending.seen.join(origin.issuer, origin.own);
    if (origin.completion.by == CompletedBy::kCopyGroup)
      object.pending.seen.join(origin.agent, {static_cast<Clock>(origin.completion.number) + 1, 0});
    if (origin.completion.by == CompletedBy::kCommit) {
      object.pending.synced.join(origin.knowledge->ready);
      object.pending.seen.join(origin.agent, {origin.clock, 0});
      object.pending.synced.join(origin.agent, {origin.clock, 0});
    }
    object.last_agent = kNoAgent;
    return;
  }
  const uint32_t warp = warp_index(who);
  WarpState& s = warps_[warp];
  const bool remote = is_remote(key, who);
  const bool releases = (who.order & kReleases) != 0 && !(remote && (who.order & kCtaScope) != 0);
  if (!releases || remote) {
    // tcgen05.fence::before_thread_sync does without a release, and so does asynchronous work that has been
    // waited for: what a product has read may be overwritten.
    object.pending.synced.join(s.knowledge.synced);
    object.pending.seen.join_from(static_cast<AgentId>(warps_.size()), s.knowledge.seen);
  }
  if (!releases) {
    object.last_agent = kNoAgent;
    if (s.at_fence == nullptr) return;
    object.pending.learn(*s.at_fence);
    object.pending.seen.join(warp, s.own_at_fence);
    return;
  }
  // Told apart, for those who wait at the scope of their CTA.
  Knowledge& pending = remote ? object.remote_pending : object.pending;
  pending.seen.join(warp, publish(s, lanes_of(who)));
  if (const AgentId issue = s.flows[static_cast<size_t>(Flow::kTensorIssue)]; issue != kNoAgent)
    pending.seen.join(issue, {s.tensor_clock[0], 0});
  if (object.last_agent == warp && object.last_version == s.version) return;
  pending.learn(s.knowledge);
  object.last_agent = warp;
  object.last_version = s.version;
}

void RaceChecker::learn(WarpState& warp, const Who& who, const Knowledge& what) {
  ++warp.version;
  if ((who.order & kAcquires) != 0) {
    warp.knowledge.learn(what);
    return;
  }
  warp.knowledge.synced.join(what.synced);
  if (warp.stashed == nullptr) warp.stashed = std::make_shared<Knowledge>();
  warp.stashed->learn(what);
}

void RaceChecker::acquire(const Who& who, SyncKey key) {
  if (who.cta == nullptr || who.warp < 0) return;
  const auto at = objects_.find(key);
  if (at == objects_.end()) return;
  learn(state(who), who, at->second.pending);
}

void RaceChecker::complete_phase(SyncKey key) {
  SyncObject& object = objects_[key];
  object.done.learn(object.pending);
  object.remote_done.learn(object.remote_pending);
  ++object.phase;
  for (const AgentId agent : object.agents) object.done.seen.join(agent, {object.phase, 0});
}

void RaceChecker::acquire_phases(const Who& who, SyncKey key) {
  const auto at = objects_.find(key);
  if (at == objects_.end()) return;
  learn(state(who), who, at->second.done);
  if ((who.order & kCtaScope) == 0) learn(state(who), who, at->second.remote_done);
}

void RaceChecker::remote_use(const Who& who, const Cta& owner) {
  const RemoteUse use{warp_index(who), state(who).clock, who.lane, who.insn->index};
  for (RemoteUse& earlier : remote_uses_[static_cast<size_t>(owner.rank())])
    if (earlier.warp == use.warp && earlier.insn == use.insn) {
      earlier = use;
      return;
    }
  remote_uses_[static_cast<size_t>(owner.rank())].push_back(use);
}

void RaceChecker::cta_exit(const Cta& cta) {
  const size_t first = static_cast<size_t>(cta.rank()) * warps_per_cta_;
  for (const RemoteUse& use : remote_uses_[static_cast<size_t>(cta.rank())]) {
    bool is_known = false;
    for (size_t w = first; w < first + warps_per_cta_; ++w)
      is_known |= warps_[w].knowledge.seen.covers(use.warp, use.clock, use.lane);
    if (!is_known) report_unordered_exit(cta, use);
  }
}

void RaceChecker::warp_sync(const Who& who) {
  WarpState& s = state(who);
  const Mask lanes = lanes_of(who);
  if ((s.dirty & ~lanes) == 0) {
    if (s.dirty != 0) ++s.clock;
    s.dirty = 0;
    s.synced_before = s.clock;
  } else {
    s.knowledge.seen.join(warp_index(who), {s.clock, s.dirty & lanes});
    ++s.version;
  }
}

void RaceChecker::proxy_fence(const Who& who, bool shared, bool global) {
  WarpState& s = state(who);
  const Known own = publish(s, lanes_of(who));
  const auto join = [&](VectorClock& fenced) {
    fenced.join(s.knowledge.seen);
    fenced.join(warp_index(who), own);
  };
  if (shared) join(s.knowledge.fenced);
  if (global) join(s.knowledge.fenced_global);
  ++s.version;
}

void RaceChecker::tensor_fence_before(const Who& who) {
  WarpState& s = state(who);
  s.knowledge.synced.join(s.knowledge.ready);
  ++s.version;
}

void RaceChecker::tensor_fence_after(const Who& who) {
  WarpState& s = state(who);
  s.knowledge.ready.join(s.knowledge.synced);
  ++s.version;
}

// ---- asynchronous work
// -------------------------------------------------------------------------------------

void RaceChecker::issue(AsyncOp& op) {
  AsyncOrigin& origin = op.origin;
  if (memo_origin_ == &origin) memo_origin_ = nullptr;  // of an operation that was there before
  if (op.who.cta == nullptr || op.who.warp < 0) return;
  const uint32_t warp = warp_index(op.who);
  WarpState& s = warps_[warp];
  if (op.who.origin != nullptr) {  // goes on for an operation that was issued
    origin = *op.who.origin;
  } else {
    origin.knowledge = snapshot(s);
    origin.issuer = warp;
    origin.own = publish(s, lanes_of(op.who));
  }
  origin.completion = op.completion();
  origin.agent = kNoAgent;
  switch (origin.completion.by) {
    case CompletedBy::kNothing:
    case CompletedBy::kMbarrier:
    case CompletedBy::kBulkGroup:
      break;  // view() finds the agent
    case CompletedBy::kCopyGroup:
      origin.agent = flow_agent(warp, Flow::kCopyGroup);
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
  op.who.origin = &origin;
}

void RaceChecker::issue_also(AsyncOp& op, const Who& who) {
  WarpState& s = state(who);
  auto joined = std::make_shared<Knowledge>(*op.origin.knowledge);
  joined->learn(s.knowledge);
  joined->seen.join(warp_index(who), publish(s, lanes_of(who)));
  op.origin.knowledge = std::move(joined);
}

void RaceChecker::waited(const Who& waiter, CompletedBy by, int starter, uint64_t end) {
  const uint32_t warp = warp_index({waiter.cta, starter});
  WarpState& s = state(waiter);
  const Known known{static_cast<Clock>(end) + 1, 0};
  const auto learn = [&](Flow flow) { s.knowledge.seen.join(flow_agent(warp, flow), known); };
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
  s.knowledge.seen.join(flow_agent(warp_index(waiter), Flow::kBulkRead), {static_cast<Clock>(end) + 1, 0});
  ++s.version;
}

void RaceChecker::waited_for_transfers(const Who& waiter, CompletedBy by) {
  const uint32_t warp = warp_index(waiter);
  WarpState& s = warps_[warp];
  const bool loads = by == CompletedBy::kWaitLoad;
  const AgentId agent = s.flows[static_cast<size_t>(loads ? Flow::kLoad : Flow::kStore)];
  if (agent == kNoAgent) return;  // none issued yet
  const Known known{++s.tensor_clock[loads ? 1 : 2], 0};
  s.knowledge.seen.join(agent, known);
  s.knowledge.ready.join(agent, known);
  ++s.version;
}

RaceChecker::View RaceChecker::view(const Who& who, bool space_is_shared) {
  const uint32_t warp = warp_index(who);
  if (who.origin == nullptr) {
    WarpState& s = warps_[warp];
    s.dirty |= lanes_of(who);
    return {&s.knowledge, warp, warp, {}, s.clock, s.synced_before, false};
  }
  AsyncOrigin& origin = *who.origin;
  if (origin.completion.by == CompletedBy::kMbarrier && origin.agent == kNoAgent) {
    // It delivers to the phase in which it is carried out.
    SyncObject& object = objects_[origin.completion.barrier];
    origin.agent = barrier_agent(object, warp, who.unit);
    origin.clock = object.phase;
  }
  View v{origin.knowledge.get(), origin.agent, origin.issuer, origin.own, origin.clock, 0, true};
  if (origin.completion.by == CompletedBy::kBulkGroup) {
    v.agent = flow_agent(warp, space_is_shared ? Flow::kBulkRead : Flow::kBulkWrite);
    v.clock = static_cast<Clock>(origin.completion.number) + 1;
  }
  return v;
}

// ---- shared memory
// -----------------------------------------------------------------------------------------

Access RaceChecker::access_of(const Who& who, const View& v, bool writes) const {
  Access now;
  now.clock = v.clock;
  now.insn = who.insn->index;
  now.agent = v.agent;
  now.lane = static_cast<int8_t>(std::max(who.lane, 0));
  now.write = writes;
  now.async_proxy = v.is_unit && is_async_proxy(who.origin->completion.by);
  return now;
}

bool RaceChecker::in_program_order(const View& view, const Access& earlier, const Access& now, int byte) {
  if (earlier.agent != view.agent) return false;
  if (view.is_unit) return earlier.clock == now.clock;
  // Values that the lanes of one instruction write to the same place are compared when they are stored.
  return earlier.clock < view.synced_before || earlier.lane_of(byte) == now.lane_of(byte) ||
         (earlier.insn == now.insn && earlier.clock == now.clock);
}

void RaceChecker::begin_memo(const Who& who, const View& v, AccessKind kind) {
  const uint64_t memo_kind = uint64_t{v.clock} << 32 | uint64_t{v.agent} << 8 | static_cast<uint64_t>(kind);
  if (who.origin == nullptr || memo_origin_ != who.origin || memo_kind_ != memo_kind) memo_.reset();
  memo_origin_ = who.origin;
  memo_kind_ = memo_kind;
}

struct SharedJudge {
  RaceChecker& checker;
  const RaceChecker::View& view;
  const Who& who;
  const Place& place;
  bool reads;
  bool repeats;  // kSameWrite
  bool silent = true;

  bool ordered(const Access& earlier, const Access& now, int byte) const {
    return RaceChecker::in_program_order(view, earlier, now, byte) ||
           view.knows(view.knowledge->seen, earlier, byte);
  }
  bool may_meet(const Access& earlier, const Access& now) const {
    return (earlier.strong && now.strong) || (repeats && earlier.write && earlier.insn == now.insn);
  }
  void race(const Access& earlier, const Access& now) {
    silent = false;
    checker.report_race(who, place, earlier, now.write);
  }
  void in_order(const Access& earlier, const Access& now) {
    if (!now.async_proxy || earlier.async_proxy) return;
    // Reads of what threads wrote; and responses of cluster launch control over what threads read.
    if (!(reads && earlier.write) && std::string_view(who.unit) != "cluster launch control") return;
    const int byte = std::countr_zero(static_cast<uint16_t>(earlier.bytes & now.bytes));
    if (view.knowledge->fenced.covers(earlier.agent, earlier.clock, earlier.lane_of(byte) & 31)) return;
    silent = false;
    checker.report_missing_fence(who, place, earlier, now.write);
  }
};

void RaceChecker::access(const Who& who, const Place& place, uint32_t bytes, AccessKind kind,
                         int lane_shift) {
  if (who.cta == nullptr || who.warp < 0) return;
  std::vector<ShadowCell>& cells = shared_[static_cast<size_t>(place.cta->rank())];
  constexpr uint32_t kCell = ShadowCell::kBytes;
  if (cells.empty()) cells.resize((place.cta->shared().end() + kCell - 1) / kCell);
  const View v = view(who, true);
  Access now = access_of(who, v, is_write(kind));
  now.strong = is_strong(kind);
  now.lane_shift = static_cast<uint8_t>(lane_shift);
  begin_memo(who, v, kind);
  SharedJudge judge{*this, v, who, place, is_read(kind), kind == AccessKind::kSameWrite};
  record_cells(v.is_unit, now, place.address, place.address, place.address + bytes, judge,
               [&](uint64_t at) -> ShadowCell& { return cells[at / kCell]; });
}

}  // namespace imbrex::vgpu
