// SPDX-License-Identifier: Apache-2.0
// How many registers each thread has when a kernel that executes setmaxnreg begins.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/target.h"
#include "ir/ir.h"

namespace imbrex::ir {

/// The number that is given to ptxas, or an equal share of the multiprocessor's, of whole warp groups.
inline int64_t registers_at_entry(const Function& function, const Target& target) {
  constexpr int64_t kStep = 8, kWarpGroup = 128, kMost = 256;
  if (function.max_registers) return *function.max_registers / kStep * kStep;
  const int64_t threads = (function.threads() + kWarpGroup - 1) / kWarpGroup * kWarpGroup;
  return std::min(target.registers_per_sm / threads / kStep * kStep, kMost);
}

}  // namespace imbrex::ir
