// SPDX-License-Identifier: Apache-2.0
// Which bytes of global memory have been written since they were allocated: a bit for each, and a mark for pages that have been
// written as a whole, so that large copies and fills cost little. Host threads may use it at once; its memory is taken when touched.
#pragma once

#include <cstddef>
#include <cstdint>

namespace imbrex::vgpu {

class WrittenMap {
 public:
  /// Bytes of every 16, counted from a multiple of 16, as bits.
  static constexpr uint16_t kAllOf16 = 0xFFFF;

  /// For `bytes` bytes, none of them written.
  explicit WrittenMap(uint64_t bytes);
  ~WrittenMap();
  WrittenMap(const WrittenMap&) = delete;
  WrittenMap& operator=(const WrittenMap&) = delete;

  /// Bytes [at, at + bytes), or those of them that `pattern` says, are written from now on.
  void mark(uint64_t at, uint64_t bytes, uint16_t pattern = kAllOf16) {
    const uint64_t page = at / kPageBytes;
    if (is_whole(page) && (at + bytes - 1) / kPageBytes == page) return;
    mark_apart(at, bytes, pattern);
  }
  /// Bytes [at, at + bytes) are not.
  void forget(uint64_t at, uint64_t bytes);
  /// As for the bytes that they are copied from; the ranges may overlap.
  void copy(uint64_t to, uint64_t from, uint64_t bytes);

  /// Have all been written that `pattern` says? `bytes` > 0.
  bool all(uint64_t at, uint64_t bytes, uint16_t pattern = kAllOf16) const {
    const uint64_t page = at / kPageBytes;
    if (is_whole(page) && (at + bytes - 1) / kPageBytes == page) return true;
    return all_apart(at, bytes, pattern);
  }
  /// Has one been written?
  bool any(uint64_t at, uint64_t bytes) const;

 private:
  static constexpr uint64_t kPageBytes = 4096, kWordBytes = 64, kWordsOfPage = kPageBytes / kWordBytes;
  bool is_whole(uint64_t page) const { return __atomic_load_n(&whole_[page], __ATOMIC_RELAXED) != 0; }
  uint64_t word(uint64_t index) const { return __atomic_load_n(&bits_[index], __ATOMIC_RELAXED); }
  void mark_apart(uint64_t at, uint64_t bytes, uint16_t pattern);
  bool all_apart(uint64_t at, uint64_t bytes, uint16_t pattern) const;

  uint64_t pages_;
  uint8_t* whole_;  // by page
  uint64_t* bits_;  // 64 bytes a word; of pages that are whole they say nothing
};

}  // namespace imbrex::vgpu
