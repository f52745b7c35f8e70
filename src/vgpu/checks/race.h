// SPDX-License-Identifier: Apache-2.0
// Races by happens-before: on shared memory and tensor memory between the warps of a cluster, their lanes and
// the asynchronous units.
//
// Releasing operations (arriving at a barrier, an mbarrier, the cluster barrier; any atomic or other strong
// access) leave what the warp knows at the object, acquiring ones (waits, strong accesses) take it from
// there. Asynchronous work starts from what its thread knew when it issued it, and is known to be done by
// those who waited for it the way it completes: the phase of its mbarrier, its group, a tcgen05.commit, a
// tcgen05.wait. Two accesses of which one writes must be ordered. Other clocks tell what a proxy fence or the
// tcgen05 fences have passed on the way.
//
// What a lane has waited for it alone knows until bar.warp.sync or a barrier of the CTA; to have converged
// orders nothing. Where this model is coarser than PTX it errs on the side of silence: strong accesses count
// as both acquire and release, and of the whole warp; the tensor core's own queue counts as ordered but for
// results read as operands.
#pragma once

#include <array>
#include <span>
#include <unordered_map>

#include "vgpu/checks/findings.h"
#include "vgpu/checks/race_observer.h"
#include "vgpu/checks/shared_shadow.h"
#include "vgpu/memory/tensor_memory.h"
#include "vgpu/program/launch.h"

namespace imbrex::vgpu {

class GlobalRaces;

/// One cluster's.
class RaceChecker final : public RaceObserver {
 public:
  RaceChecker(const LaunchContext& launch, int64_t number, std::vector<const CtaIdentity*> ctas,
              FindingLog& log);

  // ---- synchronisation

  void release(const Who& who, SyncKey key) override;
  void acquire(const Who& who, SyncKey key) override;
  void complete_phase(SyncKey key) override;
  void acquire_phases(const Who& who, SyncKey key) override;
  void release_word(const Who& who, SyncKey key) override;
  void acquire_word(const Who& who, SyncKey key) override;
  void fence(const Who& who, uint8_t reach) override;
  void strong_access(const Who& who, uint64_t address, AccessKind kind) override;
  void warp_sync(const Who& who) override;
  void warp_met(const Who& who) override;
  void proxy_fence(const Who& who, bool shared, bool global) override;
  void tensor_fence_before(const Who& who) override;
  void tensor_fence_after(const Who& who) override;

  // ---- the life of a CTA

  void remote_use(const Who& who, const CtaIdentity& owner, SyncKey object) override;
  bool may_count_before(const Who& who, SyncKey object) const override;
  void cta_exit(const CtaIdentity& cta) override;
  void finished() override;

  // ---- asynchronous work

  void issue(Who& who, const Completion& completion, AsyncOrigin& origin) override;
  void issue_also(AsyncOrigin& origin, const Who& who) override;
  void waited(const Who& waiter, CompletedBy by, int starter, uint64_t end) override;
  void waited_for_reads(const Who& waiter, uint64_t end) override;
  void waited_for_transfers(const Who& waiter, CompletedBy by) override;

  // ---- accesses

  void shared_access(const Who& who, int rank, uint32_t offset, uint32_t bytes, AccessKind kind,
                     int lane_shift, uint32_t done) override;
  void global_access(const Who& who, uint64_t address, uint32_t bytes, AccessKind kind, int lane_shift,
                     uint16_t pattern, uint32_t done) override;
  void shared_lanes(const Who& who, int rank, std::span<const LaneTouch> touches, bool writes,
                    const WritesTheSame& same) override;
  void global_lanes(const Who& who, std::span<const LaneTouch> touches, bool writes,
                    const WritesTheSame& same) override;
  uint32_t record_shared_run(const Who& who, int rank, uint32_t offset, uint32_t bytes, bool writes,
                             int lane_shift);
  uint32_t record_global_run(const Who& who, uint64_t address, uint32_t bytes, bool writes, int lane_shift,
                             uint16_t pattern);
  void tensor_access(const Who& who, const CtaIdentity& owner, uint32_t lane, uint32_t lanes, uint32_t column,
                     uint32_t columns, TensorAccess kind) override;
  void tensor_release(const Who& who, const CtaIdentity& owner, uint32_t column, uint32_t columns) override;

