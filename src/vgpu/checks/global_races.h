// SPDX-License-Identifier: Apache-2.0
// What all clusters of a launch share to find races on global memory: the last accesses to every 16 bytes
// that the launch touches, and what releasing atomics have left at addresses.
#pragma once

#include <array>
#include <atomic>
#include <map>
#include <mutex>
#include <unordered_map>

#include "imbrex/vgpu/virtual_gpu.h"
#include "vgpu/checks/shadow_blocks.h"
#include "vgpu/memory/memory.h"
#include "vgpu/program/program.h"

namespace imbrex::vgpu {

/// An agent of any cluster in one number: the cluster's above, its own in the cluster below.
inline constexpr int kLocalAgentBits = 13;
inline constexpr AgentId kLocalAgents = AgentId{1} << kLocalAgentBits;
inline constexpr int64_t kMaxTrackedClusters = int64_t{1} << (32 - kLocalAgentBits);
constexpr uint32_t cluster_of(AgentId agent) { return agent >> kLocalAgentBits; }
constexpr AgentId local_agent(AgentId agent) { return agent & (kLocalAgents - 1); }

/// Address space for the shadow of global memory. What a launch has used of it is wiped and kept for the next one:
/// fresh pages cost more than all else there is to start a launch.
struct GlobalShadow {
  uint64_t bytes = 0;                             // of global memory
  ShadowCell* blocks = nullptr;                   // zero bytes are cells without accesses
  ShadowCell* cells = nullptr;                    // of split blocks
  std::atomic<uint64_t>* read_by_many = nullptr;  // a bit for every cell
  uint8_t* is_used = nullptr;                     // by page
};

class GlobalRaces {
 public:
  /// `bytes` of global memory from kGlobalBase on. `is_concurrent`: several host threads run clusters.
  GlobalRaces(uint64_t bytes, bool is_concurrent);
  ~GlobalRaces();
  GlobalRaces(const GlobalRaces&) = delete;
  GlobalRaces& operator=(const GlobalRaces&) = delete;

  static constexpr uint64_t kPageBytes = 4096;
  /// The block of an address, and its cells where it is split; to be used while the lock of its page is held.
  ShadowCell& block(uint64_t address) const { return shadow_.blocks[(address - kGlobalBase) / kBlockBytes]; }
  ShadowCell* cells(uint64_t address) const {
    return shadow_.cells + (address - kGlobalBase) / kBlockBytes * kCellsInBlock;
  }
  void split(uint64_t address) {
    split_into(block(address), cells(address));
    mark_split(block(address));
  }
  void unite(uint64_t address, Access now) {
    wipe(block(address));
    block(address).slots[0] = now;
  }
  /// Whether four clusters are known to have read all of [begin, end), none to have written it since, and
  /// no cluster has told another anything: then a write here is a race. Asked without a lock.
  bool is_read_by_many(uint64_t begin, uint64_t end) const;
  /// False where that is known of no cell.
  bool may_be_read_by_many(uint64_t begin, uint64_t end) const {
    const uint64_t last = (end - 1 - kGlobalBase) / ShadowCell::kBytes / 64;
    for (uint64_t word = (begin - kGlobalBase) / ShadowCell::kBytes / 64; word <= last; ++word)
      if (shadow_.read_by_many[word].load(std::memory_order_relaxed) != 0) return true;
    return false;
  }
  /// Brings that up to date, for cells of one page, after they have been read (or, `by_write`, before they
  /// are written); to be called while the page's lock is held.
  void note_reads(uint64_t begin, uint64_t end, bool by_write);
  /// The same before a warp writes, mostly nothing: few places are read by four clusters and then written.
  void note_write(uint64_t begin, uint64_t end) {
    if (may_be_read_by_many(begin, end)) note_reads(begin, end, true);
  }
  /// The same after whole blocks have been read. `some_are_full`: one of them has four accesses.
  void note_blocks_read(uint64_t begin, uint64_t end, bool some_are_full) {
    if (some_are_full || may_be_read_by_many(begin, end)) note_reads(begin, end, false);
  }
  /// Held for a page while its cells are looked at.
  class PageLock {
   public:
    PageLock(GlobalRaces& races, uint64_t address) {
      if (races.is_concurrent_) lock(races, address);
      if (uint8_t& is_used = races.shadow_.is_used[page_index(address)]; is_used == 0) {
        is_used = 1;
        races.note_use(address);
      }
    }
    ~PageLock() {
      if (flag_ != nullptr) flag_->clear(std::memory_order_release);
    }
    PageLock(const PageLock&) = delete;
    PageLock& operator=(const PageLock&) = delete;

