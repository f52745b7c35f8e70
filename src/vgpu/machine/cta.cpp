// SPDX-License-Identifier: Apache-2.0
#include "vgpu/machine/cta.h"

#include <algorithm>
#include <cstring>

#include "ptx/ptx.h"
#include "vgpu/machine/cluster.h"

namespace imbrex::vgpu {

namespace {

/// Does the kernel ask where the shared memory lies that the system keeps for itself? Cooperative groups synchronise warps there.
bool asks_for_reserved_memory(const Program& program) {
  return std::ranges::any_of(program.specials, [](const SpecialSlot& read) {
    const auto special = static_cast<ptx::SpecialReg>(read.special);
    return special == ptx::SpecialReg::reserved_smem_offset_0 ||
           special == ptx::SpecialReg::reserved_smem_offset_1;
  });
}

}  // namespace

Cta::Cta(Cluster& cluster, int rank, std::array<uint32_t, 3> id)
    : CtaIdentity(rank, id, cluster.launch().warps()), cluster_(&cluster) {
  const LaunchContext& launch = cluster.launch();
  const bool track = launch.options.checks.uninitialized;
  const auto base = static_cast<uint32_t>(launch.target.shared_base);
  if (asks_for_reserved_memory(launch.program)) {  // which every chip hands over as zeros
    shared_.reset(0, launch.shared_end(), track);
    std::memset(shared_.at(0), 0, base);
    shared_.mark_written(0, base);
  } else {
    shared_.reset(base, launch.shared_end() - base, track);
  }
  const int threads = launch.threads();
  for (int w = 0; w < launch.warps(); ++w) {
    const int lanes = std::min(kWarpSize, threads - w * kWarpSize);
    const Mask mask = lanes == kWarpSize ? kAllLanes : lane_bit(lanes) - 1;
    warps_.push_back(std::make_unique<Warp>(*this, w, mask, launch.program, track));
    fill_special_registers(*warps_.back());
  }
  live_warps_ = launch.warps();
}

Cta::~Cta() = default;

TileContext Cta::tiles() {
  const LaunchContext& launch = cluster_->launch();
  return {cluster_->log(), launch.program, launch.memory, *this, units_.chunk_origins};
}

int64_t Cta::linear_id() const {
  const Dim3& grid = cluster_->launch().grid;
  return id()[0] + grid.x * (id()[1] + grid.y * int64_t{id()[2]});
}

void Cta::try_complete(NamedBarrier& barrier) {
  if (barrier.arrived.empty()) return;
  if (barrier.expected_threads > 0) {
    int64_t threads = 0;
    for (size_t w = 0; w < warps_.size(); ++w) threads += count_lanes(barrier.arrived[w]);
    if (threads < barrier.expected_threads) return;
  } else {
    for (size_t w = 0; w < warps_.size(); ++w)
      if ((warps_[w]->live() & ~barrier.arrived[w]) != 0) return;
  }
  ++barrier.phase;
  const SyncKey key =
      sync_key(SyncKind::kNamedBarrier, rank(), static_cast<uint64_t>(&barrier - barriers_.data()));
  for (size_t w = 0; w < warps_.size(); ++w)
    if (barrier.waiting[w] != 0) {
      const Who who{this, static_cast<int>(w), -1, nullptr, "", barrier.waiting[w]};
      cluster_->observe().acquired(who, key);
      cluster_->observe().waited(who, key, barrier.phase - 1);
    }
  barrier.arrived.clear();
  barrier.last_count = barrier.reduction_count;
  barrier.last_lanes = barrier.reduction_lanes;
  barrier.reduction_count = barrier.reduction_lanes = 0;
  cluster_->note_progress();
}

void Cta::reconsider_barriers() {
  for (NamedBarrier& barrier : barriers_)
    if (!barrier.arrived.empty() && barrier.expected_threads == 0) try_complete(barrier);
}

}  // namespace imbrex::vgpu
