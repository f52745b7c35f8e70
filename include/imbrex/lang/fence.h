// SPDX-License-Identifier: Apache-2.0
// Memory fences that are the author's to place.
#pragma once

#include <cstdint>

#include "imbrex/core/source_location.h"

namespace imbrex::fence {

enum class Space : uint8_t { kShared, kGlobal, kAll };

/// Orders the executing thread's ordinary accesses (the generic proxy) to memory of this space before those
/// of the async proxy (TMA, tensor cores) that come after, and vice versa: needed between storing to shared
/// memory and a TMA store of it, where every writing thread executes it before the barrier. Any thread;
/// sm_90.
/// [PTX: fence.proxy.async]
void proxy_async(Space space = Space::kShared, SourceLocation where = SourceLocation::current());

}  // namespace imbrex::fence
