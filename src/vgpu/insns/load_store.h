// SPDX-License-Identifier: Apache-2.0
// What the two ways of carrying out ld and st share: lane by lane (load_store.cpp), and a whole warp at once
// (whole_warp.cpp).
#pragma once

#include "vgpu/machine/access.h"
#include "vgpu/memory/raced_bytes.h"

namespace imbrex::vgpu {

namespace load_store {

/// Instruction::small.
enum Small : int { kSpace = 0, kElementBytes = 1, kCount = 2, kFlags = 3 };
enum Flag : uint8_t {
  kBase64 = 1,
  kSignExtend = 2,
  kWideLanes = 4,
  kOrdered = 8,
  kQuadLanes = 16,
  kStrong = 32,
  kSynchronises = 64,  // .acquire, .release
  kSystem = 128,       // with kOrdered: of system scope
  kOfCta = 128         // without: of the CTA's
};

/// The slot of element e: d for scalars, else the list.
inline Slot element_slot(const Instruction& n, uint32_t e) { return n.small[kCount] == 1 ? n.d : n.list[e]; }

/// Bytes that an instruction may touch without asking further: the CTA's own shared memory, or the allocation that it
/// touched last, or else the one at `address`. Empty where there are none.
struct GoodRange {
  uint64_t begin = 0, bytes = 0;
  std::byte* host = nullptr;
  Space space = Space::kGlobal;
};
inline GoodRange good_range(Warp& w, const Instruction& n, uint64_t address, bool is_load) {
  const Space space = static_cast<Space>(n.small[kSpace]);
  if (space == Space::kSharedCta || space == Space::kSharedCluster) {
    SharedMemory& shared = w.cta().shared();
    return {(static_cast<uint64_t>(w.cta().rank()) << 24) + shared.user_base(),
            shared.end() - shared.user_base(), shared.at(shared.user_base()), Space::kSharedCta};
  }
  Cluster& cluster = w.cta().cluster();
  if (space == Space::kLocal) return {};
  const CachedRange& cached = cluster.cached_range(&n);
  const bool is_constant = is_load && (space == Space::kParam || space == Space::kConst);
  if (address - cached.begin >= cached.bytes &&
      (is_constant || (address >= kHeapBase && address < kSharedWindow)))
    remember_allocation(cluster, n, address, is_constant);
  if (cached.bytes == 0) return {};
  return {cached.begin, cached.bytes, cluster.launch().memory.host(cached.begin), Space::kGlobal};
}

/// Does the lane store what is there already?
bool stores_the_same(Warp& w, const Instruction& n, int lane, const std::byte* at);

}  // namespace load_store

/// Carries out a load or a store for all lanes of a warp at once. False, and nothing has been done, where their bytes
/// are not neighbours (or in steps of up to 16 bytes), or where somebody has to look at them one by one.
template <class Checks>
bool load_whole_warp(Warp& w, const Instruction& n);
template <class Checks>
bool store_whole_warp(Warp& w, const Instruction& n);

}  // namespace imbrex::vgpu
