// SPDX-License-Identifier: Apache-2.0
// The heap of malloc and free in kernels (CUDA C++ Programming Guide, "Dynamic Global Memory Allocation").
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <shared_mutex>
#include <string>
#include <vector>

namespace imbrex::vgpu {

class GlobalMemory;

/// One device's. All clusters of a launch use it, each on its host thread: allocating and freeing happens in the order
/// of the grid's turns, looking up at any time. A freed place is taken again only after all others have been, so that
/// late accesses are recognised.
class DeviceHeap {
 public:
  struct Block {
    uint64_t address = 0, bytes = 0;
    bool freed = false;
    std::string allocated_at, freed_at;  // places in kernels
    bool contains(uint64_t at, uint64_t size) const {
      return at - address <= bytes && size <= bytes - (at - address);
    }
    /// A word behind the block that is nobody's: where who frees it meets who gets its place next.
    uint64_t token() const { return (address + bytes + 7) / 4 * 4; }
  };

  /// `bytes` may be allocated at once. Takes addresses for more from `memory`; LaunchError where there are none.
  DeviceHeap(GlobalMemory& memory, uint64_t bytes, int gpu);
  ~DeviceHeap();
  DeviceHeap(const DeviceHeap&) = delete;
  DeviceHeap& operator=(const DeviceHeap&) = delete;

  /// A block aligned to 16 bytes, or 0 where the heap is full. `reused`: the tokens of freed blocks in its place.
  uint64_t allocate(uint64_t bytes, std::string where, std::vector<uint64_t>& reused);
  /// The block at that address as it was before: freed already where `freed` is set. Nothing where no block begins there.
  std::optional<Block> free(uint64_t address, const std::string& where);
  /// The last block, live or freed, that begins at `address` or before.
  std::optional<Block> find(uint64_t address) const;
  /// True when all bytes lie in one live block.
  bool is_live(uint64_t address, uint64_t bytes) const;
  /// How many times it was full.
  int64_t failures() const;
  uint64_t bytes() const { return bytes_; }

 private:
  using Blocks = std::map<uint64_t, Block>;
  Blocks::const_iterator at_or_before(uint64_t address) const;
  /// Where `needed` bytes are free of live blocks, from next_ on and round once; 0: nowhere.
  uint64_t find_place(uint64_t needed) const;

  GlobalMemory& memory_;
  const uint64_t bytes_;
  uint64_t begin_ = 0, end_ = 0, next_ = 0;
  uint64_t live_bytes_ = 0;
  int64_t failures_ = 0;
  Blocks blocks_;  // by address
  mutable std::shared_mutex mutex_;
};

}  // namespace imbrex::vgpu