 private:
  friend struct SharedJudge;
  friend struct GlobalJudge;
  friend struct TensorJudge;

  enum class Flow : uint8_t {
    kCopyGroup,
    kBulkRead,
    kBulkWrite,
    kWgmma,
    kTensorCore,
    kTensorIssue,
    kLoad,
    kStore
  };
  static constexpr size_t kFlows = 8;
  struct Agent {
    const char* unit = "";
    uint32_t warp = 0;      // of the cluster
    int flow = -1;          // a Flow, or -1: the warp itself or a completion by mbarrier
    bool is_named = false;  // known to GlobalRaces
  };
  /// What some lanes know besides.
  struct Part {
    Mask lanes;
    Knowledge more;
  };
  /// More groups of lanes that wait for themselves than these count as the warp.
  static constexpr size_t kParts = 4;
  struct WarpState {
    Knowledge knowledge;  // of every lane
    /// What a strong read came upon last, and what was known with it: one that polls learns nothing more.
    std::shared_ptr<const Foreign> came_upon, known_with_it;
    std::vector<Part> parts;
    uint64_t version = 1;  // changes with knowledge and parts
    Clock clock = 1;
    Clock synced_before = 0;  // bar.warp.sync has ordered the lanes' accesses before this clock
    Clock met_before = 0;     // a collective of all lanes stands behind the accesses before this clock
    Mask dirty = 0;           // lanes that have accessed memory at `clock`
    struct AtFence {
      std::shared_ptr<const Knowledge> knowledge;  // null: no fence yet
      Known own;
    };
    AtFence at_fence, at_cluster_fence;  // what relaxed arrivals release: in the own CTA, in others
    uint32_t fence_insn = 0;             // of at_fence
    /// What relaxed waits have seen, to be learned at a fence: of the own CTA's threads and all units, of others.
    std::shared_ptr<Knowledge> stashed, stashed_remote;
    std::shared_ptr<const Knowledge> snapshot;
    uint64_t snapshot_version = 0;
    Mask snapshot_lanes = 0;   // 0: no part is in it
    Mask unfenced_copies = 0;  // lanes whose cp.async copies no other lane has waited for or fenced
    std::array<AgentId, kFlows> flows;
    /// Next number of a tcgen05 operation: of the core, loads, stores.
    std::array<Clock, 3> tensor_clock{1, 1, 1};
    PassedBarrier barrier;
  };
  struct SyncObject {
    Knowledge pending;                      // released; of an mbarrier: since ever
    Knowledge done;                         // mbarriers: of completed phases
    Knowledge remote_pending, remote_done;  // mbarriers: the same, by threads of other CTAs
    Clock phase = 1, awaited = 1;           // the latter: that a thread of the object's own CTA has seen
    std::vector<AgentId> agents;            // whose work the barrier completes
    AgentId last_agent = kNoAgent;
    uint64_t last_version = 0;
    Mask last_lanes = 0;
    std::vector<uint32_t> arrived_at;  // barriers of the CTA: of each warp, the instruction
  };
  struct RemoteUse {
    AgentId warp;
    Clock clock;
    int lane;
    uint32_t insn;
    SyncKey object;
    Clock phase;  // in which it arrived
  };
  /// From where accesses are judged.
  struct View {
    const Knowledge* knowledge;
    const std::vector<Part>* parts;  // null: units
    AgentId agent;
    AgentId warp;
    Known own;  // units: of the warp
    Clock clock;
    Clock synced_before;
    bool is_unit;
    /// Has the lane (of a thread's access) seen the earlier access?
    bool has_seen(Access earlier, int byte, int lane) const {
      const int its_lane = earlier.lane_of(byte) & 31;
      if (is_unit && earlier.agent() == warp && own.covers(earlier.clock(), its_lane)) return true;
      if (knowledge->seen.covers(earlier.agent(), earlier.clock(), its_lane)) return true;
      if (parts != nullptr)
        for (const Part& part : *parts)
          if ((part.lanes >> (lane & 31) & 1) != 0 &&
              part.more.seen.covers(earlier.agent(), earlier.clock(), its_lane))
            return true;
      return false;
    }
    /// Has every lane seen all of it?
    bool has_seen_all(Access earlier) const {
      if (is_unit && earlier.agent() == warp && own.covers_all(earlier.clock())) return true;
      return knowledge->seen.covers_all(earlier.agent(), earlier.clock());
    }
    /// By which bent rule it would have; null: by none.
    const BentClock::Entry* bent(Access earlier, int byte, int lane) const {
      const int its_lane = earlier.lane_of(byte) & 31;
      const BentClock::Entry* found = knowledge->bent.find(earlier.agent(), earlier.clock(), its_lane);
      if (parts != nullptr)
        for (const Part& part : *parts)
          if (found == nullptr && (part.lanes >> (lane & 31) & 1) != 0)
            found = part.more.bent.find(earlier.agent(), earlier.clock(), its_lane);
      return found;
    }
  };

