// SPDX-License-Identifier: Apache-2.0
#include "vgpu/timeline/cost_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "vgpu/timeline/cost_constants.h"

namespace imbrex::vgpu {

namespace {

/// One generation's own numbers. M: measured on an H200; P: published measurements; D: documented; A:
/// assumed, near its neighbours.
CostModel ampere() {
  CostModel m;
  m.alu_latency = 4;     // P
  m.mufu_issue = 8;      // D: 16 a clock and SM
  m.l1_latency = 33;     // P
  m.cta_launch = 300;    // A
  m.l2_port_bytes = 64;  // D
  m.tma_latency = 0;     // there is none
  m.tma_issue = 0;
  m.tma_bytes = 64;
  m.store_latency = 400;   // A
  m.store_read = 50;       // A
  m.mbarrier_wake = 60;    // A
  m.mbarrier_issue = 8;    // A
  m.barrier_latency = 20;  // A
  m.cluster_latency = 0;
  m.fence_latency = 20;  // A
  m.cancel_latency = 0;
  m.tensor_latency = 25;
  m.mma_sync_flops = 2048;  // D
  m.mma_sync_latency = 33;  // P
  m.tensor_memory_bytes = 128;
  m.tensor_memory_latency = 0;
  return m;
}

CostModel hopper() {
  CostModel m = ampere();
  m.l1_latency = 35;        // P
  m.cta_launch = 390;       // M
  m.l2_port_bytes = 92;     // M
  m.tma_latency = 30;       // M
  m.tma_issue = 50;         // M
  m.tma_bytes = 128;        // A: the shared memory's width
  m.store_latency = 1;      // M
  m.store_read = 66;        // M
  m.mbarrier_wake = 55;     // M
  m.barrier_latency = 20;   // M
  m.cluster_latency = 160;  // M
  m.fence_latency = 25;     // A
  m.tensor_latency = 63;    // M
  m.mma_sync_flops = 2670;  // M
  m.mma_sync_latency = 24;  // M
  return m;
}

/// What Blackwell's chips have in common: assumed where Hopper's figures were measured since, so that nothing measured on
/// an H200 is taken for a fact of theirs.
CostModel blackwells() {
  CostModel m = hopper();
  m.l1_latency = 38;        // A
  m.cta_launch = 300;       // A
  m.l2_port_bytes = 64;     // A
  m.tma_latency = 180;      // P: of Hopper
  m.tma_issue = 16;         // A
  m.store_latency = 600;    // A
  m.store_read = 100;       // A
  m.mbarrier_wake = 95;     // A
  m.barrier_latency = 25;   // A
  m.cluster_latency = 190;  // P: of Hopper
  m.cancel_latency = 1000;  // A
  return m;
}

CostModel blackwell() {
  CostModel m = blackwells();
  m.l2_port_bytes = 128;         // A: the ladder's published rates need more than 64
  m.store_latency = 700;         // A
  m.tensor_latency = 100;        // A
  m.mma_sync_flops = 2048;       // A
  m.tensor_memory_latency = 40;  // A
  return m;
}

/// Blackwell's chips for graphics: no tcgen05, but mma.sync at the rate of the whole tensor core.
CostModel blackwell_graphics() {
  CostModel m = blackwells();
  m.tensor_latency = 30;    // A
  m.mma_sync_latency = 33;  // A
  return m;
}

CostModel generation_of(int sm) {
  return sm >= 120 ? blackwell_graphics() : sm >= 100 ? blackwell() : sm >= 90 ? hopper() : ampere();
}

/// The part of the quoted bandwidth of memory that is reached: reading (M: 4.55 of 4.8 TB/s; what writing costs is in
/// chip_rates.h), and of Blackwell's chips copies (M: 4.27).
constexpr double kReading = 0.948, kCopying = 0.89;

}  // namespace

CostModel cost_model(int sm, double clock_ghz, const GpuModel* chosen) {
  CostModel m = generation_of(sm);
  const GpuModel& gpu = chosen != nullptr ? *chosen : gpu_model_for(fmt::format("sm_{}", sm));
  m.chip = gpu.name;
  if (!m.chip.ends_with(".json"))  // else the file of a GPU that the user describes
    std::transform(m.chip.begin(), m.chip.end(), m.chip.begin(),
                   [](unsigned char c) { return std::toupper(c); });
  if (!gpu.calibration.empty())
    m.chip += " (calibrated)";
  else if (!gpu.is_measured)
    m.chip += " (scaled)";
  m.sms = gpu.sms;
  m.clock_ghz = clock_ghz > 0 ? clock_ghz : gpu.clock_ghz;
  const double per_clock = 1 / (m.clock_ghz * 1e9);
  m.l2_bytes = gpu.l2_bytes_per_second * per_clock;
  m.hbm_bytes = gpu.hbm_bytes_per_second * (sm >= 100 ? kCopying : kReading) * per_clock;
  m.l2_capacity = gpu.l2_bytes;
  m.l2_latency = gpu.l2_latency_cycles;
  m.hbm_latency = gpu.hbm_latency_cycles;
  m.shared_bytes = gpu.shared_bytes_per_clock;
  m.shared_latency = gpu.shared_latency_cycles;
  if (sm < 90 || sm >= 120)
    m.mma_sync_flops = gpu.peak(float16) / (gpu.sms * gpu.clock_ghz * 1e9);  // its only tensor unit
  apply_constants(m, gpu);
  return m;
}

InstructionCost instruction_cost(const CostModel& m, CostClass cost) {
  switch (cost) {
    case CostClass::kFree:
      return {0, 0};
    case CostClass::kWide:
      return {2, m.alu_latency + 1};
    case CostClass::kDouble:
      return {2, 2 * m.alu_latency};
    case CostClass::kMufu:
      return {1, m.mufu_issue + 14, 0, m.mufu_issue};
    // M, as all of these: docs/measurements/2026-11-23-instructions.md.
    case CostClass::kExact:
      return division_cost(Numerator::kNormal);
    case CostClass::kExactDouble:
      return {35, 125, 125};
    case CostClass::kDivide:
      return {12, 59};
    case CostClass::kWideDivide:
      return {141, 326, 312};
    case CostClass::kSharedAccess:
      return {1, m.shared_latency};
    case CostClass::kMatrixAccess:
      return {1, m.shared_latency + 4};
    case CostClass::kGlobalAccess:
      return {1, m.l2_latency};  // a load's own work tells its latency
    case CostClass::kLocalAccess:
      return {1, m.l1_latency};
    case CostClass::kAtomic:
      return {2, m.l2_latency};
    case CostClass::kShuffle:
      return {1, m.shared_latency};
    case CostClass::kMmaSync:
      return {1, m.mma_sync_latency};
    case CostClass::kMbarrier:
      return {m.mbarrier_issue, m.mbarrier_issue};
    case CostClass::kFence:
      return {m.fence_latency, m.fence_latency};
    case CostClass::kAlu:
    case CostClass::kAsync:
    case CostClass::kCopyCommit:
    case CostClass::kCopyWait:
    case CostClass::kBulkCommit:
    case CostClass::kBulkWait:
    case CostClass::kBulkWaitRead:
    case CostClass::kWgmmaCommit:
    case CostClass::kWgmmaWait:
    case CostClass::kTensorLoadWait:
    case CostClass::kTensorStoreWait:
      break;
  }
  return {1, m.alu_latency};
}

// M: a branch and where it meets again; or a dozen instructions with an update and a shuffle that wait for each other
// (docs/measurements/2026-11-23-waits.md).
InstructionCost update_cost(const CostModel& model, SharedUpdate update) {
  switch (update) {
    case SharedUpdate::kGuarded:
      return {4, model.shared_latency, 25};
    case SharedUpdate::kCounted:
      return {14, 120, 120};
    default:
      return instruction_cost(model, CostClass::kAtomic);
  }
}

// M: docs/measurements/2026-11-23-waits.md. Issue of rare numbers: a quarter of what each of 16 warps of an SM took; else a special
// function and a check take the unit for those (docs/measurements/2026-11-25-pipes.md).
InstructionCost division_cost(Numerator numerator) {
  switch (numerator) {
    case Numerator::kZero:
      return {88, 286, 286};
    case Numerator::kDenormal:
      return {185, 536, 536};
    default:
      return {10, 57, 57, 16};
  }
}

}  // namespace imbrex::vgpu
