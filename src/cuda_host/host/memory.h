// SPDX-License-Identifier: Apache-2.0
// The memory that programs allocate, of every kind, and the copies between kinds.
//
// Device memory lies in the virtual GPU's arena and cannot be touched by the host. Managed and pinned memory lies there
// too, and is mapped a second time into the process at its device address, so that one pointer serves kernels and host
// code alike, as with unified addressing on a GPU. Every other pointer is the host's own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "cuda_host/abi/driver_types.h"
#include "imbrex/vgpu/virtual_gpu.h"

namespace imbrex::cuda {

enum class MemoryKind : uint8_t { kDevice, kManaged, kPinned };

/// What is known of one allocation of the program.
struct Block {
  uint64_t address = 0;
  int64_t bytes = 0;
  MemoryKind kind = MemoryKind::kDevice;
  int device = 0;
  uint64_t id = 0;
  unsigned flags = 0;
  const void* pool = nullptr;
  bool is_adopted = false;  // what allocated it releases it
};

/// Host memory that the program registered. Kernels reach it at an address of its own, where a copy of it is while
/// work is carried out.
struct Registered {
  int64_t bytes = 0;
  unsigned flags = 0;
  uint64_t device_address = 0;         // once the program has asked for it
  std::vector<std::byte> pushed = {};  // what was copied to the device last
};

/// A pool of cudaMemPool: all share the device's memory, so that only its settings are kept.
struct Pool {
  // CU_MEMPOOL_ATTR_...
  static constexpr int kReleaseThreshold = 4, kReservedCurrent = 5, kReservedHigh = 6, kUsedCurrent = 7,
                       kUsedHigh = 8;
  int device = 0;
  std::map<int, uint64_t> attributes;

  void take(int64_t bytes) {
    const uint64_t used = attributes[kUsedCurrent] += static_cast<uint64_t>(bytes);
    attributes[kUsedHigh] = std::max(attributes[kUsedHigh], used);
  }
  void give_back(int64_t bytes) { attributes[kUsedCurrent] -= static_cast<uint64_t>(bytes); }
};

/// A pitched stretch of memory as copies in two and three dimensions see it.
struct PitchedSide {
  uint64_t address = 0;  // of the first byte; of the device or of the host
  int64_t pitch = 0, slice = 0;
};

class DeviceMemory {
 public:
  /// `total_bytes`: as much as programs get.
  DeviceMemory(vgpu::VirtualGpu& gpu, int64_t total_bytes) : gpu_(gpu), total_bytes_(total_bytes) {}

  /// CUDA_ERROR_OUT_OF_MEMORY where the GPU has less, CUDA_ERROR_INVALID_VALUE for no bytes at all.
  Block& allocate(int64_t bytes, MemoryKind kind, int device, unsigned flags = 0);
  /// CUDA_ERROR_INVALID_VALUE that says whether it was freed before, is inside an allocation, or nothing of ours.
  void free(uint64_t address, MemoryKind kind_for_messages);
  /// The block that holds the address, or null. Variables of modules are blocks too.
  const Block* find(uint64_t address) const;
  Block* find(uint64_t address);
  /// Whether a GPU would notice an access there: not in the pages of 2 MiB that allocations lie in.
  bool would_fault(uint64_t address) const;
  /// Variables of a module, so that queries know them.
  void adopt(uint64_t address, int64_t bytes, int device, MemoryKind kind = MemoryKind::kDevice);
  void disown(uint64_t address);

  int64_t used_bytes() const { return used_bytes_; }
  int64_t total_bytes() const { return total_bytes_; }

  /// True for addresses of the virtual GPU's memory, whoever may touch them.
  static bool is_of_device(uint64_t address);
  /// A copy between any two places.
  void copy(uint64_t to, uint64_t from, int64_t bytes);
  /// `depth` slices of `height` rows of `width` bytes.
  void copy(const PitchedSide& to, const PitchedSide& from, int64_t width, int64_t height, int64_t depth);
  /// `height` rows of `width` elements of 1, 2 or 4 bytes.
  void fill(uint64_t to, int64_t pitch, uint32_t value, int element_bytes, int64_t width, int64_t height);

  /// CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED.
  void register_host(const void* start, int64_t bytes, unsigned flags);
  void unregister_host(const void* start);
  const Registered* find_registered(const void* at) const;
  /// Where kernels find registered memory.
  uint64_t device_address_of_registered(const void* at);
  /// Before and after work: registered memory to the device, and back what the work changed of it.
  void push_registered();
  void pull_registered();

  /// Counts memory that is made apart from allocate(); CUDA_ERROR_OUT_OF_MEMORY.
  void take(int64_t bytes, const char* what);
  void give_back(int64_t bytes) { used_bytes_ -= bytes; }

 private:
  vgpu::VirtualGpu& gpu_;
  std::map<uint64_t, Block> blocks_;
  std::map<uint64_t, int64_t> freed_;  // by address, for messages
  std::map<const char*, Registered> registered_;
  int64_t total_bytes_ = 0, used_bytes_ = 0;
  uint64_t last_id_ = 0;
};

}  // namespace imbrex::cuda
