// SPDX-License-Identifier: Apache-2.0
// Memory fences that are the author's to place.
#pragma once

#include <cstdint>

#include "imbrex/core/source_location.h"

namespace imbrex::fence {

enum class Space : uint8_t { kShared, kGlobal, kAll };

/// Orders the thread's generic accesses to the space and the async proxy's (TMA, tensor cores): wanted
/// between storing to shared memory and a TMA store of it. sm_90. [PTX: fence.proxy.async]
void proxy_async(Space space = Space::kShared, SourceLocation where = SourceLocation::current());

}  // namespace imbrex::fence
