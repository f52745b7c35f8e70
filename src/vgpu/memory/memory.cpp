// SPDX-License-Identifier: Apache-2.0
#include "vgpu/memory/memory.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <tuple>

#include "imbrex/core/error.h"

namespace imbrex::vgpu {

namespace {

constexpr const char* kPurpose = "for device memory";
constexpr const char* kHelp = "lower Options::memory_bytes";

constexpr uint64_t kPageBytes = 4096;

constexpr uint64_t round_up(uint64_t value, uint64_t to) { return (value + to - 1) / to * to; }

/// Freed stretches at least this large give their host pages back.
constexpr uint64_t kReturnedBytes = 1 << 20;

}  // namespace

void* reserve(uint64_t bytes, const char* purpose, const char* help) {
  void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED)
    throw LaunchError(
        {{},
         fmt::format("virtual gpu: cannot reserve {} bytes of address space {}", bytes, purpose),
         {},
         help});
  return at;
}

std::vector<std::string> freed_where(const Allocation& allocation) {
  const SourceLocation& at = allocation.freed_at;
  if (!at.is_known()) return {};
  return {fmt::format("freed at {}:{}", at.file, at.line)};
}

GlobalMemory::GlobalMemory(int64_t bytes, int gpus)
    : size_(round_up(static_cast<uint64_t>(bytes), kPageBytes) * static_cast<uint64_t>(gpus) +
            (kHeapBase - kGlobalBase)),
      stretch_bytes_(round_up(static_cast<uint64_t>(bytes), kPageBytes)) {
  for (int i = 0; i < gpus; ++i) {
    const uint64_t begin = kHeapBase + static_cast<uint64_t>(i) * stretch_bytes_;
    stretches_.push_back({begin, begin + stretch_bytes_});
  }
  base_ = static_cast<std::byte*>(reserve(size_, kPurpose, kHelp));
  written_ = std::make_unique<WrittenMap>(size_);
}

GlobalMemory::~GlobalMemory() {
  for (const Allocation& allocation : allocations_)
    if (allocation.host_visible && !allocation.freed) release_host_visible(allocation);
  munmap(base_, size_);
  if (shared_file_ >= 0) close(shared_file_);
}

uint64_t GlobalMemory::allocate(uint64_t bytes, std::string name, uint64_t alignment, int gpu) {
  alignment = std::max<uint64_t>(alignment, 256);
  if (stretches_.size() > 1) name += fmt::format("{}of rank {}", name.empty() ? "an allocation " : " ", gpu);
  const auto take = [&](uint64_t address) {
    insert({address, bytes, false, false,
            name.empty() ? fmt::format("allocation {}", count_++) : std::move(name)});
    return address;
  };
  Stretch& stretch = stretches_[static_cast<size_t>(gpu)];
  const uint64_t address = round_up(stretch.next + kGuardBytes, alignment);
  if (bytes <= stretch_bytes_ && address <= stretch.end - std::min(bytes, stretch.end)) {
    stretch.next = address + bytes;
    return take(address);
  }
  // Fresh space has run out: reuse what was freed longest ago and is large enough. Until now freed memory
  // stayed untouched, so that late accesses to it are recognised.
  for (size_t i = 0; i < allocations_.size(); ++i) {
    const Allocation& old = allocations_[i];
    // Page-aligned memory wants its last page for itself, as it had only if it was page-aligned before.
    if (alignment >= kPageBytes && !old.host_visible) continue;
    if (!old.freed || old.bytes < bytes || old.address % alignment != 0) continue;
    if (gpu_of(old.address) != gpu || old.address >= stretch.end) continue;
    const uint64_t reused = old.address;
    allocations_.erase(allocations_.begin() + static_cast<ptrdiff_t>(i));
    return take(reused);
  }
  throw LaunchError(
      {{},
       fmt::format("virtual gpu: out of device memory, {} bytes asked for and {} in all", bytes, size_),
       {},
       "raise Options::memory_bytes"});
}

