// SPDX-License-Identifier: Apache-2.0
// The barrier of a cluster: every thread that has not exited arrives once a phase.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "vgpu/lanes.h"

namespace imbrex::vgpu {

class Warp;

class ClusterBarrier {
 public:
  /// `lanes` of a warp arrive. Returns those that had arrived in this phase already (and do not count).
  Mask arrive(Warp& warp, Mask lanes);
  /// Lanes that have not arrived since their last wait.
  Mask without_arrival(Warp& warp, Mask lanes);
  /// True when the phase in which the lanes arrived is over. Exited threads count as arrived.
  bool is_over(Warp& warp, Mask lanes) const;
  /// The lanes have passed their wait.
  void pass(Warp& warp, Mask lanes);

  int64_t phase() const { return phase_; }
  /// Those of the lanes that arrived last in an odd phase.
  Mask in_odd_phase(Warp& warp, Mask lanes);
  /// Threads of the cluster that the running phase still needs.
  int missing(Warp& any_warp) const;

 private:
  struct WarpState {
    Mask arrived = 0;                        // in the running phase
    Mask waiting = 0;                        // arrived in some phase and not passed yet
    std::array<int64_t, kWarpSize> phase{};  // of the last arrival
  };
  WarpState& state(Warp& warp);
  const WarpState* find(const Warp& warp) const;
  void complete_if_all_came(Warp& any_warp);

  int64_t phase_ = 0;
  std::vector<std::vector<WarpState>> states_;  // by rank and warp
};

}  // namespace imbrex::vgpu
