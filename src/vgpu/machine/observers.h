// SPDX-License-Identifier: Apache-2.0
// Those who watch a cluster: the race checker, the recorder of its timeline, the counters of bank conflicts and of
// sectors.
// Each may be absent. Instructions and units tell this object what happens and need not know who listens; no
// observer changes what the kernel does.
#pragma once

#include <memory>
#include <vector>

#include "vgpu/checks/bank_counter.h"
#include "vgpu/checks/race_observer.h"
#include "vgpu/checks/sector_counter.h"
#include "vgpu/machine/async.h"
#include "vgpu/machine/cta.h"
#include "vgpu/machine/place.h"
#include "vgpu/program/launch.h"
#include "vgpu/timeline/timeline_recorder.h"

namespace imbrex::vgpu {

class Observers {
 public:
  /// Of cluster `number` of the grid; what the race checker finds goes to `log`.
  Observers(const LaunchContext& launch, int64_t number, const std::vector<std::unique_ptr<Cta>>& ctas,
            FindingLog& log);

  /// For what costs time to find out.
  bool check_races() const { return races_ != nullptr; }
  bool record_timeline() const { return timeline_ != nullptr; }
  /// Is what is to be known of the cluster known before its end?
  bool is_enough() const { return timeline_ != nullptr && timeline_->is_enough(); }
  bool count_sectors() const { return sectors_ != nullptr; }

  // ---- synchronisation

  /// The threads of `who` arrive at something that orders threads, or have waited for it.
  void released(const Who& who, SyncKey key) {
    if (races_ != nullptr) races_->release(who, key);
  }
  void acquired(const Who& who, SyncKey key) {
    if (races_ != nullptr) races_->acquire(who, key);
  }
  /// The time of an arrival in a phase, and of going on because that phase is over.
  void arrived(const Who& who, SyncKey key, int64_t phase) {
    if (timeline_ != nullptr) timeline_->arrived(who, key, phase);
  }
  void waited(const Who& who, SyncKey key, int64_t phase) {
    if (timeline_ != nullptr) timeline_->waited(who, key, phase);
  }
  void warp_sync(const Who& who) {
    if (races_ != nullptr) races_->warp_sync(who);
  }
  void warp_met(const Who& who) {
    if (races_ != nullptr) races_->warp_met(who);
  }
  void fence(const Who& who, uint8_t reach) {
    if (races_ != nullptr) races_->fence(who, reach);
  }
  void proxy_fence(const Who& who, bool shared, bool global) {
    if (races_ != nullptr) races_->proxy_fence(who, shared, global);
  }

  // ---- mbarriers

  /// mbarrier.init of the object at an offset of the CTA's shared memory.
  void mbarrier_initialised(const Who& who, const Cta& owner, uint32_t offset) {
    if (timeline_ != nullptr)
      timeline_->initialised(who, sync_key(SyncKind::kMbarrier, owner.rank(), offset));
    if (races_ != nullptr)
      races_->shared_access(who, owner.rank(), offset, kMbarrierBytes, AccessKind::kWrite);
  }
  /// An instruction names the object: it must have been initialised before.
  void mbarrier_used(const Who& who, const Cta& owner, uint32_t offset) {
    if (races_ != nullptr)
      races_->shared_access(who, owner.rank(), offset, kMbarrierBytes, AccessKind::kStrongRead);
  }
  /// A thread arrives at an object of a CTA that may be another one, which must not have exited by then.
  void mbarrier_reached(const Who& who, const Cta& owner, uint32_t offset) {
    if (races_ != nullptr && who.cta != &owner)
      races_->remote_use(who, owner, sync_key(SyncKind::kMbarrier, owner.rank(), offset));
  }
  /// Such an arrival is ahead of every wait: may it as well count for the phase before?
  bool may_count_before(const Who& who, SyncKey object) const {
    return races_ != nullptr && races_->may_count_before(who, object);
  }
  /// An arrival or a change of the bytes expected, in `phase`, which it may have completed.
  void mbarrier_changed(const Who& who, SyncKey key, int64_t phase, bool completed) {
    if (races_ != nullptr) {
      races_->release(who, key);
      if (completed) races_->complete_phase(key);
    }
    arrived(who, key, phase);
  }
  /// The threads go on only after the completed phases.
  void mbarrier_phases_acquired(const Who& who, SyncKey key) {
    if (races_ != nullptr) races_->acquire_phases(who, key);
  }

