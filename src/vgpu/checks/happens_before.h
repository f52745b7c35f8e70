// SPDX-License-Identifier: Apache-2.0
// Vector clocks: who knows how much of what the others did.
//
// Agents are warps and the asynchronous work that others wait for by one means: what one warp's bulk groups
// cover, what one mbarrier completes, ... An agent's accesses carry its clock. A warp's clock counts its
// synchronisations; its lanes are told apart by a mask, so that one lane's arrival does not speak for what
// another lane wrote, nor one lane's wait for what another lane reads.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "imbrex/vgpu/bent_rule.h"
#include "vgpu/lanes.h"

namespace imbrex::vgpu {

using Clock = uint32_t;
using AgentId = uint32_t;
inline constexpr AgentId kNoAgent = ~AgentId{0};

/// An object through which agents are ordered: a barrier of a CTA, an address, ...
using SyncKey = uint64_t;
enum class SyncKind : uint8_t { kNamedBarrier = 1, kMbarrier, kClusterBarrier, kShared, kGlobal };
constexpr SyncKey sync_key(SyncKind kind, int cta_rank, uint64_t which) {
  return static_cast<uint64_t>(kind) << 56 | static_cast<uint64_t>(cta_rank) << 48 |
         (which & 0xFFFF'FFFF'FFFFu);
}

/// How much is known of one agent: everything before clock `all`, and of some lanes what they did up to and
/// with clock `some`. Joining what is known of different lanes takes the later clock for both.
class Known {
 public:
  constexpr Known() = default;
  constexpr explicit Known(Clock all) : all_(all) {}
  constexpr Known(Clock all, Clock some, Mask lanes) : all_(all), some_(some), lanes_(lanes) {}
  constexpr bool covers(Clock clock, int lane) const {
    return clock < all_ || (clock <= some_ && (lanes_ >> lane & 1) != 0);
  }
  /// Whatever the lane.
  constexpr bool covers_all(Clock clock) const {
    return clock < all_ || (clock <= some_ && lanes_ == kAllLanes);
  }
  constexpr void join(Known other) {
    all_ = std::max(all_, other.all_);
    some_ = std::max(some_, other.some_);
    lanes_ = some_ < all_ ? 0 : lanes_ | other.lanes_;
  }
  friend constexpr bool operator==(const Known&, const Known&) = default;

 private:
  Clock all_ = 0, some_ = 0;
  Mask lanes_ = 0;
};

/// Known, of every agent. Agents it has not heard of have an entry that covers nothing.
class VectorClock {
 public:
  bool covers(AgentId agent, Clock clock, int lane) const {
    return agent < known_.size() && known_[agent].covers(clock, lane);
  }
  bool covers_all(AgentId agent, Clock clock) const {
    return agent < known_.size() && known_[agent].covers_all(clock);
  }
  void join(AgentId agent, Known known) {
    if (agent >= known_.size()) known_.resize(agent + 1);
    known_[agent].join(known);
  }
  void join(const VectorClock& other) {
    if (known_.size() < other.known_.size()) known_.resize(other.known_.size());
    for (size_t i = 0; i < other.known_.size(); ++i) known_[i].join(other.known_[i]);
  }
  /// Whether `other` knows nothing more.
  bool covers(const VectorClock& other) const {
    for (size_t i = 0; i < other.known_.size(); ++i) {
      Known joined = i < known_.size() ? known_[i] : Known();
      const Known before = joined;
      joined.join(other.known_[i]);
      if (!(joined == before)) return false;
    }
    return true;
  }
  /// Of all agents but one.
  void join_except(AgentId one, const VectorClock& other) {
    if (known_.size() < other.known_.size()) known_.resize(other.known_.size());
    for (size_t i = 0; i < other.known_.size(); ++i)
      if (i != one) known_[i].join(other.known_[i]);
  }
  /// Of the agents from `first` on.
  void join_from(AgentId first, const VectorClock& other) {
    if (known_.size() < other.known_.size()) known_.resize(other.known_.size());
    for (size_t i = first; i < other.known_.size(); ++i) known_[i].join(other.known_[i]);
  }
  bool empty() const { return known_.empty(); }
  const std::vector<Known>& entries() const { return known_; }

 private:
  std::vector<Known> known_;
};

/// What would be known besides, if a bent rule were let pass: of every agent how much, and the instruction that
/// bends it. Empty in kernels that keep the rules.
class BentClock {
 public:
  struct Entry {
    Known known;
    BentRule rule = BentRule::kNone;
    uint32_t insn = 0;
  };
  void join(AgentId agent, const Entry& entry) {
    if (entry.rule == BentRule::kNone) return;
    if (agent >= entries_.size()) entries_.resize(agent + 1);
    Entry& ours = entries_[agent];
    const Known before = ours.known;
    ours.known.join(entry.known);
    if (!(ours.known == before)) ours.rule = entry.rule, ours.insn = entry.insn;
  }
  void join(const BentClock& other) {
    for (size_t i = 0; i < other.entries_.size(); ++i) join(static_cast<AgentId>(i), other.entries_[i]);
  }
  /// All that `known` says, by an instruction that bends a rule.
  void join(const VectorClock& known, BentRule rule, uint32_t insn) {
    for (size_t i = 0; i < known.entries().size(); ++i)
      if (!(known.entries()[i] == Known())) join(static_cast<AgentId>(i), {known.entries()[i], rule, insn});
  }
  /// The same, whatever bent a rule before: this instruction decides.
  void blame(const VectorClock& known, BentRule rule, uint32_t insn) {
    join(known, rule, insn);
    for (size_t i = 0; i < known.entries().size(); ++i)
      if (!(known.entries()[i] == Known())) entries_[i].rule = rule, entries_[i].insn = insn;
  }
  /// The entry that covers it, or null.
  const Entry* find(AgentId agent, Clock clock, int lane) const {
    return agent < entries_.size() && entries_[agent].known.covers(clock, lane) ? &entries_[agent] : nullptr;
  }

