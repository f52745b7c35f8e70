// SPDX-License-Identifier: Apache-2.0
// Blocks of memory that live as long as a CTA, a warp. A grid of small CTAs would spend more time in the allocator and
// in fresh pages than in its kernel, so each host thread keeps the last blocks that were given back to it.
#pragma once

#include <cstddef>
#include <memory>
#include <new>
#include <utility>
#include <vector>

namespace imbrex::vgpu {

class RecycledBlock {
 public:
  static constexpr size_t kAlignment = 64;

  RecycledBlock() = default;
  /// Of any content.
  explicit RecycledBlock(size_t bytes) : bytes_(bytes) {
    Store& kept = store();
    size_t found = kept.blocks.size();
    for (size_t i = kept.blocks.size(); i-- > 0;) {
      const size_t size = kept.blocks[i].bytes;
      if (size < bytes || size > kMostLarger * bytes) continue;
      if (found == kept.blocks.size() || size < kept.blocks[found].bytes) found = i;
      if (size == bytes) break;
    }
    if (found < kept.blocks.size()) {
      capacity_ = kept.blocks[found].bytes;
      data_ = kept.take(found);
      return;
    }
    capacity_ = bytes;
    data_.reset(static_cast<std::byte*>(::operator new (bytes, std::align_val_t{kAlignment})));
  }
  ~RecycledBlock() {
    if (data_ == nullptr || capacity_ > kLargestKept) return;
    Store& kept = store();
    while (kept.blocks.size() == kMostKept || kept.bytes + capacity_ > kMostBytesKept) kept.take(0);
    kept.bytes += capacity_;
    kept.blocks.push_back({capacity_, std::move(data_)});
  }
  RecycledBlock(RecycledBlock&& other) noexcept { *this = std::move(other); }
  RecycledBlock& operator=(RecycledBlock&& other) noexcept {
    std::swap(bytes_, other.bytes_);
    std::swap(capacity_, other.capacity_);
    std::swap(data_, other.data_);
    return *this;
  }

  std::byte* data() const { return data_.get(); }
  size_t size() const { return bytes_; }
  bool empty() const { return bytes_ == 0; }

 private:
  struct Free {
    void operator()(std::byte* data) const { ::operator delete (data, std::align_val_t{kAlignment}); }
  };
  using Data = std::unique_ptr<std::byte, Free>;
  struct Kept {
    size_t bytes;
    Data data;
  };
  /// A block that is larger serves as well, up to so many times.
  static constexpr size_t kMostLarger = 2;
  static constexpr size_t kLargestKept = 1 << 20, kMostKept = 128, kMostBytesKept = 32 << 20;
  /// From the one that was given back first on.
  struct Store {
    std::vector<Kept> blocks;
    size_t bytes = 0;
    Data take(size_t i) {
      Data data = std::move(blocks[i].data);
      bytes -= blocks[i].bytes;
      blocks.erase(blocks.begin() + static_cast<ptrdiff_t>(i));
      return data;
    }
  };
  static Store& store() {
    static thread_local Store blocks;
    return blocks;
  }

  size_t bytes_ = 0, capacity_ = 0;
  Data data_;
};

}  // namespace imbrex::vgpu
