// SPDX-License-Identifier: Apache-2.0
// Virtual memory management: addresses that are reserved, memory that is made, and the one mapped to the other.
// Memory is a file in memory, which other processes can import.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <map>

#include "cuda_host/abi/driver_types.h"
#include "cuda_host/host/handles.h"
#include "cuda_host/host/memory.h"

namespace imbrex::cuda {

/// Memory without an address. It goes with the last handle and the last mapping.
struct PhysicalMemory {
  PhysicalMemory(int of_file, int64_t of_bytes, const CUmemAllocationProp& with)
      : file(of_file), bytes(of_bytes), properties(with) {}
  ~PhysicalMemory() { close(file); }
  PhysicalMemory(const PhysicalMemory&) = delete;
  PhysicalMemory& operator=(const PhysicalMemory&) = delete;
  int file;
  int64_t bytes;
  CUmemAllocationProp properties;
  int handles = 1, mappings = 0;
  bool is_imported = false;  // and counted where it was made
};

class VirtualMemory {
 public:
  static constexpr int64_t kGranularity = 2 << 20;

  VirtualMemory(vgpu::VirtualGpu& gpu, DeviceMemory& memory) : gpu_(gpu), memory_(memory) {}

  // Each refuses what the driver refuses: extents and addresses that are no multiples of the granularity,
  // ranges that are not reserved, mapped twice, or not mapped.
  uint64_t reserve(int64_t bytes, int64_t alignment);
  void release_addresses(uint64_t address, int64_t bytes);
  PhysicalMemory& create(int64_t bytes, const CUmemAllocationProp& properties);
  /// The caller's descriptor is duplicated.
  PhysicalMemory& import_file(int file);
  PhysicalMemory& get(uint64_t handle) const { return physical_.get(reinterpret_cast<const void*>(handle)); }
  void release(uint64_t handle);
  void map(uint64_t address, int64_t bytes, int64_t offset, PhysicalMemory& memory);
  void unmap(uint64_t address, int64_t bytes);
  /// What kernels may do at mapped addresses: nothing until it is allowed.
  void set_access(uint64_t address, int64_t bytes, bool allowed);
  bool has_access(uint64_t address) const;
  /// CUDA_ERROR_INVALID_VALUE where nothing is mapped.
  PhysicalMemory& mapped_at(uint64_t address) const;

 private:
  struct Mapping {
    int64_t bytes, offset;
    PhysicalMemory* memory;
    bool is_allowed;
  };
  void drop_if_unused(PhysicalMemory& memory);

  vgpu::VirtualGpu& gpu_;
  DeviceMemory& memory_;
  Handles<PhysicalMemory> physical_{"memory handle"};
  std::map<uint64_t, int64_t> reserved_;
  std::map<uint64_t, Mapping> mappings_;
};

}  // namespace imbrex::cuda
