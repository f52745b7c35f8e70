// SPDX-License-Identifier: Apache-2.0
// Registers that take turns in one slot. PTX gives every value a register of its own, ten thousand in an unrolled kernel: a file of
// more than a megabyte per warp, which the host's caches do not hold. Most of them live within one basic block.
#pragma once

#include <cstdint>
#include <vector>

#include "vgpu/program/contraction.h"

namespace imbrex::vgpu {

/// Not among those that share.
inline constexpr uint32_t kOwnSlot = ~0u;

/// By register: which of the shared slots of its size it takes, counted from 0; or kOwnSlot. Registers of one slot are never needed
/// at the same time: each is written in a basic block, by all lanes that are there, before it is read, and not mentioned in any other
/// block. Those of asynchronous instructions have slots of their own, and so do predicates, parameters, and what is compared, which
/// findings tell of later.
std::vector<uint32_t> shared_slots(const ptx::Function& function,
                                   const std::map<uint32_t, Contraction>& contractions);

}  // namespace imbrex::vgpu
