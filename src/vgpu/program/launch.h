// SPDX-License-Identifier: Apache-2.0
// What all clusters of a launch share.
#pragma once

#include "imbrex/vgpu/virtual_gpu.h"
#include "vgpu/memory/memory.h"
#include "vgpu/program/program.h"

namespace imbrex::vgpu {

class GlobalRaces;

/// Facts of a target that the machine depends on.
struct TargetFacts {
  int sm = 100;  // 80, 90, 100
  int num_sms = 148;
  uint32_t shared_user_base = 0x400;
  int64_t max_shared_per_block = 232448;
  int64_t shared_per_sm = 233472;
  int max_cluster = 16;
};

/// The facts of "sm_90a" and the like; LaunchError for a target the machine does not have.
TargetFacts target_facts(const std::string& target);

struct LaunchContext {
  const Program& program;
  GlobalMemory& memory;
  const Options& options;
  const TargetFacts& target;
  Dim3 grid, cluster, block;
  bool explicit_cluster = false;
  uint32_t dynamic_shared_bytes = 0;
  int num_sms = 1;
  uint64_t grid_id = 0;
  uint64_t cooperative_workspace = 0;   // address; 0 where the launch is not cooperative
  GlobalRaces* global_races = nullptr;  // null: races on global memory are not looked for

  /// Where the shared memory of a CTA ends, as an offset.
  uint32_t shared_end() const {
    return target.shared_user_base + program.static_shared_bytes + dynamic_shared_bytes;
  }
  int threads() const { return static_cast<int>(block.count()); }
  int warps() const { return (threads() + kWarpSize - 1) / kWarpSize; }
  Dim3 clusters() const { return {grid.x / cluster.x, grid.y / cluster.y, grid.z / cluster.z}; }
};

}  // namespace imbrex::vgpu