  // ---- accesses

  /// A thread or a unit reads or writes bytes whose address was found good. See Checked::touched.
  void touched(const Who& who, const Place& place, uint32_t bytes, AccessKind kind, int lane_shift);
  /// The lanes of a warp, or a unit for them, touch global memory, or the shared memory of the CTA of rank `rank`.
  void lanes_touched(const Who& who, Space space, int rank, std::span<const LaneTouch> touches,
                     AccessKind kind, const WritesTheSame& same) {
    if (footprint_ != nullptr && space == Space::kGlobal)
      for (const LaneTouch& touch : touches) note_footprint(touch.address, touch.bytes, kind);
    if (races_ == nullptr) return;
    if (space == Space::kSharedCta)
      races_->shared_lanes(who, rank, touches, is_write(kind), same);
    else
      races_->global_lanes(who, touches, is_write(kind), same);
  }
  /// The lanes of a warp touch those bytes of every 16 of `bytes` of global memory that `pattern` says, each lane
  /// 1 << lane_shift further.
  void touched_apart(const Who& who, uint64_t address, uint32_t bytes, AccessKind kind, int lane_shift,
                     uint16_t pattern) {
    if (races_ != nullptr) races_->global_access(who, address, bytes, kind, lane_shift, pattern);
  }
  /// All lanes of a warp touch neighbouring bytes, or those of every 16 bytes of global memory that `pattern` says, from
  /// an address that was found good; each lane 1 << lane_shift further. `is_same()`: do they write what is there already?
  /// Only where is_quiet().
  template <class IsSame>
  void warp_touched(const Who& who, const Place& place, uint32_t bytes, AccessKind kind, int lane_shift,
                    uint16_t pattern, IsSame&& is_same) {
    const bool is_shared = place.space == Space::kSharedCta;
    if (footprint_ != nullptr && !is_shared) note_footprint(place.address, bytes, kind);
    if (races_ == nullptr) return;
    const auto offset = static_cast<uint32_t>(place.address);
    const int rank = place.cta->rank();
    const uint32_t done =
        is_shared ? races_->record_shared_run(who, rank, offset, bytes, is_write(kind), lane_shift)
                  : races_->record_global_run(who, place.address, bytes, is_write(kind), lane_shift, pattern);
    if (done == bytes) return;
    if (is_write(kind) && is_same()) kind = AccessKind::kSameWrite;
    if (is_shared)
      races_->shared_access(who, rank, offset, bytes, kind, lane_shift, done);
    else
      races_->global_access(who, place.address, bytes, kind, lane_shift, pattern, done);
  }
  /// Does nobody ask for the address of each lane?
  bool is_quiet() const { return timeline_ == nullptr && banks_ == nullptr && sectors_ == nullptr; }
  /// Asks nobody for single bytes of global memory but the race checker.
  bool has_footprint() const { return footprint_ != nullptr; }
  /// An instruction reads or writes `bytes` at each lane's host address.
  void accessed(const Warp& warp, const Instruction& insn, Space space, const std::byte* const* host,
                Mask lanes, uint32_t bytes, BankAccess access, bool writes) {
    if (timeline_ != nullptr) timeline_->accessed(number_of(warp), insn, space, host, lanes, bytes, access);
    if (banks_ != nullptr) banks_->accessed(insn, space, host, lanes, bytes, writes, access);
  }
  /// An instruction updates atomically what lies at each lane's host address, in one space.
  void updated(const Warp& warp, const Instruction& insn, Space space, const std::byte* const* host,
               Mask lanes, uint32_t bytes, bool returns, bool is_native) {
    if (timeline_ != nullptr)
      timeline_->updated(number_of(warp), insn, space, host, lanes, bytes, returns, is_native);
  }
  /// A warp is about to divide, exactly rounded, these float32 numbers, by lane.
  void divides(const Warp& warp, const uint32_t* numerators, Mask lanes) {
    if (timeline_ != nullptr) timeline_->divides(number_of(warp), numerators, lanes);
  }
  /// An instruction reads or writes `bytes` of global memory at each lane's host address.
  void global_accessed(const Instruction& insn, const std::byte* const* host, Mask lanes, uint32_t bytes,
                       GlobalAccess access) {
    if (sectors_ != nullptr) sectors_->accessed(insn, host, lanes, bytes, access);
  }
  /// A warp has executed an instruction. Only where record_timeline().
  void executed(const Warp& warp, const Instruction& insn, Step step) {
    timeline_->executed(number_of(warp), insn, step);
  }

