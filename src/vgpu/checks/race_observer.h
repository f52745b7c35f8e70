// SPDX-License-Identifier: Apache-2.0
// What the race checker is told of a cluster. Instructions and units include no more of it than this: how races are found (race.h)
// can be changed without compiling them anew.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "vgpu/checks/happens_before.h"
#include "vgpu/checks/who.h"
#include "vgpu/memory/memory.h"
#include "vgpu/program/launch.h"

namespace imbrex::vgpu {

class FindingLog;

/// What an operation of the tensor core or a tcgen05.ld/st does to tensor memory.
enum class TensorAccess : uint8_t {
  kRead,
  kWrite,
  kAccumulate,  // the result of an mma, whether it adds or overwrites
  kOperand      // a or the scale factors of an mma
};

/// Of one cluster.
class RaceObserver {
 public:
  virtual ~RaceObserver() = default;
  /// The race checker of cluster `number` of the grid, whose CTAs are given by rank. What it finds goes to `log`.
  static std::unique_ptr<RaceObserver> make(const LaunchContext& launch, int64_t number,
                                            std::vector<const CtaIdentity*> ctas, FindingLog& log);

  // ---- synchronisation

  /// The lanes (or the unit) of `who` have done everything before what now happens at `key`.
  virtual void release(const Who& who, SyncKey key) = 0;
  /// The warp goes on only after what has happened at `key`.
  virtual void acquire(const Who& who, SyncKey key) = 0;
  /// What has been released at an mbarrier so far makes up a phase, which is complete.
  virtual void complete_phase(SyncKey key) = 0;
  /// The warp goes on only after the completed phases of an mbarrier.
  virtual void acquire_phases(const Who& who, SyncKey key) = 0;
  /// The same by a strong access, at the word in memory of that key.
  virtual void release_word(const Who& who, SyncKey key) = 0;
  virtual void acquire_word(const Who& who, SyncKey key) = 0;
  /// fence and membar, of a `reach` that is kCtaScope, 0 for the cluster, kGpuScope, or kGpuScope | kSystemScope:
  /// relaxed arrivals and writes release what is known now, relaxed waits and reads before it have acquired.
  virtual void fence(const Who& who, uint8_t reach) = 0;
  /// An atomic or other strong access to global memory: orders clusters.
  virtual void strong_access(const Who& who, uint64_t address, AccessKind kind) = 0;
  /// bar.warp.sync.
  virtual void warp_sync(const Who& who) = 0;
  /// shfl, vote, match and redux, which order nothing by the letter.
  virtual void warp_met(const Who& who) = 0;
  /// What the warp knows to have happened is ordered across the proxies from now on.
  virtual void proxy_fence(const Who& who, bool shared = true, bool global = true) = 0;
  /// tcgen05.fence::before_thread_sync and after_thread_sync.
  virtual void tensor_fence_before(const Who& who) = 0;
  virtual void tensor_fence_after(const Who& who) = 0;

  // ---- the life of a CTA

  /// A thread arrives at an mbarrier of another CTA, which must not have exited by then.
  virtual void remote_use(const Who& who, const CtaIdentity& owner, SyncKey object) = 0;
  /// Such a thread has arrived for a phase when nobody had seen the end of the one before. Does nothing order it behind the
  /// arrivals of that one, for which it may then count as well?
  virtual bool may_count_before(const Who& who, SyncKey object) const = 0;
  /// The last thread of a CTA has exited: what others did there must have happened before.
  virtual void cta_exit(const CtaIdentity& cta) = 0;
  /// All threads of the cluster have, and its operations are done.
  virtual void finished() = 0;

  // ---- asynchronous work

  /// `who` issues an operation: it starts from what its thread knows now. Fills `origin`, which the operation
  /// keeps, and from now on `who` refers to it.
  virtual void issue(Who& who, const Completion& completion, AsyncOrigin& origin) = 0;
  /// A further warp has issued the same operation (wgmma).
  virtual void issue_also(AsyncOrigin& origin, const Who& who) = 0;
  /// `waiter` has waited for all copies or products of warp `starter` of its CTA numbered below `end`.
  virtual void waited(const Who& waiter, CompletedBy by, int starter, uint64_t end) = 0;
  /// `waiter` has waited for the reading of the sources of its bulk copies below `end`, not more.
  virtual void waited_for_reads(const Who& waiter, uint64_t end) = 0;
  /// `waiter` has executed tcgen05.wait::ld or wait::st.
  virtual void waited_for_transfers(const Who& waiter, CompletedBy by) = 0;

  // ---- accesses

  /// A thread or a unit touches bytes of the shared memory of the CTA of rank `rank`. `lane_shift`: every lane from who.lane on touches
  /// 1 << lane_shift of them; 7: one lane or unit touches all. `done`: so many of them have been recorded.
  virtual void shared_access(const Who& who, int rank, uint32_t offset, uint32_t bytes, AccessKind kind,
                             int lane_shift = 7, uint32_t done = 0) = 0;
  /// The same in global memory. `pattern`: only these of every 16 bytes, both ends being multiples of 16.
  virtual void global_access(const Who& who, uint64_t address, uint32_t bytes, AccessKind kind,
                             int lane_shift = 7, uint16_t pattern = 0xFFFF, uint32_t done = 0) = 0;
  /// The same two for what the lanes of a warp, or a unit for them, touch by one weak access. `who.lanes`: all of them.
  virtual void shared_lanes(const Who& who, int rank, std::span<const LaneTouch> touches, bool writes,
                            const WritesTheSame& same) = 0;
  virtual void global_lanes(const Who& who, std::span<const LaneTouch> touches, bool writes,
                            const WritesTheSame& same) = 0;
  /// The same two for the weak access of a whole warp, from lane 0 on, as far as it is ordered behind all that happened
  /// there and is silent: most are. Returns how many bytes have been recorded; the rest is for the functions above. Not
  /// virtual, being what most accesses come to: a RaceChecker is all that there is.
  uint32_t record_shared_run(const Who& who, int rank, uint32_t offset, uint32_t bytes, bool writes,
                             int lane_shift);
  uint32_t record_global_run(const Who& who, uint64_t address, uint32_t bytes, bool writes, int lane_shift,
                             uint16_t pattern);
  /// An operation touches lanes and columns of a CTA's tensor memory.
  virtual void tensor_access(const Who& who, const CtaIdentity& owner, uint32_t lane, uint32_t lanes,
                             uint32_t column, uint32_t columns, TensorAccess kind) = 0;
  /// A warp deallocates columns: no operation may still use them.
  virtual void tensor_release(const Who& who, const CtaIdentity& owner, uint32_t column,
                              uint32_t columns) = 0;
};

}  // namespace imbrex::vgpu
