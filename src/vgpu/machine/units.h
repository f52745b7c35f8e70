// SPDX-License-Identifier: Apache-2.0
// State of the asynchronous units: what a CTA and a cluster own beside warps and shared memory.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "vgpu/checks/chunk_origins.h"
#include "vgpu/machine/cluster_barrier.h"
#include "vgpu/machine/copy_groups.h"
#include "vgpu/machine/register_pool.h"
#include "vgpu/machine/tensor_unit.h"
#include "vgpu/machine/wgmma_unit.h"
#include "vgpu/memory/mbarrier.h"

namespace imbrex::vgpu {

class Cta;
class Cluster;
class Warp;

/// Per CTA: mbarrier objects, cp.async and bulk groups, tensor memory, ...
struct CtaUnits {
  MbarrierTable mbarriers;
  ChunkOrigins chunk_origins;
  /// Made when first used: few kernels use every unit.
  std::unique_ptr<TensorUnit> tensor;
  std::vector<std::unique_ptr<Warpgroup>> warpgroups;
  RegisterPool registers;
  /// By warp: the setmaxnreg instructions it has executed, which carry their number of registers.
  std::vector<std::vector<const Instruction*>> register_budgets;
  /// A thread of the CTA has seen that cluster launch control had nothing left.
  bool saw_failed_cancel = false;

  CopyGroups& cp_async_of(int warp) { return entry(cp_async_, warp); }
  BulkGroups& bulk_groups_of(int warp) { return entry(bulk_groups_, warp); }
  /// Of the warps up to the last one that has asked for its own.
  const std::vector<BulkGroups>& bulk_groups() const { return bulk_groups_; }

 private:
  template <class T>
  static T& entry(std::vector<T>& list, int index) {
    if (list.size() <= static_cast<size_t>(index)) list.resize(static_cast<size_t>(index) + 1);
    return list[static_cast<size_t>(index)];
  }
  std::vector<CopyGroups> cp_async_;  // by warp
  std::vector<BulkGroups> bulk_groups_;
};

/// Per cluster.
struct ClusterUnits {
  ClusterBarrier barrier;
};

/// The asynchronous instruction that a register belongs to until it has been waited for, and that wait; null
/// when it belongs to none.
struct PendingResult {
  const char* instruction = nullptr;
  const char* wait = "";
};
PendingResult pending_result(Warp& warp, uint32_t register_number);
/// Its being read too early has been reported: from now on it counts as written.
void note_read_early(Warp& warp, uint32_t register_number);

/// Of registers of tcgen05.ld that are waited for: lanes loaded from cells that nobody has written count as never
/// written.
void note_unwritten_cells(Warp& warp);

/// A copy in flight that is to write what is read too early, "" where there is none; and what to do.
struct ComingCopy {
  std::string fact, hint;
};
ComingCopy coming_copy(Cta& cta, uint32_t shared_offset);

/// Called when the last thread of a CTA has exited: reports what is still in flight or was not given back.
void check_cta_exit(Cta& cta);

}  // namespace imbrex::vgpu