 private:
  std::vector<Entry> entries_;
};

/// What is known of the agents of other clusters, by the clusters' numbers. Shared by all who know the same. Where
/// several GPUs run together, the entry whole_rank(r) says below which number all clusters of rank r are known, as the
/// clock of agent 0.
using Foreign = std::map<uint32_t, std::shared_ptr<const VectorClock>>;
constexpr uint32_t whole_rank(int rank) { return 0x8000'0000u | static_cast<uint32_t>(rank); }
constexpr bool is_whole_rank(uint32_t key) { return (key & 0x8000'0000u) != 0; }
std::shared_ptr<const Foreign> join(const std::shared_ptr<const Foreign>& a,
                                    const std::shared_ptr<const Foreign>& b);

/// Clusters that are known to have set a relaxed flag, which releases nothing (Habits::tells_by_flags). Flags that tell of all clusters
/// before, as those of scans do, take no space.
struct Heard {
  uint32_t all_below = 0;                             // of these the first flag
  std::vector<std::pair<uint32_t, uint32_t>> others;  // cluster and number of the flag, in order
};
std::shared_ptr<const Heard> join(const std::shared_ptr<const Heard>& a,
                                  const std::shared_ptr<const Heard>& b);

/// What a strong access or an arrival says about order, as bits.
enum Order : uint8_t {
  kRelaxed = 0,
  kAcquires = 1,
  kReleases = 2,
  kGpuScope = 4,
  kCtaScope = 8,     // orders nothing with threads of other CTAs
  kSystemScope = 16  // with kGpuScope: among the threads of all GPUs too
};

/// What an agent knows: whose accesses happened before, and what of it has passed a fence.
struct Knowledge {
  VectorClock seen;
  // Of those seen: a proxy fence came in between, that joins the proxies for shared, for global memory.
  VectorClock fenced, fenced_global;
  /// tcgen05 operations known to be complete: `synced` before synchronisation that follows
  /// (fence::before_thread_sync), `ready` before tcgen05 operations that follow (fence::after_thread_sync).
  VectorClock synced, ready;
  BentClock bent;                           // where rules are bent
  std::shared_ptr<const Foreign> foreign;   // null: of no other cluster
  std::shared_ptr<const Foreign> narrow;    // would be known, if scopes reached as far as other GPUs
  std::shared_ptr<const Foreign> unfenced;  // what relaxed reads have observed, with no fence behind them
  std::shared_ptr<const Heard> heard;       // by relaxed reads
  VectorClock published;                    // of those seen: a fence of gpu scope came in between
  VectorClock published_to_system;          // of those seen: one of system scope did
  uint32_t begun = 0;                       // CTAs of the cluster, by rank as bits, that are known to run

  /// What comes through an object that both synchronised on. `ready` does not travel: every thread needs its
  /// own fence::after_thread_sync.
  void learn(const Knowledge& other) {
    seen.join(other.seen);
    fenced.join(other.fenced);
    fenced_global.join(other.fenced_global);
    synced.join(other.synced);
    published.join(other.published);
    published_to_system.join(other.published_to_system);
    bent.join(other.bent);
    begun |= other.begun;
    // Every atomic comes here, and few kernels have any of these.
    if (other.foreign != nullptr) foreign = join(foreign, other.foreign);
    if (other.narrow != nullptr) narrow = join(narrow, other.narrow);
    if (other.unfenced != nullptr) unfenced = join(unfenced, other.unfenced);
    if (other.heard != nullptr) heard = join(heard, other.heard);
  }
  /// All that another part of the same warp knows.
  void absorb(const Knowledge& other) {
    learn(other);
    ready.join(other.ready);
  }
};

/// How those who wait learn that an asynchronous operation is done.
enum class CompletedBy : uint8_t {
  kNothing,    // it touches no memory itself
  kMbarrier,   // bytes delivered to an mbarrier
  kCopyGroup,  // cp.async.wait_group
  kBulkGroup,  // cp.async.bulk.wait_group
  kWgmmaGroup,
  kCommit,  // tcgen05.commit
  kWaitLoad,
  kWaitStore,  // tcgen05.wait::ld, wait::st
};
struct Completion {
  CompletedBy by = CompletedBy::kNothing;
  SyncKey barrier = 0;  // kMbarrier
  uint64_t number = 0;  // groups: of the copy or product; a wait covers all numbers below some end
};

/// The last barrier of its CTA that a warp has passed, and where it did.
struct PassedBarrier {
  static constexpr uint32_t kNowhere = ~0u;
  SyncKey key = 0;
  uint32_t insn = kNowhere;
};

/// As whom an asynchronous operation acts, and what its thread knew when it issued it.
struct AsyncOrigin {
  std::shared_ptr<const Knowledge> knowledge;  // null: races are not looked for
  AgentId issuer = kNoAgent;                   // the warp
  Known own;                                   // how much of the issuer's own work comes before
  AgentId agent = kNoAgent;
  Clock clock = 0;
  Completion completion;
  PassedBarrier barrier = {};  // of the issuer, before it issued the operation
};

}  // namespace imbrex::vgpu
