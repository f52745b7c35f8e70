// SPDX-License-Identifier: Apache-2.0
// The fifth-generation tensor core of one CTA: its tensor memory and what is under way in it.
#pragma once

#include <cstdint>
#include <vector>

#include "vgpu/machine/async.h"
#include "vgpu/memory/tensor_memory.h"

namespace imbrex::vgpu {

class Cta;
class Warp;

/// A collective of a CTA pair (alloc, dealloc, relinquish) that one CTA has entered and the other not yet.
struct PairRequest {
  const Instruction* insn = nullptr;  // null: none
  uint32_t columns = 0;
  uint32_t column = 0;         // dealloc
  uint32_t result_offset = 0;  // alloc: where the address goes
};

struct TensorUnit {
  /// Every CTA has a tensor memory of its own here, as if it were alone on its SM: it is owner kOwner of its
  /// blocks.
  static constexpr int64_t kOwner = 0;

  TensorMemory memory;
  TensorAllocator allocator;
  TensorPermit permit;
  PairRequest request;
  QueueId queue = kUnordered;  // mma, cp, shift and commit run in the order of issue
  /// tcgen05.ld and st under way, per warp.
  struct Transfers {
    int loads = 0;
    int stores = 0;
    std::vector<uint32_t> unwaited;  // dense numbers of registers loaded since the last wait::ld
  };
  std::vector<Transfers> transfers;

  Transfers& transfers_of(int warp) {
    if (transfers.size() <= static_cast<size_t>(warp)) transfers.resize(static_cast<size_t>(warp) + 1);
    return transfers[static_cast<size_t>(warp)];
  }
};

/// The unit of a CTA, made when first asked for.
TensorUnit& tensor_unit(Cta& cta);

/// Reports columns that are not in one of the CTA's blocks. `what` completes "tensor memory columns 0 to 31:
/// ...".
bool check_allocated(Cluster& cluster, const Who& who, Cta& cta, uint32_t column, uint32_t columns);

/// Submits an operation to the CTA's in-order queue.
void submit_to_tensor_core(Cta& cta, std::unique_ptr<AsyncOp> op);

/// The CTAs an instruction of `cta_group` works in: {own, null}, or {even, odd} of the pair. False after a
/// finding when the pair is not complete.
struct CtaPair {
  Cta* even = nullptr;  // the only one for cta_group::1
  Cta* odd = nullptr;
  Cta& at(uint32_t index) const { return index == 0 ? *even : *odd; }
};
bool resolve_pair(Cluster& cluster, const Who& who, Cta& own, int cta_group, CtaPair& pair);

}  // namespace imbrex::vgpu