uint64_t GlobalMemory::allocate_heap(uint64_t bytes, const DeviceHeap& heap, int gpu) {
  const uint64_t address = allocate(bytes, "the heap of malloc", kPageBytes, gpu);
  for (Allocation& a : allocations_)
    if (a.address == address && !a.freed) a.heap = &heap;
  return address;
}

uint64_t GlobalMemory::allocate_on_all(uint64_t bytes, const std::string& name, uint64_t alignment) {
  alignment = std::max<uint64_t>(alignment, 256);
  const uint64_t taken = round_up(bytes + kGuardBytes, alignment);
  for (const Stretch& stretch : stretches_)
    if (taken > stretch.end || stretch.end - taken < stretch.next + kGuardBytes + alignment)
      throw LaunchError({{},
                         fmt::format("virtual gpu: out of device memory, {} bytes asked for on each of {} "
                                     "ranks with {} each",
                                     bytes, stretches_.size(), stretch_bytes_),
                         {},
                         "raise Options::memory_bytes"});
  for (size_t i = 0; i < stretches_.size(); ++i) {
    Stretch& stretch = stretches_[i];
    // Stretches are whole pages, so that rounding down gives the same place in each for alignments up to that.
    stretch.end = (stretch.end - taken) / alignment * alignment;
    insert({stretch.end, bytes, false, false, fmt::format("{} of rank {}", name, i)});
  }
  return stretches_.front().end;
}

// One file in memory, mapped twice: in the arena, where kernels see it, and at the address itself.
uint64_t GlobalMemory::allocate_host_visible(uint64_t bytes, std::string name) {
  const uint64_t address = allocate(bytes, std::move(name), kPageBytes);
  // The last page is nobody else's.
  stretches_.front().next = round_up(stretches_.front().next, kPageBytes);
  const uint64_t mapped = round_up(std::max<uint64_t>(bytes, 1), kPageBytes);
  const int file = memfd_create("imbrex-host-visible", MFD_CLOEXEC);
  bool good = file >= 0 && ftruncate(file, static_cast<off_t>(mapped)) == 0;
  constexpr int kAccess = PROT_READ | PROT_WRITE;
  void* const own = reinterpret_cast<void*>(address);
  good = good && mmap(own, mapped, kAccess, MAP_SHARED | MAP_FIXED_NOREPLACE, file, 0) == own;
  good = good && mmap(host(address), mapped, kAccess, MAP_SHARED | MAP_FIXED, file, 0) != MAP_FAILED;
  if (file >= 0) close(file);
  if (!good)
    throw LaunchError(
        {{},
         fmt::format("virtual gpu: cannot map {} bytes for the host at the device address 0x{:x}", bytes,
                     address),
         {},
         "something else of the process lies there: a program that is built with AddressSanitizer has its "
         "shadow at "
         "these addresses, and can have no managed or pinned memory here"});
  auto made = std::ranges::find(allocations_, address, &Allocation::address);
  made->host_visible = true;
  mark_written(address, bytes);  // nobody sees what the host writes
  return address;
}

void GlobalMemory::release_host_visible(const Allocation& allocation) {
  const uint64_t mapped = round_up(std::max<uint64_t>(allocation.bytes, 1), kPageBytes);
  munmap(reinterpret_cast<void*>(allocation.address), mapped);
  restore(allocation.address, allocation.address + mapped);
}

void GlobalMemory::insert(Allocation allocation) {
  auto at = std::upper_bound(allocations_.begin(), allocations_.end(), allocation.address,
                             [](uint64_t a, const Allocation& b) { return a < b.address; });
  allocations_.insert(at, std::move(allocation));
}

uint64_t GlobalMemory::allocate_constant(uint64_t bytes, std::string name, uint64_t alignment) {
  const uint64_t address = round_up(next_constant_, std::max<uint64_t>(alignment, 4));
  if (address + bytes > kGlobalBase + kConstBytes)
    throw CompileError({{},
                        fmt::format("{}: constant memory is full, {} bytes are wanted and {} of {} are left",
                                    name, bytes, kGlobalBase + kConstBytes - next_constant_, kConstBytes),
                        {},
                        ""});
  next_constant_ = address + bytes;
  insert({address, bytes, false, true, std::move(name)});
  return address;
}

