// SPDX-License-Identifier: Apache-2.0
// The cost model: what an instruction and a byte cost on each chip. One table of rates a target, one class an
// instruction. docs/timeline.md tells where the numbers come from and what is left out.
#pragma once

#include <cstdint>
#include <string>

#include "imbrex/inspect/gpu_model.h"
#include "vgpu/program/cost_class.h"

namespace imbrex::vgpu {

/// Everything is in clocks of an SM and bytes. What concerns the whole chip is the GPU model's (gpu_model.h).
struct CostModel {
  std::string chip;
  int sms = 1;
  double clock_ghz = 1;

  // Of the chip, per SM clock. Fewer SMs get their share.
  double l2_bytes = 1, hbm_bytes = 1;
  int64_t l2_capacity = 0;
  double l2_latency = 0, hbm_latency = 0;         // of a load by threads; TMA's comes on top
  double shared_bytes = 128, shared_latency = 0;  // of an SM

  // Warps: four sub-partitions, each issues one warp instruction a clock.
  double alu_latency;  // until a dependent instruction may issue
  double mufu_issue;   // clocks of the sub-partition a warp's special function takes
  double l1_latency;   // ld.local, ld.const
  double cta_launch;   // from a free place to a CTA's first instruction

  double l2_port_bytes;  // of one SM's way to L2

  // TMA.
  double tma_latency;    // beyond a thread's load
  double tma_issue;      // engine clocks an instruction takes at least
  double tma_bytes;      // per SM and clock
  double store_latency;  // until a bulk store is written and counts as done
  double store_read;     // until its source has been read

  // Synchronisation.
  double mbarrier_wake;    // from the completing arrival to the waiter's next instruction
  double mbarrier_issue;   // an arrival, a successful wait
  double barrier_latency;  // bar.sync: from the last arrival to the next instruction of each thread
  double cluster_latency;  // barrier.cluster, remote arrivals
  double fence_latency;    // fences that wait for stores
  double cancel_latency;   // clusterlaunchcontrol.try_cancel, request to response

  // Tensor core.
  double tensor_latency;  // from the last clock of a product to its result being there
  double mma_sync_flops;  // of an SM's mma.sync with 16-bit operands, per clock; 8 bits run twice as fast
  double mma_sync_latency;
  double tensor_memory_bytes;  // tcgen05.ld and st, per sub-partition
  double tensor_memory_latency;
};

/// The model of a target by its number (80, 89, 90, 100, 120, ...) with SMs at `clock_ghz`; 0: at the GPU model's clock.
/// `gpu` gives the rates of memory and L2; null: those of the GPU that stands for the target. The chip is called "H200",
/// and "RTX4090 (scaled)" where no run on that GPU stands behind the numbers.
CostModel cost_model(int sm, double clock_ghz = 0, const GpuModel* gpu = nullptr);

/// Clocks of an SM's tensor core for one wgmma m64nN: mathematics and the reading of shared memory run side
/// by side (measured on an H200; the same for all types, whose K makes up for their width).
constexpr double wgmma_clocks(double n, bool a_in_registers) {
  const double shared = 16 + n / 4;
  return a_in_registers ? n / 2 + 4 : n / 2 > shared ? n / 2 : shared;
}
/// Clocks of one tcgen05.mma of N columns, in each of its CTAs: A from shared memory is 128 rows of 32 bytes,
/// B is N rows, shared by a pair.
constexpr double tcgen05_clocks(double n, bool pair, bool a_in_tensor_memory) {
  const double shared = (a_in_tensor_memory ? 0 : 32) + (pair ? n / 8 : n / 4);
  return n / 2 > shared ? n / 2 : shared;
}

/// What one warp instruction of a class costs: clocks of the port that issues, clocks until its result is there, clocks until the
/// warp's next instruction, where those are more than its issue (code with a branch does not overlap with itself), and clocks of the
/// units for special functions.
struct InstructionCost {
  double issue, latency, alone = 0, special = 0;
};
InstructionCost instruction_cost(const CostModel& model, CostClass cost);
/// The same of atomic updates of shared memory that are more than an instruction.
InstructionCost update_cost(const CostModel& model, SharedUpdate update);
/// What div.rn.f32 divides, as far as that says how long it takes: a warp with a zero or a denormal number among its lanes
/// leaves the usual code. In the order of the time.
enum class Numerator : uint8_t { kNormal, kZero, kDenormal };
InstructionCost division_cost(Numerator numerator);

}  // namespace imbrex::vgpu
