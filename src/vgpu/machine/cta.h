// SPDX-License-Identifier: Apache-2.0
// A CTA: its warps, its shared memory, its named barriers, and the state of the asynchronous units.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "vgpu/checks/tile_context.h"
#include "vgpu/checks/who.h"
#include "vgpu/machine/units.h"
#include "vgpu/machine/warp.h"
#include "vgpu/memory/memory.h"

namespace imbrex::vgpu {

class Cluster;

/// One of the 16 barriers of bar/barrier.
struct NamedBarrier {
  int expected_threads = 0;            // of the running phase; 0: all live threads (or none has arrived yet)
  int64_t phase = 0;                   // phases completed
  std::vector<Mask> waiting;           // of those, the ones that wait for the phase to complete
  std::vector<Mask> arrived;           // per warp; empty until a thread arrives
  uint32_t opened_by = 0;              // instruction that arrived first in this phase
  int reduction_count = 0;             // bar.red: lanes whose predicate was true
  int reduction_lanes = 0;             // and lanes that brought one
  int last_count = 0, last_lanes = 0;  // of the phase before, for the waiters
};

class Cta : public CtaIdentity {
 public:
  Cta(Cluster& cluster, int rank, std::array<uint32_t, 3> id);
  ~Cta();

  Cluster& cluster() const { return *cluster_; }
  int64_t linear_id() const;

  SharedMemory& shared() { return shared_; }
  std::vector<std::unique_ptr<Warp>>& warps() { return warps_; }
  const std::vector<std::unique_ptr<Warp>>& warps() const { return warps_; }
  NamedBarrier& barrier(int index) { return barriers_[static_cast<size_t>(index)]; }
  CtaUnits& units() { return units_; }
  /// What the checks of tiles in its shared memory work on.
  TileContext tiles();
  bool finished() const { return live_warps_ == 0; }
  /// Called by a warp whose last lane has exited.
  void warp_finished() { --live_warps_; }

  /// Lets named barriers that wait for all live threads complete after some have exited.
  void reconsider_barriers();
  /// Completes the phase if everyone has come.
  void try_complete(NamedBarrier& barrier);

 private:
  friend class Warp;  // keeps the lanes that run up to date

  Cluster* cluster_;
  SharedMemory shared_;
  std::vector<std::unique_ptr<Warp>> warps_;
  std::array<NamedBarrier, 16> barriers_;
  CtaUnits units_;
  int live_warps_ = 0;
};

/// Writes the special registers that the program reads into a warp that is about to start.
void fill_special_registers(Warp& warp);

}  // namespace imbrex::vgpu
