// SPDX-License-Identifier: Apache-2.0
// Races on shared memory between the warps of a cluster and the asynchronous units, by happens-before.
//
// Every warp carries a vector clock, and so does the asynchronous work that a warp has started. Releasing
// operations (arriving at a barrier, an mbarrier, the cluster barrier; deliveries of units; any atomic or
// other strong access) leave the clock at the object, acquiring ones (waits, strong accesses) take it from
// there. For every word of shared memory the last write and the reads since are kept; two accesses of which
// one writes must be ordered. A second vector tells which accesses a proxy fence has passed on the way: what
// a unit of the async proxy reads and a thread (or cp.async) wrote must be in it.
//
// Where this model is coarser than PTX it errs on the side of silence: lanes of one warp count as ordered,
// and so does the asynchronous work started by one warp among itself; strong accesses count as both acquire
// and release; work is taken to start when it is carried out.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "vgpu/findings.h"

namespace imbrex::vgpu {

class Cluster;
class Warp;
struct Place;
enum class AccessKind : uint8_t;

/// An object through which warps are ordered: a barrier of a CTA, an address, ...
using SyncKey = uint64_t;
enum class SyncKind : uint8_t { kNamedBarrier = 1, kMbarrier, kClusterBarrier, kShared, kGlobal };
constexpr SyncKey sync_key(SyncKind kind, int cta_rank, uint64_t which) {
  return static_cast<uint64_t>(kind) << 56 | static_cast<uint64_t>(cta_rank) << 48 |
         (which & 0xFFFF'FFFF'FFFFu);
}

class RaceChecker {
 public:
  explicit RaceChecker(Cluster& cluster);

  /// The warp (or unit) of `who` has done everything before what now happens at `key`.
  void release(const Who& who, SyncKey key);
  /// The warp goes on only after what has happened at `key`.
  void acquire(const Who& who, SyncKey key);
  /// The warp of `waiter` has waited for asynchronous work that warp `starter` of its CTA started.
  void wait_for_units(const Who& waiter, int starter);
  /// What the warp knows to have happened is ordered across the proxies from now on.
  void proxy_fence(const Who& who);
  /// A thread or a unit touches bytes of shared memory.
  void access(const Who& who, const Place& place, uint32_t bytes, AccessKind kind);

 private:
  using Clock = uint32_t;
  using VectorClock = std::vector<Clock>;
  /// What an agent knows: whose accesses happened before, and which of them a proxy fence has passed.
  struct Knowledge {
    VectorClock seen, fenced;
    uint64_t version = 1;  // changes with every change
    uint64_t learned = 0;  // units: the version of their warp they have learned
    void learn(const Knowledge& other);
  };
  /// One access to a word of shared memory. Small, for there is a line of them for every word.
  struct Access {
    Clock clock = 0;  // of the agent; 0: none
    uint32_t insn = 0;
    uint16_t agent = 0;     // warps first, then the units working for each warp
    uint8_t bytes : 4 = 0;  // of the word, a bit each
    uint8_t strong : 1 = 0;
    uint8_t async_proxy : 1 = 0;
    uint8_t lane = 0;
    uint8_t unit = 0;  // index of unit_names_
  };
  static constexpr int kReaders = 3;
  struct alignas(64) Word {
    Access write;
    Access reads[kReaders];
  };

  /// The agent of `who`; a unit starts from what its warp knows.
  size_t agent_of(const Who& who);
  /// What the agent does from now on is told apart from what it has done.
  void advance(size_t agent);
  bool ordered(const Access& earlier, size_t agent) const {
    return earlier.clock == 0 || earlier.agent == agent ||
           agents_[agent].seen[earlier.agent] >= earlier.clock;
  }
  bool conflicts(const Access& earlier, const Access& now) const {
    return !ordered(earlier, now.agent) && (earlier.bytes & now.bytes) != 0 &&
           !(earlier.strong && now.strong);
  }
  bool lacks_fence(const Access& write, const Access& now) const {
    return write.clock != 0 && !write.async_proxy && (write.bytes & now.bytes) != 0 &&
           ordered(write, now.agent) && agents_[now.agent].fenced[write.agent] < write.clock;
  }
  void report_race(const Who& who, const Place& place, const Access& earlier, bool writes, bool wrote);
  void report_missing_fence(const Who& who, const Place& place, const Access& write);
  uint8_t unit_index(const char* unit);
  Who who_did(const Access& access) const;

  Cluster* cluster_;
  size_t warps_per_cta_, warps_;
  std::vector<const char*> unit_names_{""};
  std::vector<Knowledge> agents_;
  std::unordered_map<SyncKey, Knowledge> at_objects_;
  std::vector<std::vector<Word>> words_;  // by CTA rank
};

}  // namespace imbrex::vgpu
