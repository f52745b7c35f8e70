// SPDX-License-Identifier: Apache-2.0
// From an address to the bytes: generic addressing, bounds and alignment, for threads and units alike.
#pragma once

#include <cstring>

#include "vgpu/machine/checks.h"

namespace imbrex::vgpu {

/// Finds the bytes behind `address` of `space`, `bytes` of them, aligned to `alignment`. Reports and returns
/// false when the kernel may not touch them. `who.warp` matters for local addresses only.
bool locate(Cluster& cluster, const Who& who, Space space, uint64_t address, uint32_t bytes,
            uint32_t alignment, AccessKind kind, Place& place);

/// The same for user data in the shared memory of a CTA, by the offset bits of a shared address.
bool locate_shared(const Who& who, Cta& owner, uint32_t offset, uint32_t bytes, uint32_t alignment,
                   AccessKind kind, Place& place);

/// locate(), then the policy's look at it. The way in for all bodies.
template <class Checks>
bool access(Cluster& cluster, const Who& who, Space space, uint64_t address, uint32_t bytes,
            uint32_t alignment, AccessKind kind, Place& place) {
  if (!locate(cluster, who, space, address, bytes, alignment, kind, place)) return false;
  Checks::touched(cluster, who, place, bytes, kind);
  return true;
}

}  // namespace imbrex::vgpu
