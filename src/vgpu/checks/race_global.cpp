// SPDX-License-Identifier: Apache-2.0
// Races on global memory, between the warps and units of all clusters. Inside a cluster the rules are those
// of shared memory. Clusters are ordered by what PTX calls release and acquire patterns of gpu or sys scope:
// a releasing write (or a fence before a relaxed one) that an acquiring read (or a relaxed one before a
// fence) observes. Clusters of different GPUs are ordered by those of sys scope alone, on both sides.
#include <algorithm>
#include <iterator>

#include "vgpu/checks/global_races.h"
#include "vgpu/checks/race.h"
#include "vgpu/program/late_reads.h"

namespace imbrex::vgpu {

namespace {

/// Whether `more` says nothing that `known` does not.
bool covers(const Foreign& known, const Foreign& more) {
  auto ours = known.begin();
  for (const auto& [cluster, theirs] : more) {
    while (ours != known.end() && ours->first < cluster) ++ours;
    if (ours == known.end() || ours->first != cluster) return false;
    if (ours->second != theirs && !ours->second->covers(*theirs)) return false;
  }
  return true;
}

}  // namespace

std::shared_ptr<const Foreign> join(const std::shared_ptr<const Foreign>& a,
                                    const std::shared_ptr<const Foreign>& b) {
  // A thread that polls learns the same again and again; who learns all of another shares it from then on.
  if (b == nullptr || a == b) return a;
  if (a == nullptr || (a->size() <= b->size() && covers(*b, *a))) return b;
  if (covers(*a, *b)) return a;
  auto joined = std::make_shared<Foreign>(*a);
  for (const auto& [cluster, theirs] : *b) {
    std::shared_ptr<const VectorClock>& ours = (*joined)[cluster];
    if (ours == nullptr || ours == theirs) {
      ours = theirs;
      continue;
    }
    auto both = std::make_shared<VectorClock>(*ours);
    both->join(*theirs);
    ours = std::move(both);
  }
  return joined;
}

std::shared_ptr<const Heard> join(const std::shared_ptr<const Heard>& a,
                                  const std::shared_ptr<const Heard>& b) {
  if (b == nullptr || a == b) return a;
  if (a == nullptr) return b;
  Heard joined{std::max(a->all_below, b->all_below), {}};
  std::ranges::set_union(a->others, b->others, std::back_inserter(joined.others));
  size_t first = 0;
  for (; first < joined.others.size() && joined.others[first].first <= joined.all_below; ++first)
    joined.all_below = std::max(joined.all_below, joined.others[first].first + 1);
  joined.others.erase(joined.others.begin(), joined.others.begin() + static_cast<ptrdiff_t>(first));
  const auto is = [&](const Heard& one) {
    return one.all_below == joined.all_below && one.others == joined.others;
  };
  return is(*a) ? a : is(*b) ? b : std::make_shared<const Heard>(std::move(joined));
}

void RaceChecker::fence(const Who& who, uint8_t reach) {
  WarpState& s = state(who);
  const bool of_cta = (reach & kCtaScope) != 0;
  if (s.stashed != nullptr) known_to(s, who).learn(*s.stashed);
  s.stashed.reset();
  if (s.stashed_remote != nullptr) {
    if (of_cta) {
      known_to(s, who).bent.blame(s.stashed_remote->seen, BentRule::kArrivalScope, who.insn->index);
    } else {
      known_to(s, who).learn(*s.stashed_remote);
      s.stashed_remote.reset();
    }
  }
  const Known own = publish(s, who);
  const auto publish_in = [&](VectorClock& published) {
    each_known(s, lanes_of(who), [&](const Knowledge& k) { published.join(k.seen); });
    published.join(warp_index(who), own);
  };
  if (global_ != nullptr && (reach & kGpuScope) != 0) {
    publish_in(s.knowledge.published);
    s.knowledge.foreign = join(s.knowledge.foreign, s.knowledge.unfenced);
  }
  if (global_ != nullptr && (reach & kSystemScope) != 0 && launch_->rank >= 0)
    publish_in(s.knowledge.published_to_system);
  ++s.version;
  s.at_fence = {snapshot(s, lanes_of(who)), own};
  s.fence_insn = who.insn->index;
  if (!of_cta) s.at_cluster_fence = s.at_fence;
}

std::shared_ptr<const Foreign> RaceChecker::foreign_of(VectorClock what, const Knowledge& knowledge) const {
  auto mine = std::make_shared<Foreign>();
  (*mine)[cluster_number_] = std::make_shared<VectorClock>(std::move(what));
  return join(mine, knowledge.foreign);
}

void RaceChecker::strong_access(const Who& who, uint64_t address, AccessKind kind) {
  if (global_ == nullptr || who.origin != nullptr || (who.order & kGpuScope) == 0) return;
  WarpState& s = state(who);
  const bool is_system = (who.order & kSystemScope) != 0;
  if (is_read(kind)) {
    // A relaxed read acquires by a fence behind it, of this thread or of one that it synchronises with.
    const GlobalRaces::Released there = global_->released_at(address, launch_->rank, is_system);
    Knowledge& ours = s.knowledge;
    const auto learn = [&s](std::shared_ptr<const Foreign>& known,
                            const std::shared_ptr<const Foreign>& more) {
      std::shared_ptr<const Foreign> joined = join(known, more);
      if (joined == known) return;
      known = std::move(joined);
      ++s.version;
    };
    if (std::shared_ptr<const Heard> heard = join(ours.heard, there.told); heard != ours.heard) {
      ours.heard = std::move(heard);
      ++s.version;
    }
    if (there.seen != nullptr || there.narrow != nullptr) {
      std::shared_ptr<const Foreign>& to = (who.order & kAcquires) != 0 ? ours.foreign : ours.unfenced;
      if (there.seen != s.came_upon || to != s.known_with_it) {
        learn(to, there.seen);
        s.came_upon = there.seen;
        s.known_with_it = to;
      }
      learn(ours.unfenced, there.unfenced);
      learn(ours.narrow, there.narrow);
    }
  }
  if (!is_write(kind)) return;
  VectorClock what, to_system;
  if ((who.order & kReleases) != 0) {
    each_known(s, lanes_of(who), [&](const Knowledge& k) { what.join(k.seen); });
    what.join(warp_index(who), publish(s, who));
    if (is_system) to_system = what;
  } else {
    what = s.knowledge.published;
    if (is_system) to_system = s.knowledge.published_to_system;
  }
  if (kind == AccessKind::kStrongWrite && launch_->program.habits.tells_by_flags()) {
    VectorClock before;
    each_known(s, lanes_of(who), [&](const Knowledge& k) { before.join(k.seen); });
    before.join(warp_index(who), publish(s, who));
    global_->tell_at(address, cluster_number_, std::move(before), s.knowledge.heard);
  }
  if (what.empty()) return;
  global_->release_at(
      address, launch_->rank, foreign_of(std::move(what), s.knowledge),
      launch_->rank < 0 || to_system.empty() ? nullptr : foreign_of(std::move(to_system), s.knowledge),
      s.knowledge.unfenced);
}

bool RaceChecker::is_told_of(const Knowledge& knowledge, Access load, Access write, int lane) {
  if (!write.is_write() || load.is_write() || load.is_strong() || load.is_async_proxy()) return false;
  if (knowledge.heard == nullptr || !global_->is_told(*knowledge.heard, cluster_of(load.agent()),
                                                      local_agent(load.agent()), load.clock(), lane))
    return false;
  const auto [at, is_new] = used_before_flags_.try_emplace(load.insn(), false);
  if (is_new) at->second = used_before_flag(launch_->program, load.insn());
  return at->second;
}

void RaceChecker::finished() {
  if (global_ == nullptr || launch_->rank < 0) return;
  std::shared_ptr<const Foreign> foreign;
  for (const WarpState& warp : warps_)
    each_known(warp, kAllLanes, [&](const Knowledge& k) { foreign = join(foreign, k.foreign); });
  global_->cluster_finished(launch_->rank, foreign);
}

bool RaceChecker::is_known(const Foreign* foreign, Access earlier, int lane) const {
  if (foreign == nullptr) return false;
  const uint32_t cluster = cluster_of(earlier.agent());
  const auto covers = [&](const VectorClock& known) {
    const AgentId agent = local_agent(earlier.agent());
    return lane < 0 ? known.covers_all(agent, earlier.clock()) : known.covers(agent, earlier.clock(), lane);
  };
  if (const auto at = foreign->find(cluster); at != foreign->end() && covers(*at->second)) return true;
  return launch_->rank >= 0 && global_->is_known_whole(*foreign, cluster);
}

struct GlobalJudge {
  RaceChecker& checker;
  const RaceChecker::View& view;
  const Who& who;
  uint64_t address;
  bool reads;
  bool repeats;                         // kSameWrite
  const WritesTheSame* same = nullptr;  // else
  const LaneTouch* touch = nullptr;