void GlobalMemory::place(uint64_t address, uint64_t bytes, std::string name) {
  insert({address, bytes, false, true, std::move(name)});
  mark_written(address, bytes);
}

void GlobalMemory::remove(uint64_t address) {
  // The constant bank is given back from its end, which is how modules come and go.
  const Allocation* gone = find(address);
  if (gone != nullptr && gone->address + gone->bytes == next_constant_) next_constant_ = gone->address;
  std::erase_if(allocations_, [&](const Allocation& a) { return a.address == address; });
}

bool GlobalMemory::free(uint64_t address, SourceLocation where) {
  for (Allocation& a : allocations_) {
    if (a.address != address || a.freed || a.read_only || a.mapped) continue;
    a.freed = true;
    a.freed_at = where;
    a.heap = nullptr;
    if (a.host_visible) {
      release_host_visible(a);
    } else if (a.bytes >= kReturnedBytes) {
      give_back_pages(address, address + a.bytes);
    }
    forget_written(address, a.bytes);
    return true;
  }
  return false;
}

std::pair<uint64_t, uint64_t> GlobalMemory::give_back_pages(uint64_t begin, uint64_t end) {
  // Whole pages only: the ends may share theirs with neighbours.
  const uint64_t from = round_up(begin, kPageBytes), to = end / kPageBytes * kPageBytes;
  if (to <= from) return {end, end};
  // Of a shared file the bytes themselves have to go.
  madvise(host(from), to - from, shared_file_ < 0 ? MADV_DONTNEED : MADV_REMOVE);
  return {from, to};
}

void GlobalMemory::zero(uint64_t address, uint64_t bytes) {
  const Allocation* const allocation = find(address);
  const uint64_t end = address + bytes;
  uint64_t from = end, to = end;
  if (bytes >= kReturnedBytes && !allocation->host_visible && !allocation->mapped)
    std::tie(from, to) = give_back_pages(address, end);
  std::memset(host(address), 0, from - address);
  std::memset(host(to), 0, end - to);
  mark_written(address, bytes);
}

const Allocation* GlobalMemory::find(uint64_t address) const {
  auto after = std::upper_bound(allocations_.begin(), allocations_.end(), address,
                                [](uint64_t a, const Allocation& b) { return a < b.address; });
  if (after == allocations_.begin()) return nullptr;
  const Allocation& candidate = *(after - 1);
  return address - candidate.address < std::max<uint64_t>(candidate.bytes, 1) ? &candidate : nullptr;
}

const Allocation* GlobalMemory::nearest(uint64_t address) const {
  const Allocation* best = nullptr;
  uint64_t best_distance = ~uint64_t{0};
  for (const Allocation& a : allocations_) {
    uint64_t distance = 0;
    if (address < a.address) distance = a.address - address;
    if (address >= a.address + a.bytes) distance = address - (a.address + a.bytes) + 1;
    if (distance < best_distance) {
      best_distance = distance;
      best = &a;
    }
  }
  return best;
}

bool GlobalMemory::is_written_to_end(uint64_t address, uint64_t bytes) const {
  const Allocation* const allocation = find(address);
  if (allocation == nullptr) return true;
  const uint64_t left = allocation->address + allocation->bytes - address;
  return left < bytes && written_->all(address - kGlobalBase, left);
}

void GlobalMemory::settle_missed_writes() {
  if (!misses_writes_) return;
  misses_writes_ = false;
  for (const Allocation& a : allocations_)
    if (!a.freed) mark_written(a.address, a.bytes);
}

bool GlobalMemory::is_padding(uint64_t address) const {
  const Allocation* const allocation = find(address);
  if (written_ == nullptr || allocation == nullptr) return false;
  const uint64_t end = allocation->address + allocation->bytes;
  for (const uint64_t reach : {uint64_t{256}, uint64_t{4096}, uint64_t{1} << 20}) {
    const uint64_t from = std::max(allocation->address, address - std::min(address, reach));
    if (written_->any(from - kGlobalBase, std::min(end, address + reach) - from)) return true;
  }
  return false;
}

}  // namespace imbrex::vgpu
