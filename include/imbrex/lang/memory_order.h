// SPDX-License-Identifier: Apache-2.0
// How operations that threads synchronise by order the memory accesses around them.
#pragma once

#include <cstdint>

namespace imbrex {

/// kAcquire: what others released is visible to the accesses that follow. kRelease: the accesses before are visible to
/// whoever acquires. kAcqRel: both. kRelaxed: neither. [PTX: Memory Consistency Model]
enum class Sem : uint8_t { kDefault, kRelaxed, kAcquire, kRelease, kAcqRel };
/// The threads among which it does: those of the CTA, of the cluster (sm_90), of the GPU, of all GPUs and the host.
enum class Scope : uint8_t { kDefault, kCta, kCluster, kGpu, kSystem };

}  // namespace imbrex
