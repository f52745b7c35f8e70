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
    std::vector<Kept>& kept = kept_blocks();
    for (size_t i = kept.size(); i-- > 0;)
      if (kept[i].bytes == bytes) {
        data_ = std::move(kept[i].data);
        kept.erase(kept.begin() + static_cast<ptrdiff_t>(i));
        return;
      }
    data_.reset(static_cast<std::byte*>(::operator new (bytes, std::align_val_t{kAlignment})));
  }
  ~RecycledBlock() {
    std::vector<Kept>& kept = kept_blocks();
    if (data_ == nullptr || bytes_ > kLargestKept) return;
    if (kept.size() == kMostKept) kept.erase(kept.begin());
    kept.push_back({bytes_, std::move(data_)});
  }
  RecycledBlock(RecycledBlock&& other) noexcept { *this = std::move(other); }
  RecycledBlock& operator=(RecycledBlock&& other) noexcept {
    std::swap(bytes_, other.bytes_);
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
  static constexpr size_t kLargestKept = 256 << 10, kMostKept = 64;
  static std::vector<Kept>& kept_blocks() {
    static thread_local std::vector<Kept> blocks;
    return blocks;
  }

  size_t bytes_ = 0;
  Data data_;
};

}  // namespace imbrex::vgpu
