// SPDX-License-Identifier: Apache-2.0
// From an address to the bytes: generic addressing, bounds and alignment, for threads and units alike.
#pragma once

#include <string>

#include "vgpu/machine/checks.h"

namespace imbrex::vgpu {

/// Finds the bytes behind `address` of `space`, `bytes` of them, aligned to `alignment`. Reports and returns
/// false when the kernel may not touch them. `who.warp` matters for local addresses only.
bool locate(Cluster& cluster, const Who& who, Space space, uint64_t address, uint32_t bytes,
            uint32_t alignment, AccessKind kind, Place& place);

/// The same for user data in the shared memory of a CTA, by the offset bits of a shared address.
bool locate_shared(const Who& who, Cta& owner, uint32_t offset, uint32_t bytes, uint32_t alignment,
                   AccessKind kind, Place& place);

/// Are these aligned bytes of the CTA's own shared memory, at which locate() would find nothing wrong? `bytes`: a power of two.
inline bool is_own_shared(Cta& cta, Space space, uint64_t address, uint32_t bytes) {
  const auto low = static_cast<uint32_t>(address);
  const uint32_t offset = shared_offset(low);
  return (space == Space::kSharedCta || space == Space::kSharedCluster) && low == address &&
         shared_rank(low) == static_cast<uint32_t>(cta.rank()) && (offset & (bytes - 1)) == 0 &&
         cta.shared().contains(offset, bytes);
}

/// Remembers the allocation at a global address for the instruction, if kernels may touch all of it at any time.
/// `is_constant`: it is one of parameters or constants, and the instruction a load.
void remember_allocation(Cluster& cluster, const Instruction& insn, uint64_t address, bool is_constant);

/// locate(), then the policy's look at it. The way in for all bodies.
template <class Checks>
bool access(Cluster& cluster, const Who& who, Space space, uint64_t address, uint32_t bytes,
            uint32_t alignment, AccessKind kind, Place& place) {
  if (!locate(cluster, who, space, address, bytes, alignment, kind, place)) return false;
  Checks::touched(cluster, who, place, bytes, kind);
  return true;
}

/// Tells the checkers that a unit touches bytes whose address was found good when the work was submitted.
/// Units run outside the templated bodies, so the policy is asked at run time.
inline void touch(Cluster& cluster, const Who& who, const Place& place, uint32_t bytes, AccessKind kind) {
  if (cluster.checks().any()) Checked::touched(cluster, who, place, bytes, kind);
}

inline Place shared_place(Cta& cta, uint32_t offset) {
  return {cta.shared().at(offset), Space::kSharedCta, &cta, nullptr, offset};
}
inline Place global_place(Cluster& cluster, uint64_t address) {
  return {cluster.launch().memory.host(address), Space::kGlobal, nullptr, nullptr, address};
}

/// How findings print a shared address: "shared 0x408", "shared 0x408 of the CTA of rank 1".
std::string shared_text(const Who& who, const Cta& owner, uint32_t offset);
/// "mbarrier ready[1] at shared 0x408", the variable where it is known.
std::string barrier_text(const Who& who, Cta& owner, uint32_t offset);

}  // namespace imbrex::vgpu