  uint32_t warp_index(const Who& who) const {  // in the cluster
    return static_cast<uint32_t>(static_cast<size_t>(who.cta->rank()) * warps_per_cta_ +
                                 static_cast<size_t>(who.warp));
  }
  WarpState& state(const Who& who) { return warps_[warp_index(who)]; }
  static Mask lanes_of(const Who& who) {
    return who.lanes != 0 ? who.lanes : who.lane < 0 ? kAllLanes : lane_bit(who.lane);
  }
  /// All lanes of the warp that still run.
  static bool is_whole(const Who& who, Mask lanes);
  /// How much of the warp's own work is ordered before something these lanes do now.
  static Known publish(WarpState& warp, const Who& who);
  /// Where what only the lanes of `who` learn is kept.
  static Knowledge& known_to(WarpState& warp, const Who& who);
  /// Calls body(knowledge) with everything that one of the lanes knows.
  template <class Body>
  static void each_known(const WarpState& warp, Mask lanes, Body&& body) {
    body(warp.knowledge);
    for (const Part& part : warp.parts)
      if ((part.lanes & lanes) != 0) body(part.more);
  }
  /// What every part knows, all lanes know.
  static void unite(WarpState& warp);
  AgentId flow_agent(uint32_t warp, Flow flow);
  AgentId add_agent(const char* unit, uint32_t warp, int flow);
  AgentId barrier_agent(SyncObject& object, uint32_t warp, const char* unit);
  const std::shared_ptr<const Knowledge>& snapshot(WarpState& warp, Mask lanes);
  /// `space_is_shared`: bulk stores read as one agent and write as another.
  View view(const Who& who, bool space_is_shared);
  /// The same for lanes of a warp.
  static View thread_view(WarpState& state, uint32_t warp, Mask lanes) {
    state.dirty |= lanes;
    return {&state.knowledge, &state.parts, warp, warp, {}, state.clock, state.synced_before, false};
  }
  Access access_of(const Who& who, const View& view, bool writes) const;
  /// The agent's number among those of all clusters; gives it a name there.
  AgentId everywhere(Access now);
  /// Records `bytes` from `address` on in global memory, of which `done` have been recorded.
  void record_pages(Access now, uint64_t address, uint32_t bytes, uint32_t done, AccessKind kind,
                    struct GlobalJudge& judge);
  /// Is what a load fetched used only where the copy that overwrites its source may come too early? See late_reads.h.
  bool is_late(Access load, const AsyncOrigin& copy);
  /// Has the value of a load been used before a flag was set that releases nothing, and which who now writes there has seen? Then
  /// it has come.
  bool is_told_of(const Knowledge& knowledge, Access load, Access write, int lane);
  /// The same instruction stores the same value by other threads: lawful.
  static bool repeats_it(const View& view, Access earlier, Access now, bool repeats) {
    return repeats && !view.is_unit && earlier.is_write() && earlier.insn() == now.insn();
  }
  static bool in_program_order(const View& view, Access earlier, Access now, int byte) {
    if (earlier.agent() != view.agent) return false;
    if (view.is_unit) return earlier.clock() == now.clock();
    // Values that the lanes of one instruction write to the same place are compared when they are stored.
    return earlier.clock() < view.synced_before || earlier.lane_of(byte) == now.lane_of(byte) ||
           (earlier.insn() == now.insn() && earlier.clock() == now.clock());
  }
  /// Byte by byte.
  static bool all_in_program_order(const View& view, Access earlier, Access now) {
    if (earlier.agent() != view.agent) return false;
    if (view.is_unit) return earlier.clock() == now.clock();
    return earlier.clock() < view.synced_before || earlier.has_lanes_of(now) ||
           (earlier.insn() == now.insn() && earlier.clock() == now.clock());
  }
  /// What this cluster, and through it others, may tell other clusters.
  std::shared_ptr<const Foreign> foreign_of(VectorClock what, const Knowledge& knowledge) const;
  /// `remote`: from threads of other CTAs.
  void learn(WarpState& warp, const Who& who, const Knowledge& what, bool remote = false);
  /// What would be known if that instruction were of the cluster's scope.
  static void bend_scope(BentClock& bent, const Knowledge& what, uint32_t insn) {
    bent.join(what.bent);
    bent.join(what.seen, BentRule::kArrivalScope, insn);
  }
  void bend_arrival(WarpState& warp, const Who& who, SyncObject& object);

