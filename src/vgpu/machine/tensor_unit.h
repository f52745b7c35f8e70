// SPDX-License-Identifier: Apache-2.0
// The fifth-generation tensor core of one CTA: its tensor memory and what is under way in it.
#pragma once

#include <cstdint>
#include <vector>

#include "vgpu/machine/async.h"
#include "vgpu/memory/tensor_memory.h"

namespace imbrex::vgpu {

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
    /// Of those, the lanes whose cells nobody has written, and the load.
    struct Unwritten {
      uint32_t number;
      Mask lanes;
      const Instruction* insn;
    };
    std::vector<Unwritten> unwritten;
  };
  std::vector<Transfers> transfers;

  Transfers& transfers_of(int warp) {
    if (transfers.size() <= static_cast<size_t>(warp)) transfers.resize(static_cast<size_t>(warp) + 1);
    return transfers[static_cast<size_t>(warp)];
  }
};

}  // namespace imbrex::vgpu
