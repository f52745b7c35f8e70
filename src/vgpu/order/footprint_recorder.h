// SPDX-License-Identifier: Apache-2.0
// Which bytes of global memory a launch touches: a bit per byte and kind of access, in pages taken when touched.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "imbrex/vgpu/stream_order.h"

namespace imbrex::vgpu {

class FootprintRecorder {
 public:
  /// Of `bytes` of global memory from kGlobalBase on.
  explicit FootprintRecorder(uint64_t bytes);
  ~FootprintRecorder();
  FootprintRecorder(const FootprintRecorder&) = delete;
  FootprintRecorder& operator=(const FootprintRecorder&) = delete;

  enum Kind { kRead, kWritten, kReadStrongly, kWrittenStrongly, kKinds };
  /// By any host thread. The address was found good.
  void touched(uint64_t address, uint32_t bytes, Kind kind) {
    // Mostly within 64 bytes that were touched before.
    const uint64_t offset = address - base_;
    const Page* page = pages_[offset / kPageBytes].load(std::memory_order_acquire);
    const uint64_t bit = offset % 64;
    if (page != nullptr && bit + bytes <= 64) {
      const uint64_t mask = mask_of(bit, bytes);
      const uint64_t word = page->words[kind][offset % kPageBytes / 64].load(std::memory_order_relaxed);
      if ((word & mask) == mask) return;
    }
    note(offset, bytes, kind);
  }
  /// What was touched since the last call, which is forgotten. While nothing runs.
  Footprint take();

 private:
  static constexpr uint64_t kPageBytes = 4096;
  static constexpr size_t kMostSpare = 4096;
  struct Page {
    uint64_t number = 0;
    std::atomic<uint64_t> words[kKinds][kPageBytes / 64] = {};
  };
  static uint64_t mask_of(uint64_t bit, uint64_t bits) {
    return (bits == 64 ? ~uint64_t{0} : (uint64_t{1} << bits) - 1) << bit;
  }
  void note(uint64_t offset, uint64_t bytes, Kind kind);
  Page& page(uint64_t number);

  uint64_t base_, reserved_bytes_;
  std::atomic<Page*>* pages_;  // by number; null: not touched
  std::mutex mutex_;
  std::vector<std::unique_ptr<Page>> touched_, spare_;  // the spare ones are all zeros
};

}  // namespace imbrex::vgpu