   private:
    void lock(GlobalRaces& races, uint64_t address);
    std::atomic_flag* flag_ = nullptr;
  };

  /// Who an agent is, for messages: its cluster may be gone by then.
  void name_agent(AgentId agent, const Actor& actor);
  Actor actor(AgentId agent);

  /// What has been released at an address, for a thread of another cluster: what it sees, what the scopes keep from it, and
  /// what had reached the releasing threads by relaxed reads alone.
  struct Released {
    std::shared_ptr<const Foreign> seen, narrow, unfenced;
    std::shared_ptr<const Heard> told;
  };
  Released released_at(uint64_t address, int rank, bool is_system);
  /// By a thread of a GPU, for that GPU, and for all others (null: nothing).
  void release_at(uint64_t address, int rank, const std::shared_ptr<const Foreign>& what,
                  const std::shared_ptr<const Foreign>& to_system,
                  const std::shared_ptr<const Foreign>& unfenced);

  /// A thread of a cluster sets a flag that releases nothing, after what it knows of its cluster, having heard of others.
  void tell_at(uint64_t address, uint32_t cluster, VectorClock before,
               const std::shared_ptr<const Heard>& heard);
  /// Whether one of the flags came behind what an agent of that cluster did.
  bool is_told(const Heard& heard, uint32_t cluster, AgentId agent, Clock clock, int lane);

  // Several launches, on several GPUs: what one of a rank did is ordered before the next of that rank.

  /// A launch whose clusters have the numbers from `first` on.
  struct Launched {
    uint32_t first = 0, count = 0;
    int rank = -1;
    std::shared_ptr<const Program> program;
    Dim3 grid, cluster;
    size_t warps_per_cta = 1;
  };
  void add_launch(Launched launch);
  /// The launch that a cluster is one of; null where it was not told of.
  const Launched* launch_of(uint32_t cluster) const;
  /// The number of the first cluster of the next launch.
  uint32_t next_cluster() const { return next_cluster_; }
  /// What all threads of a launch of the rank know from the start.
  std::shared_ptr<const Foreign> known_before(int rank) const;
  /// A cluster of the rank has ended, knowing this.
  void cluster_finished(int rank, const std::shared_ptr<const Foreign>& known);
  /// All clusters of the launches have ended.
  void launches_finished();
  bool is_known_whole(const Foreign& foreign, uint32_t cluster) const;

 private:
  struct ReleasedAt {
    std::map<int, std::shared_ptr<const Foreign>> by_rank;
    std::shared_ptr<const Foreign> to_system, unfenced;
    std::shared_ptr<const Heard> told;
  };
  static constexpr uint64_t page_index(uint64_t address) { return (address - kGlobalBase) / kPageBytes; }
  void note_use(uint64_t address);
  static constexpr size_t kLocks = 1024;
  bool is_concurrent_;
  GlobalShadow shadow_;
  std::vector<uint64_t> used_pages_;  // by their addresses
  std::array<std::atomic_flag, kLocks> locks_{};
  std::atomic<bool> has_released_ = false;
  std::mutex mutex_;
  std::unordered_map<AgentId, Actor> actors_;
  std::unordered_map<uint64_t, ReleasedAt> objects_;
  std::vector<VectorClock> before_flags_;                 // by number of the flag
  std::unordered_map<uint32_t, uint32_t> first_flag_of_;  // by cluster
  std::vector<Launched> launches_;                        // by their first cluster
  size_t running_from_ = 0;                               // of launches_: those from here on run
  uint32_t next_cluster_ = 0;
  std::map<int, std::shared_ptr<const Foreign>> known_, ended_;  // by rank
};

}  // namespace imbrex::vgpu
