// SPDX-License-Identifier: Apache-2.0
// What all clusters of a launch share.
#pragma once

#include "core/target.h"
#include "imbrex/vgpu/virtual_gpu.h"
#include "vgpu/memory/memory.h"
#include "vgpu/program/program.h"

namespace imbrex::vgpu {

class FlagWriters;
class FootprintRecorder;
class GlobalRaces;
class SignalBoard;

/// The limits of "sm_90a" and the like; LaunchError for a target the machine does not have.
const Target& target_limits(const std::string& name);
/// SMs of the chip that stands for an architecture.
int sm_count(const Target& target);

/// %ctaid of the CTA of that rank in the cluster of that number.
inline std::array<int64_t, 3> cta_id_in(const Dim3& grid, const Dim3& cluster, int64_t number, int64_t rank) {
  const int64_t x = grid.x / cluster.x, y = grid.y / cluster.y;
  return {number % x * cluster.x + rank % cluster.x,
          number / x % y * cluster.y + rank / cluster.x % cluster.y,
          number / x / y * cluster.z + rank / cluster.x / cluster.y};
}

struct LaunchContext {
  const Program& program;
  GlobalMemory& memory;
  const Options& options;
  const Target& target;
  Dim3 grid, cluster, block;
  bool explicit_cluster = false;
  uint32_t dynamic_shared_bytes = 0;
  int num_sms = 1;
  uint64_t grid_id = 0;
  int64_t stack_bytes = 1024;              // of a thread, for functions that may call themselves
  uint64_t cooperative_workspace = 0;      // address; 0 where the launch is not cooperative
  DeviceHeap* heap = nullptr;              // null: the kernel does not allocate
  GlobalRaces* global_races = nullptr;     // null: races on global memory are not looked for
  FootprintRecorder* footprint = nullptr;  // null: nobody asks what the launch touches
  int rank = -1;                           // of the GPU among those that run together; -1: it runs alone
  SignalBoard* signals = nullptr;          // of those, where their timeline is asked for
  uint32_t first_cluster = 0;  // its number in global_races, which counts the clusters of several launches
  std::vector<int64_t> chosen = {};  // the clusters that run; empty: all
  int64_t ctas_left_out = 0;         // by Options::sampled_ctas
  int64_t recorded_works =
      0;  // of a cluster, after which its recording ends (vgpu/timeline/sampling.h); 0: never
  std::vector<int64_t> whole = {};  // clusters that run on then; the others end with their recordings
  FlagWriters* flags = nullptr;     // null: nobody asks for the launch's time, or no cluster heeds others

  /// Where the shared memory of a CTA ends, as an offset.
  uint32_t shared_end() const {
    return static_cast<uint32_t>(target.shared_base) + program.static_shared_bytes + dynamic_shared_bytes;
  }
  int threads() const { return static_cast<int>(block.count()); }
  int warps() const { return (threads() + kWarpSize - 1) / kWarpSize; }
  std::array<int64_t, 3> cta_id(int64_t number, int64_t rank) const {
    return cta_id_in(grid, cluster, number, rank);
  }
  Dim3 clusters() const { return {grid.x / cluster.x, grid.y / cluster.y, grid.z / cluster.z}; }
};

}  // namespace imbrex::vgpu
