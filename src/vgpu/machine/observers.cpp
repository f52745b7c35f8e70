// SPDX-License-Identifier: Apache-2.0
#include "vgpu/machine/observers.h"

#include "vgpu/order/footprint_recorder.h"

namespace imbrex::vgpu {

namespace {

/// Addresses in global memory through which warps are ordered share this many keys, so that counting in a
/// large array does not take memory without end. Sharing orders too much, never too little.
constexpr uint64_t kGlobalSyncKeys = 4096;

}  // namespace

Observers::Observers(const LaunchContext& launch, int64_t number,
                     const std::vector<std::unique_ptr<Cta>>& ctas, FindingLog& log)
    : warps_per_cta_(static_cast<size_t>(launch.warps())), footprint_(launch.footprint) {
  const Options& options = launch.options;
  if (options.checks.races || options.checks.proxy_fences) {
    std::vector<const CtaIdentity*> by_rank;
    for (const std::unique_ptr<Cta>& cta : ctas) by_rank.push_back(cta.get());
    races_ = RaceObserver::make(launch, number, std::move(by_rank), log);
  }
  if (options.timeline.record) {
    std::vector<int64_t> numbers;
    bool is_drawn = false;
    for (const std::unique_ptr<Cta>& cta : ctas) {
      numbers.push_back(cta->linear_id());
      is_drawn |= numbers.back() == options.timeline.cta;
    }
    timeline_ = std::make_unique<TimelineRecorder>(launch, number, std::move(numbers), is_drawn);
  }
  if (options.count_banks) banks_ = std::make_unique<BankCounter>(launch.program.code.size());
  if (options.count_sectors) sectors_ = std::make_unique<SectorCounter>(launch.program.code.size());
}

void Observers::note_footprint(uint64_t address, uint32_t bytes, AccessKind kind) {
  if (address < kHeapBase) return;  // constants and parameters cannot be written
  const bool strong = is_strong(kind);
  if (is_read(kind))
    footprint_->touched(address, bytes, strong ? FootprintRecorder::kReadStrongly : FootprintRecorder::kRead);
  if (is_write(kind))
    footprint_->touched(address, bytes,
                        strong ? FootprintRecorder::kWrittenStrongly : FootprintRecorder::kWritten);
}

void Observers::touched(const Who& who, const Place& place, uint32_t bytes, AccessKind kind, int lane_shift) {
  if (footprint_ != nullptr && place.space == Space::kGlobal) note_footprint(place.address, bytes, kind);
  if (races_ == nullptr || place.space == Space::kLocal) return;
  if (is_strong(kind) && who.origin == nullptr) {
    const SyncKey key = place.space == Space::kSharedCta
                            ? sync_key(SyncKind::kShared, place.cta->rank(), place.address)
                            : sync_key(SyncKind::kGlobal, 0, place.address / 4 % kGlobalSyncKeys);
    // Inside a cluster all strong accesses order, as far as their scope reaches.
    Who both = who;
    both.order = kAcquires | kReleases | (who.order & kCtaScope);
    if (is_read(kind)) races_->acquire_word(both, key);
    if (is_write(kind)) races_->release_word(both, key);
    if (place.space == Space::kGlobal) races_->strong_access(who, place.address, kind);
  }
  if (place.space == Space::kSharedCta)
    races_->shared_access(who, place.cta->rank(), static_cast<uint32_t>(place.address), bytes, kind,
                          lane_shift);
  else
    races_->global_access(who, place.address, bytes, kind, lane_shift);
}

void Observers::issued(AsyncOp& op, QueueId queue) {
  if (timeline_ != nullptr)
    op.recorded_as = timeline_->submitted(op.who, queue, op.demand(), op.lines(),
                                          timeline_->with_texts() ? op.describe() : std::string());
  if (races_ != nullptr && op.who.cta != nullptr) races_->issue(op.who, op.completion(), op.origin);
}

std::unique_ptr<Recording> Observers::take_recording() {
  return timeline_ == nullptr ? nullptr : std::make_unique<Recording>(timeline_->take());
}

}  // namespace imbrex::vgpu
