// SPDX-License-Identifier: Apache-2.0
#include "vgpu/memory/device_heap.h"

#include <mutex>
#include <utility>

#include "vgpu/memory/memory.h"

namespace imbrex::vgpu {

namespace {

constexpr uint64_t kAlignment = 16;
/// Bytes behind each block that belong to none, so that an access past its end is one.
constexpr uint64_t kGap = 32;
/// Addresses for each byte that may be allocated at once: what is freed stays unused as long as there are others.
constexpr uint64_t kAddressesPerByte = 4;

constexpr uint64_t round_up(uint64_t value, uint64_t to) { return (value + to - 1) / to * to; }
uint64_t end_of(const DeviceHeap::Block& block) {
  return round_up(block.address + block.bytes + kGap, kAlignment);
}

}  // namespace

DeviceHeap::DeviceHeap(GlobalMemory& memory, uint64_t bytes, int gpu) : memory_(memory), bytes_(bytes) {
  const uint64_t addresses = kAddressesPerByte * round_up(bytes, 4096) + 4096;
  begin_ = next_ = memory.allocate_heap(addresses, *this, gpu);
  end_ = begin_ + addresses;
}

DeviceHeap::~DeviceHeap() { memory_.free(begin_); }

DeviceHeap::Blocks::const_iterator DeviceHeap::at_or_before(uint64_t address) const {
  const auto after = blocks_.upper_bound(address);
  return after == blocks_.begin() ? blocks_.end() : std::prev(after);
}

uint64_t DeviceHeap::find_place(uint64_t needed) const {
  uint64_t place = next_;
  for (bool is_round = false;;) {
    if (needed > end_ - place) {
      if (std::exchange(is_round, true)) return 0;
      place = begin_;
      continue;
    }
    auto block = at_or_before(place);
    if (block == blocks_.end() || end_of(block->second) <= place) block = blocks_.upper_bound(place);
    while (block != blocks_.end() && block->first < place + needed && block->second.freed) ++block;
    if (block == blocks_.end() || block->first >= place + needed) return place;
    place = end_of(block->second);
  }
}

uint64_t DeviceHeap::allocate(uint64_t bytes, std::string where, std::vector<uint64_t>& reused) {
  const std::lock_guard lock(mutex_);
  const uint64_t place = bytes > bytes_ - live_bytes_ ? 0 : find_place(round_up(bytes + kGap, kAlignment));
  if (place == 0) {
    ++failures_;
    return 0;
  }
  const Block made{place, bytes, false, std::move(where), {}};
  auto block = blocks_.lower_bound(place);
  if (block != blocks_.begin() && end_of(std::prev(block)->second) > place) --block;
  while (block != blocks_.end() && block->first < end_of(made)) {
    reused.push_back(block->second.token());
    block = blocks_.erase(block);
  }
  next_ = end_of(made);
  live_bytes_ += bytes;
  blocks_[place] = made;
  memory_.forget_written(place, bytes);
  return place;
}

std::optional<DeviceHeap::Block> DeviceHeap::free(uint64_t address, const std::string& where) {
  const std::lock_guard lock(mutex_);
  const auto block = blocks_.find(address);
  if (block == blocks_.end()) return {};
  Block before = block->second;
  if (before.freed) return before;
  block->second.freed = true;
  block->second.freed_at = where;
  live_bytes_ -= before.bytes;
  return before;
}

std::optional<DeviceHeap::Block> DeviceHeap::find(uint64_t address) const {
  const std::shared_lock lock(mutex_);
  const auto block = at_or_before(address);
  if (block == blocks_.end()) return {};
  return block->second;
}

bool DeviceHeap::is_live(uint64_t address, uint64_t bytes) const {
  const std::shared_lock lock(mutex_);
  const auto block = at_or_before(address);
  return block != blocks_.end() && !block->second.freed && block->second.contains(address, bytes);
}

int64_t DeviceHeap::failures() const {
  const std::shared_lock lock(mutex_);
  return failures_;
}

}  // namespace imbrex::vgpu