  bool repeats_values() const { return repeats || (same != nullptr && *same && (*same)(*touch)); }

  bool is_own(Access earlier) const { return cluster_of(earlier.agent()) == checker.cluster_number_; }
  bool ordered(Access earlier, Access now, int byte) const {
    if (is_own(earlier)) {
      Access here = earlier;
      here.set_agent(local_agent(earlier.agent()));
      return RaceChecker::in_program_order(view, here, now, byte) ||
             view.has_seen(here, byte, now.lane_of(byte));
    }
    return checker.is_known(view.knowledge->foreign.get(), earlier, earlier.lane_of(byte) & 31);
  }
  bool ordered_for_all(Access earlier, Access now) const {
    // The same lanes of the same warp, as most often.
    if (earlier.agent() == now.agent() && !view.is_unit && earlier.has_lanes_of(now)) return true;
    if (is_own(earlier)) {
      Access here = earlier;
      here.set_agent(local_agent(earlier.agent()));
      return RaceChecker::all_in_program_order(view, here, now) || view.has_seen_all(here);
    }
    return checker.is_known(view.knowledge->foreign.get(), earlier, -1);
  }
  bool in_order_says_nothing(Access earlier, Access now) const {
    return !now.is_async_proxy() || !reads || !earlier.is_write() || !is_own(earlier) ||
           earlier.is_async_proxy() ||
           view.knowledge->fenced_global.covers_all(local_agent(earlier.agent()), earlier.clock());
  }
  bool may_meet(Access earlier, Access now) const {
    const bool is_of_launch = checker.is_of_launch(cluster_of(earlier.agent()));
    if (is_of_launch && RaceChecker::repeats_it(view, earlier, now, repeats_values())) return true;
    if (!earlier.is_strong() || !now.is_strong()) return false;
    if (!is_of_launch)
      return (earlier.is(Access::kSystem) && now.is(Access::kSystem)) ||
             checker.is_of_rank(cluster_of(earlier.agent()));
    return is_own(earlier) || (!earlier.is(Access::kSpecial) && !now.is(Access::kSpecial));
  }
  /// All lanes of a warp start the same bulk store in CUTLASS's epilogues; that two warps of a CTA do so is nobody's habit.
  bool is_stored_twice(Access earlier, Access now) const {
    if (!now.is_async_proxy() || !earlier.is_async_proxy() || earlier.agent() == kNoAgent) return false;
    const uint32_t other = checker.agents_[earlier.agent()].warp;
    return other != view.warp && other / checker.warps_per_cta_ == view.warp / checker.warps_per_cta_;
  }
  void race(Access earlier, Access now) {
    Access here = earlier;
    here.set_agent(is_own(earlier) ? local_agent(earlier.agent()) : kNoAgent);
    const bool is_of_launch = checker.is_of_launch(cluster_of(earlier.agent()));
    const int lane = earlier.lane_of(std::countr_zero(earlier.bytes())) & 31;
    RaceChecker::Excuse excuse;
    if (is_of_launch)
      excuse = checker.excuse(view, here, now, repeats_values() && !is_stored_twice(here, now));
    if (excuse.rule == BentRule::kNone && excuse.wait == nullptr && !is_own(earlier) &&
        (checker.is_known(view.knowledge->unfenced.get(), earlier, lane) ||
         (is_of_launch && !view.is_unit && checker.is_told_of(*view.knowledge, earlier, now, lane))))
      excuse.rule = BentRule::kRelaxedWait;
    checker.report_global_race(
        who, address, earlier, now, excuse,
        !is_of_launch && checker.is_known(view.knowledge->narrow.get(), earlier, lane));
  }
  void in_order(Access earlier, Access now) {
    if (!is_own(earlier) || !now.is_async_proxy() || !reads || !earlier.is_write() ||
        earlier.is_async_proxy())
      return;
    const int byte = std::countr_zero(earlier.common(now));
    if (view.knowledge->fenced_global.covers(local_agent(earlier.agent()), earlier.clock(),
                                             earlier.lane_of(byte) & 31))
      return;
    Access here = earlier;
    here.set_agent(local_agent(earlier.agent()));
    checker.report_missing_fence(who, Space::kGlobal, address, here, false);
  }
};

void RaceChecker::global_access(const Who& who, uint64_t address, uint32_t bytes, AccessKind kind,
                                int lane_shift, uint16_t pattern, uint32_t done) {
  // Constants and parameters cannot be written.
  if (global_ == nullptr || who.cta == nullptr || who.warp < 0 || address < kHeapBase) return;
  if (kind == AccessKind::kRead && global_->is_read_by_many(address, address + bytes)) return;
  const View v = view(who, false);
  if (v.agent >= kLocalAgents) return;
  Access now = access_of(who, v, is_write(kind));
  now.set(Access::kStrong, is_strong(kind));
  now.set(Access::kSpecial, now.is_strong() && (who.order & kGpuScope) == 0 && who.origin == nullptr);
  now.set(Access::kSystem, now.is_strong() && (who.order & kSystemScope) != 0 && who.origin == nullptr);
  now.set_lanes(now.lane(), lane_shift);
  now.set_bytes(pattern);
  now.set_agent(everywhere(now));
  GlobalJudge judge{*this, v, who, address, is_read(kind), kind == AccessKind::kSameWrite};
  record_pages(now, address, bytes, done, kind, judge);
}

AgentId RaceChecker::everywhere(Access now) {
  Agent& agent = agents_[now.agent()];
  const AgentId number = cluster_number_ << kLocalAgentBits | now.agent();
  if (!agent.is_named && now.agent() >= warps_.size()) {
    agent.is_named = true;
    Who named = who_did(now);
    named.lane = -1;
    global_->name_agent(number, FindingLog::actor(named));
  }
  return number;
}

void RaceChecker::record_pages(Access now, uint64_t address, uint32_t bytes, uint32_t done, AccessKind kind,
                               GlobalJudge& judge) {
  const uint64_t end = address + bytes;
  for (uint64_t page = address + done; page < end;) {
    const uint64_t page_end = std::min(end, (page / GlobalRaces::kPageBytes + 1) * GlobalRaces::kPageBytes);
    const GlobalRaces::PageLock lock(*global_, page);
    if (now.is_write()) global_->note_reads(page, page_end, true);
    record_run(*global_, now, address, page, page_end, judge);
    if (kind == AccessKind::kRead) global_->note_reads(page, page_end, false);
    page = page_end;
  }
}

void RaceChecker::global_lanes(const Who& who, std::span<const LaneTouch> touches, bool writes,
                               const WritesTheSame& same) {
  if (global_ == nullptr || who.cta == nullptr || who.warp < 0) return;
  const View v = view(who, false);
  if (v.agent >= kLocalAgents) return;
  const AccessKind kind = writes ? AccessKind::kWrite : AccessKind::kRead;
  Access now = access_of(who, v, writes);
  now.set_agent(everywhere(now));
  Who lanes = who;
  GlobalJudge judge{*this, v, lanes, 0, !writes, false};
  judge.same = &same;
  for (const LaneTouch& touch : touches) {
    if (touch.address < kHeapBase) continue;
    if (!writes && global_->is_read_by_many(touch.address, touch.address + touch.bytes)) continue;
    lanes.lane = touch.lane;
    lanes.lanes = touch.lanes;
    judge.touch = &touch;
    judge.address = touch.address;
    now.set_lanes(std::max(touch.lane, 0), touch.lane_shift);
    now.set_bytes(0xFFFF);
    record_pages(now, touch.address, touch.bytes, 0, kind, judge);
  }
}

uint32_t RaceObserver::record_global_run(const Who& who, uint64_t address, uint32_t bytes, bool writes,
                                         int lane_shift, uint16_t pattern) {
  return static_cast<RaceChecker&>(*this).record_global_run(who, address, bytes, writes, lane_shift, pattern);
}

uint32_t RaceChecker::record_global_run(const Who& who, uint64_t address, uint32_t bytes, bool writes,
                                        int lane_shift, uint16_t pattern) {
  const uint64_t end = address + bytes;
  if (global_ == nullptr || address < kHeapBase) return bytes;
  if (!writes && global_->may_be_read_by_many(address, end) && global_->is_read_by_many(address, end))
    return bytes;
  const uint32_t warp = warp_index(who);
  if (address % kBlockBytes != 0 || warp >= kLocalAgents) return 0;
  WarpState& state = warps_[warp];
  state.dirty = kAllLanes;
  Access now(state.clock, cluster_number_ << kLocalAgentBits | warp);
  now.set_bytes(pattern);
  now.set_insn(who.insn->index);
  now.set_lanes(0, lane_shift);
  now.set(Access::kWrite, writes);
  uint64_t recorded = address;
  for (uint64_t page = address; recorded == page && page < end;) {
    const uint64_t page_end = std::min(end, (page / GlobalRaces::kPageBytes + 1) * GlobalRaces::kPageBytes);
    const GlobalRaces::PageLock lock(*global_, page);
    recorded = record_own_blocks(*global_, now, address, page, page_end);
    if (page_end - recorded >= kBlockBytes) {
      const View v = thread_view(state, warp, kAllLanes);
      GlobalJudge judge{*this, v, who, address, !writes, false};
      const uint64_t others = recorded;
      if (writes) global_->note_write(others, page_end);
      const BlocksRecorded blocks = record_whole_blocks(*global_, now, address, others, page_end, judge);
      recorded = blocks.end;
      if (!writes && recorded > others) global_->note_blocks_read(others, recorded, blocks.some_are_full);
    }
    page = page_end;
  }
  return static_cast<uint32_t>(recorded - address);
}

}  // namespace imbrex::vgpu
