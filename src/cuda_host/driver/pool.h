// SPDX-License-Identifier: Apache-2.0
// What a pool of memory knows beside its settings: how much of it is in use.
#pragma once

#include <algorithm>

#include "cuda_host/host/memory.h"

namespace imbrex::cuda {

/// CU_MEMPOOL_ATTR_...
inline constexpr int kReleaseThreshold = 4, kReservedCurrent = 5, kReservedHigh = 6, kUsedCurrent = 7,
                     kUsedHigh = 8;

/// The pool that allocations on streams of the device are taken from.
Pool& current_pool(int device);

inline void take_from(Pool& pool, int64_t bytes) {
  const uint64_t used = pool.attributes[kUsedCurrent] += static_cast<uint64_t>(bytes);
  pool.attributes[kUsedHigh] = std::max(pool.attributes[kUsedHigh], used);
}

}  // namespace imbrex::cuda
