// SPDX-License-Identifier: Apache-2.0
#include "vgpu/machine/access.h"

#include <fmt/format.h>

#include <algorithm>

#include "vgpu/memory/device_heap.h"

namespace imbrex::vgpu {

namespace {

const char* verb(AccessKind kind) {
  switch (kind) {
    case AccessKind::kRead:
    case AccessKind::kLoad:
    case AccessKind::kStrongRead:
      return "reads";
    case AccessKind::kWrite:
    case AccessKind::kSameWrite:
    case AccessKind::kStrongWrite:
      return "writes";
    case AccessKind::kAtomic:
      return "updates";
  }
  return "";
}

Finding* open(Cluster& cluster, const Who& who, FindingKind kind, uint64_t address,
              BentRule rule = BentRule::kNone) {
  Finding* finding = cluster.log().open(kind, who, address, nullptr, rule);
  if (cluster.log().full()) cluster.stop();
  return finding;
}

bool misaligned(Cluster& cluster, const Who& who, uint64_t address, uint32_t bytes, uint32_t alignment,
                AccessKind kind, const char* space) {
  if (Finding* f = open(cluster, who, FindingKind::kMisaligned, address)) {
    f->message = fmt::format("{} {} bytes of {} memory at 0x{:x}, which is not a multiple of {}", verb(kind),
                             bytes, space, address, alignment);
  }
  return false;
}

bool outside_shared(Cluster& cluster, const Who& who, Cta& owner, uint32_t offset, uint32_t bytes,
                    AccessKind kind) {
  if (Finding* f = open(cluster, who, FindingKind::kOutOfBounds, offset)) {
    const SharedMemory& shared = owner.shared();
    const Program& program = cluster.program();
    f->message = fmt::format("{} {} bytes of shared memory at 0x{:x}, outside [0x{:x}, 0x{:x})", verb(kind),
                             bytes, offset, shared.user_base(), shared.end());
    f->facts.push_back(fmt::format("the CTA has {} bytes: {} static, {} dynamic",
                                   shared.end() - shared.user_base(), program.static_shared_bytes,
                                   cluster.launch().dynamic_shared_bytes));
    if (cluster.launch().dynamic_shared_bytes == 0 && program.static_shared_bytes == 0)
      f->hint = "launch with dynamic_shared_bytes";
  }
  return false;
}

/// A compare-and-swap of a word of which the allocation has the first bytes.
bool is_cas_past_end(Cluster& cluster, const Who& who, uint64_t address, uint32_t bytes) {
  if (who.insn == nullptr || !cluster.program().info[who.insn->index].in_cas || bytes != 4) return false;
  const Allocation* allocation = cluster.launch().memory.find(address);
  return allocation != nullptr && !allocation->freed && !allocation->read_only &&
         address < allocation->address + allocation->bytes;
}

/// What of the kernels' heap may be the reason: a block nearby, or that malloc has returned null.
void add_heap_facts(Cluster& cluster, uint64_t address, const Allocation* in, Finding& finding) {
  constexpr uint64_t kNearNull = 1 << 16;
  const DeviceHeap* own = cluster.launch().heap;
  if (address < kNearNull && own != nullptr && own->failures() > 0) {
    finding.facts.push_back(fmt::format("malloc has returned null {} times, with a heap of {} bytes",
                                        own->failures(), own->bytes()));
    finding.hint = "a larger heap: cudaDeviceSetLimit(cudaLimitMallocHeapSize, ...) before the first launch";
  }
  if (in == nullptr || in->heap == nullptr) return;
  if (const std::optional<DeviceHeap::Block> block = in->heap->find(address))
    finding.facts.push_back(fmt::format("{} bytes past the end of {} bytes allocated at {}",
                                        address - std::min(address, block->address + block->bytes),
                                        block->bytes, block->allocated_at));
}

/// False, or true where the access is let pass.
bool outside_global(Cluster& cluster, const Who& who, uint64_t address, uint32_t bytes, AccessKind kind,
                    const char* space) {
  const BentRule rule =
      is_cas_past_end(cluster, who, address, bytes) ? BentRule::kAtomicPastEnd : BentRule::kNone;
  if (Finding* f = open(cluster, who, FindingKind::kOutOfBounds, address, rule)) {
    f->message = fmt::format("{} {} bytes of {} memory at 0x{:x}, outside every allocation", verb(kind),
                             bytes, space, address);
    const Allocation* near = cluster.launch().memory.nearest(address);
    add_heap_facts(cluster, address, near, *f);
    // What lies further away has nothing to do with it.
    constexpr uint64_t kFar = uint64_t{1} << 34;
    const bool is_near =
        near != nullptr && address + kFar >= near->address && address < near->address + near->bytes + kFar;
    if (is_near && near->heap == nullptr) {
      std::string where;
      if (address >= near->address + near->bytes)
        where = fmt::format("{} bytes past the end of", address - (near->address + near->bytes));
      else if (address < near->address)
        where = fmt::format("{} bytes before the start of", near->address - address);
      else
        where = "across the end of";
      f->facts.push_back(fmt::format("{} {} [0x{:x}, 0x{:x}), {} bytes", where, near->name, near->address,
                                     near->address + near->bytes, near->bytes));
    }
  }
  return rule != BentRule::kNone && cluster.log().is_practical();
}

/// Whether kernels may touch bytes of their heap: those of one block that has not been freed.
bool in_heap_block(Cluster& cluster, const Who& who, const Allocation& allocation, uint64_t address,
                   uint32_t bytes, AccessKind kind) {
  if (allocation.heap->is_live(address, bytes)) return true;
  const std::optional<DeviceHeap::Block> block = allocation.heap->find(address);
  if (!block.has_value() || !block->freed || !block->contains(address, bytes)) {
    outside_global(cluster, who, address, bytes, kind, "global");
    return false;
  }
  if (Finding* f = open(cluster, who, FindingKind::kUseAfterFree, address)) {
    f->message = fmt::format("{} {} bytes at {:#x} in {} bytes of malloc, which have been freed", verb(kind),
                             bytes, address, block->bytes);
    f->facts.push_back(fmt::format("allocated at {}, freed at {}", block->allocated_at, block->freed_at));
  }
  return false;
}

bool locate_global(Cluster& cluster, const Who& who, uint64_t address, uint32_t bytes, AccessKind kind,
                   const char* space, Place& place) {
  GlobalMemory& memory = cluster.launch().memory;
  CachedRange& cached = cluster.cached_range(who.insn);
  if (address - cached.begin > cached.bytes || bytes > cached.bytes - (address - cached.begin)) {
    const Allocation* allocation = memory.find(address);
    const bool is_inside = allocation != nullptr && allocation->contains(address, bytes);
    if (!is_inside && !outside_global(cluster, who, address, bytes, kind, space)) return false;
    if (allocation->freed) {
      if (Finding* f = open(cluster, who, FindingKind::kUseAfterFree, address)) {
        f->message = fmt::format("{} {} bytes at 0x{:x} in {}, which has been freed", verb(kind), bytes,
                                 address, allocation->name);
        for (std::string& fact : freed_where(*allocation)) f->facts.push_back(std::move(fact));
      }
      return false;
    }
    if (allocation->heap != nullptr && !in_heap_block(cluster, who, *allocation, address, bytes, kind))
      return false;
    if (allocation->read_only && is_write(kind)) {
      if (Finding* f = open(cluster, who, FindingKind::kIllegalInstruction, address)) {
        f->message = fmt::format("{} {} bytes at 0x{:x} in {}, which is read-only", verb(kind), bytes,
                                 address, allocation->name);
      }
      return false;
    }
    if (!allocation->read_only && allocation->heap == nullptr)
      cached = {allocation->address, allocation->bytes};
  }
  place.host = memory.host(address);
  place.space = Space::kGlobal;
  place.address = address;
  return true;
}

bool locate_local(Cluster& cluster, const Who& who, uint64_t offset, uint32_t bytes, AccessKind kind,
                  Place& place) {
  Warp* const warp =
      who.warp < 0
          ? nullptr
          : cluster.cta(static_cast<uint32_t>(who.cta->rank()))->warps()[static_cast<size_t>(who.warp)].get();
  const uint32_t size = warp == nullptr ? 0 : warp->local_bytes();
  if (offset > size || bytes > size - offset) {
    if (Finding* f = open(cluster, who, FindingKind::kOutOfBounds, offset)) {
      f->message = fmt::format("{} {} bytes of local memory at 0x{:x}; the thread has {} bytes", verb(kind),
                               bytes, offset, size);
    }
    return false;
  }
  place.warp = warp;
  place.host = warp->local(who.lane) + offset;
  place.space = Space::kLocal;
  place.address = offset;
  return true;
}

bool locate_cluster_shared(Cluster& cluster, const Who& who, uint64_t address, bool own_only, uint32_t bytes,
                           uint32_t alignment, AccessKind kind, Place& place) {
  const uint32_t low = static_cast<uint32_t>(address);
  const uint32_t rank = shared_rank(low);
  Cta* owner = cluster.cta(rank);
  const bool foreign = who.cta != nullptr && static_cast<int>(rank) != who.cta->rank();
  if (address > 0xFFFF'FFFFu || owner == nullptr || (own_only && foreign)) {
    if (Finding* f = open(cluster, who, FindingKind::kOutOfBounds, address)) {
      f->message =
          fmt::format("{} {} bytes of shared memory at 0x{:x}, which names CTA rank {} of a cluster of {}",
                      verb(kind), bytes, address, rank, cluster.ctas().size());
      if (owner != nullptr) f->hint = "another CTA's shared memory is reached with .shared::cluster";
    }
    return false;
  }
  return locate_shared(who, *owner, shared_offset(low), bytes, alignment, kind, place);
}

}  // namespace

bool locate_shared(const Who& who, Cta& owner, uint32_t offset, uint32_t bytes, uint32_t alignment,
                   AccessKind kind, Place& place) {
  Cluster& cluster = owner.cluster();
  if (!owner.shared().contains(offset, bytes))
    return outside_shared(cluster, who, owner, offset, bytes, kind);
  if ((offset & (alignment - 1)) != 0)
    return misaligned(cluster, who, offset, bytes, alignment, kind, "shared");
  if (owner.finished() && who.cta != &owner) {
    if (Finding* f = open(cluster, who, FindingKind::kAsyncInFlight, offset)) {
      f->message = fmt::format("{} shared memory of CTA rank {}, which has exited", verb(kind), owner.rank());
      f->hint = "end the kernel with a cluster barrier";
    }
    return false;
  }
  place.host = owner.shared().at(offset);
  place.space = Space::kSharedCta;
  place.cta = &owner;
  place.address = offset;
  return true;
}

bool locate(Cluster& cluster, const Who& who, Space space, uint64_t address, uint32_t bytes,
            uint32_t alignment, AccessKind kind, Place& place) {
  const char* space_name = "global";
  switch (space) {
    case Space::kGeneric:
      if (in_window(address, kSharedWindow))
        return locate_cluster_shared(cluster, who, address - kSharedWindow, false, bytes, alignment, kind,
                                     place);
      if (in_window(address, kLocalWindow))
        return locate(cluster, who, Space::kLocal, address - kLocalWindow, bytes, alignment, kind, place);
      break;
    case Space::kSharedCta:
    case Space::kSharedCluster:
      // A generic address: the chip takes its low 32 bits, which are the shared address.
      if (in_window(address, kSharedWindow)) address -= kSharedWindow;
      return locate_cluster_shared(cluster, who, address, space == Space::kSharedCta, bytes, alignment, kind,
                                   place);
    case Space::kLocal:
      if ((address & (alignment - 1)) != 0)
        return misaligned(cluster, who, address, bytes, alignment, kind, "local");
      return locate_local(cluster, who, address, bytes, kind, place);
    case Space::kConst:
      space_name = "constant";
      break;
    case Space::kParam:
      space_name = "parameter";
      break;
    case Space::kGlobal:
      break;
  }
  if ((address & (alignment - 1)) != 0)
    return misaligned(cluster, who, address, bytes, alignment, kind, space_name);
  return locate_global(cluster, who, address, bytes, kind, space_name, place);
}

void remember_allocation(Cluster& cluster, const Instruction& insn, uint64_t address, bool is_constant) {
  const Allocation* allocation = cluster.launch().memory.find(address);
  if (allocation != nullptr && !allocation->freed && allocation->read_only == is_constant &&
      allocation->heap == nullptr)
    cluster.cached_range(&insn) = {allocation->address, allocation->bytes};
}

std::string shared_text(const Who& who, const Cta& owner, uint32_t offset) {
  if (who.cta == &owner) return fmt::format("shared {:#x}", offset);
  return fmt::format("shared {:#x} of the CTA of rank {}", offset, owner.rank());
}

std::string barrier_text(const Who& who, Cta& owner, uint32_t offset) {
  const std::string variable = owner.units().mbarriers.variable_of(offset);
  return fmt::format("mbarrier {}{}at {}", variable, variable.empty() ? "" : " ",
                     shared_text(who, owner, offset));
}

}  // namespace imbrex::vgpu