  /// Where the warp of an earlier load came to barriers that the issuer of `origin` has passed since.
  std::array<uint32_t, 2> barriers_before(const AsyncOrigin& origin, Access load) const;
  /// What excuses a race, if anything does.
  struct Excuse {
    BentRule rule = BentRule::kNone;
    const BentClock::Entry* wait = nullptr;  // that would have ordered the two
    Bend bend() const { return {rule, wait == nullptr ? Bend::kNowhere : wait->insn}; }
  };
  Excuse excuse(const View& view, Access earlier, Access now, bool repeats) const;
  /// Does a collective of their warp stand between an access and a write to shared memory?
  bool have_met(const View& view, Access earlier, Access now) const {
    return !view.is_unit && now.is_write() && earlier.agent() == view.agent &&
           earlier.clock() < warps_[view.agent].met_before;
  }
  void add_bent_wait(Finding& finding, const BentClock::Entry& entry) const;
  /// `now`: to the cell where they meet, of an access that began at `offset`; `lane_shift` as of shared_access().
  void report_race(Who who, uint32_t offset, Access earlier, Access now, int lane_shift, Excuse excuse);
  /// `is_narrow`: it would be ordered if scopes reached as far as the other GPU.
  void report_global_race(const Who& who, uint64_t address, Access earlier, Access now, Excuse excuse,
                          bool is_narrow);
  /// What to do about one with another launch.
  static const char* hint_between_launches(Access earlier, Access now, bool is_narrow);
  void report_missing_fence(const Who& who, Space space, uint64_t address, Access earlier, bool writes);
  void report_tensor(const Who& who, TensorAddress at, uint32_t columns, Access earlier, const View& view,
                     bool writes);
  void report_tensor_release(const Who& who, TensorAddress at, uint32_t columns, Access earlier,
                             const Knowledge& knowledge);
  void report_unordered_exit(const CtaIdentity& cta, const RemoteUse& use, Bend bend);
  /// Reports an access to the shared memory of the CTA of rank `rank` by one that cannot know that it runs yet.
  void check_begun(const Who& who, const View& view, int rank);
  Who who_did(Access access) const;
  Actor actor_of(AgentId everywhere) const;
  /// The cluster is one of this launch.
  bool is_of_launch(uint32_t cluster) const {
    return cluster - launch_->first_cluster < static_cast<uint32_t>(launch_->clusters().count());
  }
  /// The cluster is one of this GPU.
  bool is_of_rank(uint32_t cluster) const;
  /// Whether a thread that knows `foreign` knows what another cluster did.
  bool is_known(const Foreign* foreign, Access earlier, int lane) const;

  const CheckSet& checks() const { return launch_->options.checks; }

  const LaunchContext* launch_;
  std::vector<const CtaIdentity*> ctas_;  // by rank
  FindingLog* log_;
  GlobalRaces* global_;  // null: races on global memory are not looked for
  uint32_t cluster_number_;
  size_t warps_per_cta_;
  std::vector<WarpState> warps_;
  std::vector<Agent> agents_;  // the warps first
  std::unordered_map<SyncKey, SyncObject> objects_;
  std::vector<std::vector<RemoteUse>> remote_uses_;  // by CTA rank: the last of each warp at an object
  std::vector<SharedShadow> shared_;                 // by CTA rank
  std::vector<std::vector<ShadowCell>> tensor_;      // by CTA rank: 8 groups of 16 lanes, 32 of 16 columns
  std::unordered_map<uint32_t, bool> used_before_flags_;  // by load: is_told_of()
  std::vector<uint32_t> used_behind_;  // by instruction: used_behind(); empty: not asked yet
};

}  // namespace imbrex::vgpu
