// SPDX-License-Identifier: Apache-2.0
// The memories of the machine and the generic address space that joins them.
//
//   0x10_0000_0000 ...            global arena: constants and parameters first, then allocations
//   0x7F00_RROO_OOOO              shared window: below, the 32-bit shared address (CTA rank, offset)
//   0x7F01_OOOO_OOOO              local window: offset in the thread's own memory
//
// Constants and kernel parameters live in the arena too, so cvta of those spaces is the identity.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "imbrex/core/source_location.h"
#include "vgpu/lanes.h"
#include "vgpu/memory/recycled_block.h"
#include "vgpu/memory/written_map.h"

namespace imbrex::vgpu {

/// PTX state spaces as bodies distinguish them.
enum class Space : uint8_t { kGeneric, kGlobal, kConst, kParam, kSharedCta, kSharedCluster, kLocal };

inline constexpr uint64_t kGlobalBase = 0x10'0000'0000;
inline constexpr uint64_t kConstBytes = 64 << 10;                // [kGlobalBase, + kConstBytes): .const
inline constexpr uint64_t kParamBase = kGlobalBase + (1 << 20);  // the launch's parameter buffer
inline constexpr uint64_t kParamBytes = 64 << 10;
/// GPUs that may share an address space: each has parameters of its own behind kParamBase.
inline constexpr int kMaxGpus = 16;
constexpr uint64_t param_base(int gpu) { return kParamBase + static_cast<uint64_t>(gpu) * kParamBytes; }
inline constexpr uint64_t kHeapBase = kGlobalBase + (2 << 20);  // allocations and .global variables
/// Where functions are that calls reach through pointers: addresses only, behind all memory.
inline constexpr uint64_t kFunctionBase = 0x7E00'0000'0000;
inline constexpr uint64_t kSharedWindow = 0x7F00'0000'0000;
inline constexpr uint64_t kLocalWindow = 0x7F01'0000'0000;
inline constexpr uint64_t kWindowBytes = 0x1'0000'0000;
inline constexpr uint64_t kGuardBytes = 256;  // untouchable bytes between allocations, at least

constexpr bool in_window(uint64_t address, uint64_t base) { return address - base < kWindowBytes; }
constexpr uint32_t shared_rank(uint32_t address) { return address >> 24; }
constexpr uint32_t shared_offset(uint32_t address) { return address & 0x00FF'FFFFu; }

class DeviceHeap;

/// A stretch of global memory that a kernel may touch.
struct Allocation {
  uint64_t address = 0;
  uint64_t bytes = 0;
  bool freed = false;
  bool read_only = false;  // .const variables and kernel parameters
  std::string name;        // "allocation 3", "global variable table", ...
  SourceLocation freed_at = {};
  bool host_visible = false;         // mapped into the process at `address` too
  bool mapped = false;               // made by GlobalMemory::map
  const DeviceHeap* heap = nullptr;  // the kernels' own, of which they may touch the blocks
  bool contains(uint64_t at, uint64_t size) const {
    return at - address <= bytes && size <= bytes - (at - address);
  }
};

/// "freed at example.cpp:12", where that is known.
std::vector<std::string> freed_where(const Allocation& allocation);

/// Address space that costs nothing until it is touched, all zeros; for munmap. Throws LaunchError, which
/// says what it was for and what helps.
void* reserve(uint64_t bytes, const char* purpose, const char* help);

/// Global memory of one virtual device: a reserved stretch of host memory of which pages are taken when
/// touched.
class GlobalMemory {
 public:
  /// `gpus`: so many devices share the addresses, each with a stretch of `bytes` for its own allocations.
  explicit GlobalMemory(int64_t bytes, int gpus = 1);
  ~GlobalMemory();
  GlobalMemory(const GlobalMemory&) = delete;
  GlobalMemory& operator=(const GlobalMemory&) = delete;

  /// Throws LaunchError when the device is full.
  uint64_t allocate(uint64_t bytes, std::string name, uint64_t alignment = 256, int gpu = 0);
  /// Where the kernels' heap lies.
  uint64_t allocate_heap(uint64_t bytes, const DeviceHeap& heap, int gpu);
  /// The same place in the stretch of every device. Returns that of device 0; the next is stretch_bytes() further.
  uint64_t allocate_on_all(uint64_t bytes, const std::string& name, uint64_t alignment = 256);
  /// From the stretch of one device to that of the next.
  uint64_t stretch_bytes() const { return stretch_bytes_; }
  /// The device in whose stretch the address lies.
  int gpu_of(uint64_t address) const {
    return address < kHeapBase ? 0 : static_cast<int>((address - kHeapBase) / stretch_bytes_);
  }
  /// Memory that the host may touch as well, at the same address. Throws LaunchError where that address is taken.
  uint64_t allocate_host_visible(uint64_t bytes, std::string name);
  /// A read-only stretch of the .const bank; CompileError when its 64 KiB are full.
  uint64_t allocate_constant(uint64_t bytes, std::string name, uint64_t alignment);
  /// A read-only stretch at a fixed place (parameters), written from the start.
  void place(uint64_t address, uint64_t bytes, std::string name);
  void remove(uint64_t address);
  /// Makes bytes of one allocation zero; of many, by giving their pages back to the host.
  void zero(uint64_t address, uint64_t bytes);
  /// False when `address` is no live allocation's start. `where`: of the call, for messages.
  bool free(uint64_t address, SourceLocation where = {});

  // Addresses and memory apart, and memory of other processes (mapped_memory.cpp). Addresses, extents and
  // offsets are multiples of 4096.

  /// Addresses without memory: accesses are out of bounds until something is mapped there. Throws LaunchError
  /// when there are no more.
  uint64_t reserve_addresses(uint64_t bytes, uint64_t alignment);
  /// Makes `bytes` of a file, from `offset` on, the memory at reserved addresses. Mappings side by side are one
  /// allocation.
  void map(uint64_t address, uint64_t bytes, int file, uint64_t offset);
  /// Ends a mapping that map() made, with the same extent.
  void unmap(uint64_t address, uint64_t bytes);
  /// The file that all memory lies in from now on, at its address less kGlobalBase, so that other processes can
  /// map it.
  int shared_file();

  /// The allocation (live or freed) that holds `address`, or null.
  const Allocation* find(uint64_t address) const;
  /// The allocation nearest to `address`, or null when there is none at all.
  const Allocation* nearest(uint64_t address) const;

  /// Host memory behind an address of the arena; the caller has checked it.
  std::byte* host(uint64_t address) const { return base_ + (address - kGlobalBase); }
  /// Bytes of the arena, from kGlobalBase on.
  uint64_t size() const { return size_; }

  // Which bytes have been written since they were allocated. From shared_file() on all of them count as written.

  /// `pattern`: of every 16 bytes, counted from a multiple of 16, those.
  void mark_written(uint64_t address, uint64_t bytes, uint16_t pattern = WrittenMap::kAllOf16) {
    if (written_ != nullptr && bytes > 0) written_->mark(address - kGlobalBase, bytes, pattern);
  }
  void forget_written(uint64_t address, uint64_t bytes) {
    if (written_ != nullptr) written_->forget(address - kGlobalBase, bytes);
  }
  void copy_written(uint64_t to, uint64_t from, uint64_t bytes) {
    if (written_ != nullptr) written_->copy(to - kGlobalBase, from - kGlobalBase, bytes);
  }
  bool is_written(uint64_t address, uint64_t bytes, uint16_t pattern = WrittenMap::kAllOf16) const {
    return written_ == nullptr || bytes == 0 || written_->all(address - kGlobalBase, bytes, pattern) ||
           is_written_to_end(address, bytes);
  }
  /// Of bytes that have not been written: have others of the allocation nearby? Then they may be its padding.
  bool is_padding(uint64_t address) const;
  /// A kernel has run of which nobody knows what it has written or would have written...
  void miss_writes() { misses_writes_ = true; }
  /// ... so that all there is now counts as written.
  void settle_missed_writes();

 private:
  void insert(Allocation allocation);
  void release_host_visible(const Allocation& allocation);
  /// Gives back the pages of the arena that lie between, which are zeros from then on. Returns the first and the last byte that
  /// they do not hold.
  std::pair<uint64_t, uint64_t> give_back_pages(uint64_t begin, uint64_t end);
  /// Of an access past the end of an allocation: what lies in it has been written.
  bool is_written_to_end(uint64_t address, uint64_t bytes) const;
  void join_mappings();
  /// What lies between `begin` and `end` of the arena becomes memory of the arena's own again, all zeros.
  void restore(uint64_t begin, uint64_t end);
  uint64_t size_ = 0;
  std::byte* base_ = nullptr;
  uint64_t stretch_bytes_ = 0;
  std::unique_ptr<WrittenMap> written_;
  bool misses_writes_ = false;
  /// Where the next allocation of a device begins, and where those end that all have at the same place (which are made
  /// from the end of the stretches downwards).
  struct Stretch {
    uint64_t next = kHeapBase, end = kHeapBase;
  };
  std::vector<Stretch> stretches_;
  uint64_t next_constant_ = kGlobalBase;
  int64_t count_ = 0;
  std::vector<Allocation> allocations_;    // by address
  std::map<uint64_t, uint64_t> mappings_;  // bytes by address
  int shared_file_ = -1;
};

/// How bytes that count as never written came to be: a register without a value was stored there. Instructions as their
/// index + 1; 0: nothing was stored.
struct UndefinedStore {
  uint32_t origin = 0;  // that read the register first
  uint32_t store = 0;
  bool is_padding = false;  // it came from global memory, and may be the padding of an allocation
};

/// One bit per byte of a small memory: has it been written?
class WrittenBits {
 public:
  void reset(size_t bytes) {
    words_.assign((bytes + 63) / 64, 0);
    undefined_.clear();
  }
  void mark(size_t at, size_t bytes) {
    for (size_t i = at; i < at + bytes;) {
      size_t span = step(i, at + bytes);
      words_[i / 64] |= pattern(i, span);
      i += span;
    }
  }
  void unmark(size_t at, size_t bytes) {
    for (size_t i = at; i < at + bytes;) {
      size_t span = step(i, at + bytes);
      words_[i / 64] &= ~pattern(i, span);
      i += span;
    }
    for (size_t i = at / kUndefinedBytes; !undefined_.empty() && i * kUndefinedBytes < at + bytes; ++i)
      undefined_[i] = {};
  }
  bool all(size_t at, size_t bytes) const {
    for (size_t i = at; i < at + bytes;) {
      size_t span = step(i, at + bytes);
      if ((~words_[i / 64] & pattern(i, span)) != 0) return false;
      i += span;
    }
    return true;
  }
  /// What was stored in the byte has no value.
  void mark_undefined(size_t at, UndefinedStore how) {
    words_[at / 64] &= ~pattern(at, 1);
    if (undefined_.empty()) undefined_.resize(words_.size() * (64 / kUndefinedBytes));
    undefined_[at / kUndefinedBytes] = how;
  }
  /// Of a byte that is not written.
  UndefinedStore undefined_store(size_t at) const {
    return undefined_.empty() ? UndefinedStore() : undefined_[at / kUndefinedBytes];
  }

 private:
  static constexpr size_t kUndefinedBytes = 4;  // that share a record
  static size_t step(size_t i, size_t end) { return std::min<size_t>(64 - i % 64, end - i); }
  static uint64_t pattern(size_t i, size_t span) {
    return (span == 64 ? ~uint64_t{0} : (uint64_t{1} << span) - 1) << (i % 64);
  }
  std::vector<uint64_t> words_;
  std::vector<UndefinedStore> undefined_;  // empty until something undefined is stored
};

/// Shared memory of one CTA, indexed by the offset bits of a shared address; user data starts at `user_base`.
class SharedMemory {
 public:
  void reset(uint32_t user_base, uint32_t user_bytes, bool track_writes) {
    user_base_ = user_base;
    bytes_ = RecycledBlock(user_base + user_bytes);
    std::memset(bytes_.data(), 0xFF, bytes_.size());  // NaN in every float format
    tracked_ = track_writes;
    if (track_writes) written_.reset(bytes_.size());
  }
  uint32_t user_base() const { return user_base_; }
  uint32_t end() const { return static_cast<uint32_t>(bytes_.size()); }
  /// True when [offset, offset + bytes) is user data.
  bool contains(uint32_t offset, uint64_t bytes) const {
    return offset >= user_base_ && offset <= end() && bytes <= end() - offset;
  }
  std::byte* at(uint32_t offset) { return bytes_.data() + offset; }
  void mark_written(uint32_t offset, uint64_t bytes) {
    if (tracked_) written_.mark(offset, bytes);
  }
  bool is_written(uint32_t offset, uint64_t bytes) const { return !tracked_ || written_.all(offset, bytes); }
  /// Which bytes have been written, where that is tracked.
  WrittenBits& written() { return written_; }

 private:
  uint32_t user_base_ = 0;
  RecycledBlock bytes_;
  bool tracked_ = false;
  WrittenBits written_;
};

}  // namespace imbrex::vgpu
