// SPDX-License-Identifier: Apache-2.0
#include "cuda_host/host/virtual_memory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "cuda_host/abi/api_error.h"
#include "imbrex/core/error.h"

namespace imbrex::cuda {
namespace {

void expect_whole(const char* what, uint64_t value) {
  if (value == 0 || value % VirtualMemory::kGranularity != 0)
    refuse(CUDA_ERROR_INVALID_VALUE,
           fmt::format("{} is 0x{:x}, which is no multiple of the granularity, {} bytes "
                       "(cuMemGetAllocationGranularity)",
                       what, value, VirtualMemory::kGranularity));
}

}  // namespace

uint64_t VirtualMemory::reserve(int64_t bytes, int64_t alignment) {
  expect_whole("the extent", static_cast<uint64_t>(bytes));
  if (alignment < 0 || (alignment & (alignment - 1)) != 0)
    refuse(CUDA_ERROR_INVALID_VALUE, fmt::format("an alignment of {}, which is no power of two", alignment));
  try {
    const uint64_t address = gpu_.reserve_addresses(bytes, std::max(alignment, kGranularity));
    reserved_[address] = bytes;
    return address;
  } catch (const LaunchError& error) {
    refuse(CUDA_ERROR_OUT_OF_MEMORY, error.diagnostics().front().message);
  }
}

void VirtualMemory::release_addresses(uint64_t address, int64_t bytes) {
  const auto at = reserved_.find(address);
  if (at == reserved_.end() || at->second != bytes)
    refuse(CUDA_ERROR_INVALID_VALUE,
           fmt::format("{} bytes at 0x{:x} were not reserved as one", bytes, address));
  const auto mapping = mappings_.lower_bound(address);
  if (mapping != mappings_.end() && mapping->first < address + static_cast<uint64_t>(bytes))
    refuse(CUDA_ERROR_INVALID_VALUE, fmt::format("memory is still mapped at 0x{:x}", mapping->first));
  reserved_.erase(at);
}

PhysicalMemory& VirtualMemory::create(int64_t bytes, const CUmemAllocationProp& properties) {
  expect_whole("the extent", static_cast<uint64_t>(bytes));
  memory_.take(bytes, "memory without an address");
  const int file = memfd_create("imbrex-device-memory", MFD_CLOEXEC);
  if (file < 0 || ftruncate(file, bytes) != 0) {
    if (file >= 0) close(file);
    memory_.give_back(bytes);
    refuse(CUDA_ERROR_OUT_OF_MEMORY, fmt::format("the host has not {} bytes", bytes));
  }
  return physical_.make(file, bytes, properties);
}

PhysicalMemory& VirtualMemory::import_file(int file) {
  struct stat facts {};
  const int own = fcntl(file, F_DUPFD_CLOEXEC, 0);
  if (own < 0 || fstat(own, &facts) != 0 || facts.st_size == 0 || facts.st_size % kGranularity != 0) {
    if (own >= 0) close(own);
    refuse(CUDA_ERROR_INVALID_VALUE,
           fmt::format("file descriptor {} is no memory that cuMemExportToShareableHandle gave out", file));
  }
  CUmemAllocationProp properties{};
  properties.type = 1;
  properties.handle_types = 1;
  properties.location = {1, 0};
  PhysicalMemory& memory = physical_.make(own, facts.st_size, properties);
  memory.is_imported = true;
  return memory;
}

void VirtualMemory::release(uint64_t handle) {
  PhysicalMemory& memory = get(handle);
  if (memory.handles == 0)
    refuse(CUDA_ERROR_INVALID_VALUE,
           "every handle of this memory was released before; it lives by its mappings");
  --memory.handles;
  drop_if_unused(memory);
}

void VirtualMemory::drop_if_unused(PhysicalMemory& memory) {
  if (memory.handles > 0 || memory.mappings > 0) return;
  if (!memory.is_imported) memory_.give_back(memory.bytes);
  physical_.destroy(&memory);
}

void VirtualMemory::map(uint64_t address, int64_t bytes, int64_t offset, PhysicalMemory& memory) {
  expect_whole("the address", address);
  expect_whole("the extent", static_cast<uint64_t>(bytes));
  if (offset < 0 || offset > memory.bytes || bytes > memory.bytes - offset || offset % kGranularity != 0)
    refuse(CUDA_ERROR_INVALID_VALUE,
           fmt::format("{} bytes from {} on are to be mapped of memory of {}", bytes, offset, memory.bytes));
  const uint64_t end = address + static_cast<uint64_t>(bytes);
  const auto after = reserved_.upper_bound(address);
  if (after == reserved_.begin() ||
      end > std::prev(after)->first + static_cast<uint64_t>(std::prev(after)->second))
    refuse(CUDA_ERROR_INVALID_VALUE, fmt::format("{} bytes at 0x{:x} are not reserved", bytes, address));
  const auto next = mappings_.upper_bound(address);
  const bool meets_last =
      next != mappings_.begin() &&
      std::prev(next)->first + static_cast<uint64_t>(std::prev(next)->second.bytes) > address;
  if (meets_last || (next != mappings_.end() && next->first < end))
    refuse(CUDA_ERROR_INVALID_VALUE, fmt::format("memory is mapped at 0x{:x} already", address));
  mappings_[address] = {bytes, offset, &memory, false};
  ++memory.mappings;
}

void VirtualMemory::set_access(uint64_t address, int64_t bytes, bool allowed) {
  const uint64_t end = address + static_cast<uint64_t>(bytes);
  uint64_t next = address;
  for (auto at = mappings_.lower_bound(address); at != mappings_.end() && at->first == next && next < end;
       ++at)
    next += static_cast<uint64_t>(at->second.bytes);
  if (next != end || bytes == 0)
    refuse(CUDA_ERROR_INVALID_VALUE,
           fmt::format("{} bytes at 0x{:x} are not whole mappings", bytes, address));
  for (auto at = mappings_.lower_bound(address); at != mappings_.end() && at->first < end; ++at) {
    Mapping& mapping = at->second;
    if (mapping.is_allowed == allowed) continue;
    mapping.is_allowed = allowed;
    if (allowed) {
      gpu_.map(at->first, mapping.bytes, mapping.memory->file, mapping.offset);
      memory_.adopt(at->first, mapping.bytes, mapping.memory->properties.location.id);
    } else {
      gpu_.unmap(at->first, mapping.bytes);
      memory_.disown(at->first);
    }
  }
}

void VirtualMemory::unmap(uint64_t address, int64_t bytes) {
  set_access(address, bytes, false);
  const uint64_t end = address + static_cast<uint64_t>(bytes);
  for (auto at = mappings_.find(address); at != mappings_.end() && at->first < end;) {
    PhysicalMemory& memory = *at->second.memory;
    at = mappings_.erase(at);
    --memory.mappings;
    drop_if_unused(memory);
  }
}

bool VirtualMemory::has_access(uint64_t address) const {
  const auto after = mappings_.upper_bound(address);
  if (after == mappings_.begin()) return false;
  const auto& [begin, mapping] = *std::prev(after);
  return address - begin < static_cast<uint64_t>(mapping.bytes) && mapping.is_allowed;
}

PhysicalMemory& VirtualMemory::mapped_at(uint64_t address) const {
  const auto after = mappings_.upper_bound(address);
  if (after == mappings_.begin() ||
      address - std::prev(after)->first >= static_cast<uint64_t>(std::prev(after)->second.bytes))
    refuse(CUDA_ERROR_INVALID_VALUE, fmt::format("nothing is mapped at 0x{:x}", address));
  return *std::prev(after)->second.memory;
}

}  // namespace imbrex::cuda
