// SPDX-License-Identifier: Apache-2.0
// Races between the warps of a cluster on shared memory, by happens-before.
//
// Every warp carries a vector clock. Releasing operations (arriving at a barrier, an mbarrier, the cluster
// barrier; any atomic or other strong access) leave it at the object, acquiring ones take it from there. For
// every word of shared memory the last write and the reads since are kept; two accesses of which one writes,
// by different warps, must be ordered.
//
// Where this model is coarser than PTX it errs on the side of silence: lanes of one warp count as ordered,
// strong accesses as both acquire and release, an arrival on behalf of a thread by a unit as that thread's.
// What units read and write is not in here.
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

  /// The warp of `who` has done everything before what now happens at `key`.
  void release(const Who& who, SyncKey key);
  /// The warp goes on only after what has happened at `key`.
  void acquire(const Who& who, SyncKey key);
  /// A thread touches bytes of shared memory.
  void access(const Who& who, const Place& place, uint32_t bytes, AccessKind kind);

 private:
  using Clock = uint32_t;
  using VectorClock = std::vector<Clock>;
  /// One access to a word of shared memory.
  struct Access {
    Clock clock = 0;  // of the warp; 0: none
    uint16_t agent = 0;
    uint8_t bytes = 0;  // of the word, a bit each
    uint8_t lane = 0;
    bool strong = false;
    uint32_t insn = 0;
  };
  static constexpr int kReaders = 4;
  struct Word {
    Access write;
    Access reads[kReaders];
  };

  size_t agent_of(const Who& who) const;
  bool ordered(const Access& earlier, size_t agent) const;
  void check(const Who& who, const Place& place, const Access& now, const Access& earlier, bool writes,
             bool wrote);
  static void join(VectorClock& into, const VectorClock& from);

  Cluster* cluster_;
  size_t warps_per_cta_;
  std::vector<VectorClock> clocks_;  // by agent
  std::unordered_map<SyncKey, VectorClock> at_objects_;
  std::vector<std::vector<Word>> words_;  // by CTA rank
};

}  // namespace imbrex::vgpu
