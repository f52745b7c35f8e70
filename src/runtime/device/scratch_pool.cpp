// SPDX-License-Identifier: Apache-2.0
#include "runtime/device/scratch_pool.h"

#include <algorithm>
#include <bit>

#include "runtime/device/backend.h"

namespace imbrex::runtime {
namespace {

constexpr int64_t kLeastBytes = 4096;
/// Up to here blocks are powers of 2, so that requests of similar sizes share them; beyond, multiples of this.
constexpr int64_t kLargeBytes = int64_t{16} << 20;

int64_t rounded(int64_t bytes) {
  if (bytes > kLargeBytes) return (bytes + kLargeBytes - 1) / kLargeBytes * kLargeBytes;
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::max(bytes, kLeastBytes))));
}

}  // namespace

ScratchPool::Block ScratchPool::take(DeviceBackend& device, uint64_t stream, bool is_left_zero,
                                     int64_t bytes) {
  {
    const std::lock_guard lock(mutex_);
    OfStream& kept = free_[stream];
    std::vector<Block>& blocks = is_left_zero ? kept.left_zero : kept.any;
    auto best = blocks.end();
    for (auto at = blocks.begin(); at != blocks.end(); ++at)
      if (at->bytes >= bytes && (best == blocks.end() || at->bytes < best->bytes)) best = at;
    if (best != blocks.end()) {
      const Block block = *best;
      blocks.erase(best);
      return block;
    }
  }
  const int64_t size = rounded(bytes);
  return {device.allocate(size), size};
}

void ScratchPool::give_back(uint64_t stream, bool is_left_zero, Block block) {
  const std::lock_guard lock(mutex_);
  block.is_new = false;
  OfStream& kept = free_[stream];
  (is_left_zero ? kept.left_zero : kept.any).push_back(block);
}

void ScratchPool::forget(DeviceBackend& device, uint64_t stream) noexcept {
  const std::lock_guard lock(mutex_);
  const auto at = free_.find(stream);
  if (at == free_.end()) return;
  for (const std::vector<Block>* blocks : {&at->second.any, &at->second.left_zero})
    for (const Block& block : *blocks) device.free(block.address, {});
  free_.erase(at);
}

}  // namespace imbrex::runtime