  // ---- asynchronous work

  void issued(AsyncOp& op, QueueId queue);
  /// A further warp takes part in a product of its warpgroup. `is_first`: it is the one that issued it.
  void issued_also(AsyncOp& product, const Warp& warp, const Who& who, bool is_first) {
    if (timeline_ != nullptr) timeline_->joined(number_of(warp), product.who, product.recorded_as);
    if (races_ != nullptr && !is_first) races_->issue_also(product.origin, who);
  }
  /// An operation is carried out from here on, until nullptr is.
  void carries_out(const AsyncOp* op) {
    if (timeline_ != nullptr) timeline_->carries_out(op == nullptr ? -1 : op->recorded_as);
  }
  /// `waiter` has waited for all copies or products of warp `starter` of its CTA numbered below `end`.
  void waited_for(const Who& waiter, CompletedBy by, int starter, uint64_t end) {
    if (races_ != nullptr) races_->waited(waiter, by, starter, end);
  }
  /// For the reading of the sources of its bulk copies below `end`, not more.
  void waited_for_reads(const Who& waiter, uint64_t end) {
    if (races_ != nullptr) races_->waited_for_reads(waiter, end);
  }
  /// tcgen05.wait::ld or wait::st.
  void waited_for_transfers(const Who& waiter, CompletedBy by) {
    if (races_ != nullptr) races_->waited_for_transfers(waiter, by);
  }

  // ---- tensor memory

  void tensor_touched(const Who& who, const Cta& owner, uint32_t lane, uint32_t lanes, uint32_t column,
                      uint32_t columns, TensorAccess kind) {
    if (races_ != nullptr) races_->tensor_access(who, owner, lane, lanes, column, columns, kind);
  }
  void tensor_allocated(const Who& who, const Cta& cta, uint32_t columns) {
    if (timeline_ != nullptr) timeline_->allocated(who, cta.rank(), static_cast<int>(columns));
  }
  /// A warp deallocates columns: no operation may still use them.
  void tensor_released(const Who& who, const Cta& cta, uint32_t column, uint32_t columns) {
    if (races_ != nullptr) races_->tensor_release(who, cta, column, columns);
  }
  /// The columns are free.
  void tensor_freed(const Who& who, const Cta& cta, uint32_t columns) {
    if (timeline_ != nullptr) timeline_->allocated(who, cta.rank(), -static_cast<int>(columns));
  }
  void tensor_permit_relinquished(const Who& who, const Cta& cta) {
    if (timeline_ != nullptr) timeline_->relinquished(who, cta.rank());
  }
  void tensor_fence_before(const Who& who) {
    if (races_ != nullptr) races_->tensor_fence_before(who);
  }
  void tensor_fence_after(const Who& who) {
    if (races_ != nullptr) races_->tensor_fence_after(who);
  }

  // ---- ends

  /// The last thread of a CTA has exited.
  void cta_exited(const Cta& cta) {
    if (races_ != nullptr) races_->cta_exit(cta);
  }
  /// All CTAs of the cluster have.
  void finished() {
    if (races_ != nullptr) races_->finished();
  }
  /// Of a cluster that has ended; null where they were not asked for.
  const BankCounter* banks() const { return banks_.get(); }
  const SectorCounter* sectors() const { return sectors_.get(); }
  std::unique_ptr<Recording> take_recording();

 private:
  static constexpr uint32_t kMbarrierBytes = 8;
  size_t number_of(const Warp& warp) const {
    return static_cast<size_t>(warp.cta().rank()) * warps_per_cta_ + static_cast<size_t>(warp.index());
  }

  void note_footprint(uint64_t address, uint32_t bytes, AccessKind kind);

  size_t warps_per_cta_;
  std::unique_ptr<RaceObserver> races_;
  std::unique_ptr<TimelineRecorder> timeline_;
  std::unique_ptr<BankCounter> banks_;
  std::unique_ptr<SectorCounter> sectors_;
  FootprintRecorder* footprint_;  // null: nobody asks
};

}  // namespace imbrex::vgpu
