// SPDX-License-Identifier: Apache-2.0
// Addresses and memory apart, as CUDA's virtual memory management has them, and memory that several processes see.
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

#include "imbrex/core/error.h"
#include "vgpu/memory/memory.h"

namespace imbrex::vgpu {
namespace {

constexpr uint64_t kPageBytes = 4096;
constexpr int kAccess = PROT_READ | PROT_WRITE;

constexpr uint64_t round_down(uint64_t value) { return value / kPageBytes * kPageBytes; }
constexpr uint64_t round_up(uint64_t value, uint64_t to = kPageBytes) { return (value + to - 1) / to * to; }

[[noreturn]] void fail(std::string message) {
  throw LaunchError({{}, "virtual gpu: " + std::move(message), {}, ""});
}

}  // namespace

uint64_t GlobalMemory::reserve_addresses(uint64_t bytes, uint64_t alignment) {
  Stretch& stretch = stretches_.front();
  const uint64_t address = round_up(stretch.next + kGuardBytes, std::max(alignment, kPageBytes));
  const uint64_t end = round_up(address + bytes);
  if (bytes > size_ || end > stretch.end) fail(fmt::format("{} bytes of addresses are not free", bytes));
  stretch.next = end;
  return address;
}

void GlobalMemory::map(uint64_t address, uint64_t bytes, int file, uint64_t offset) {
  if (mmap(host(address), bytes, kAccess, MAP_SHARED | MAP_FIXED, file, static_cast<off_t>(offset)) ==
      MAP_FAILED)
    fail(fmt::format("{} bytes cannot be mapped at 0x{:x}", bytes, address));
  mappings_[address] = bytes;
  mark_written(address, bytes);
  join_mappings();
}

void GlobalMemory::unmap(uint64_t address, uint64_t bytes) {
  mappings_.erase(address);
  restore(address, address + bytes);
  join_mappings();
}

// Kernels may reach from one mapping into its neighbour, so that both are one allocation.
void GlobalMemory::join_mappings() {
  std::erase_if(allocations_, [](const Allocation& a) { return a.mapped; });
  for (auto at = mappings_.begin(); at != mappings_.end();) {
    const uint64_t begin = at->first;
    uint64_t end = begin;
    for (; at != mappings_.end() && at->first == end; ++at) end += at->second;
    Allocation joined{begin, end - begin, false, false, "mapped memory"};
    joined.mapped = true;
    insert(std::move(joined));
  }
}

void GlobalMemory::restore(uint64_t begin, uint64_t end) {
  const bool is_shared = shared_file_ >= 0;
  const int how = MAP_FIXED | MAP_NORESERVE | (is_shared ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS);
  mmap(host(begin), end - begin, kAccess, how, shared_file_,
       is_shared ? static_cast<off_t>(begin - kGlobalBase) : off_t{0});
  if (is_shared) madvise(host(begin), end - begin, MADV_REMOVE);
}

int GlobalMemory::shared_file() {
  if (shared_file_ >= 0) return shared_file_;
  const int file = memfd_create("imbrex-device-memory", MFD_CLOEXEC);
  bool good = file >= 0 && ftruncate(file, static_cast<off_t>(size_)) == 0;
  const auto write_all = [&](uint64_t begin, uint64_t end) {
    for (uint64_t at = begin; good && at < end;) {
      const ssize_t count = pwrite(file, host(at), end - at, static_cast<off_t>(at - kGlobalBase));
      good = count > 0;
      at += good ? static_cast<uint64_t>(count) : 0;
    }
  };
  // Memory that is mapped already stays what it is. The rest moves into the file, whole pages at a time.
  std::vector<std::pair<uint64_t, uint64_t>> kept;
  for (const Allocation& a : allocations_)
    if ((a.host_visible && !a.freed) || a.mapped) kept.push_back({a.address, round_up(a.address + a.bytes)});
  for (const Allocation& a : allocations_)
    if (!a.freed && !a.host_visible && !a.mapped)
      write_all(round_down(a.address), std::min(round_up(a.address + a.bytes), kGlobalBase + size_));
  kept.push_back({kGlobalBase + size_, 0});
  uint64_t begin = kGlobalBase;
  for (const auto& [from, to] : kept) {
    if (good && from > begin)
      good = mmap(host(begin), from - begin, kAccess, MAP_SHARED | MAP_FIXED | MAP_NORESERVE, file,
                  static_cast<off_t>(begin - kGlobalBase)) != MAP_FAILED;
    begin = to;
  }
  if (!good) {
    if (file >= 0) close(file);
    fail("device memory cannot be shared with other processes");
  }
  written_.reset();  // nobody sees what they write
  return shared_file_ = file;
}

}  // namespace imbrex::vgpu
