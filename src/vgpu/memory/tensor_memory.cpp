// SPDX-License-Identifier: Apache-2.0
#include "vgpu/memory/tensor_memory.h"

#include <fmt/format.h>

namespace imbrex::vgpu {

void TensorMemory::undefine_columns(uint32_t column, uint32_t count) {
  for (auto& lane : defined_)
    for_words(column, count, [&](uint32_t word, uint64_t bits) { lane[word] &= ~bits; });
  set_result(column, count, {});
}

bool TensorAllocator::is_taken(uint32_t column) const {
  for (const Block& block : blocks_)
    if (column >= block.column && column < block.column + block.columns) return true;
  return false;
}

std::vector<uint32_t> TensorAllocator::free_places(uint32_t columns) const {
  std::vector<uint32_t> places;
  for (uint32_t begin = 0; begin + columns <= TensorMemory::kColumns; begin += columns) {
    bool free = true;
    for (uint32_t column = begin; free && column < begin + columns; column += 32) free = !is_taken(column);
    if (free) places.push_back(begin);
  }
  return places;
}

bool TensorAllocator::release(int64_t owner, uint32_t column, uint32_t columns) {
  for (size_t i = 0; i < blocks_.size(); ++i) {
    const Block& block = blocks_[i];
    if (block.owner != owner || block.column != column || block.columns != columns) continue;
    blocks_.erase(blocks_.begin() + static_cast<int64_t>(i));
    return true;
  }
  return false;
}

const TensorAllocator::Block* TensorAllocator::find(int64_t owner, uint32_t column, uint32_t columns) const {
  for (const Block& block : blocks_)
    if (block.owner == owner && column >= block.column && column + columns <= block.column + block.columns)
      return &block;
  return nullptr;
}

std::vector<TensorAllocator::Block> TensorAllocator::blocks_of(int64_t owner) const {
  std::vector<Block> blocks;
  for (const Block& block : blocks_)
    if (block.owner == owner) blocks.push_back(block);
  return blocks;
}

std::string TensorPermit::refuse(int64_t columns) const {
  if (!TensorAllocator::is_valid_size(columns))
    return fmt::format("{} columns asked for, must be a power of two from 32 to 512", columns);
  if (relinquished) return "the CTA has given up its right to allocate (relinquish_alloc_permit)";
  if (last_columns != 0 && columns > last_columns)
    return fmt::format("{} columns asked for after an alloc of {}: later allocs may not ask for more",
                       columns, last_columns);
  return "";
}

std::string refuse_address(TensorShape shape, TensorAddress address, int warp) {
  const uint32_t quarter = static_cast<uint32_t>(warp) % 4 * 32;
  const bool has_16_lanes = shape != TensorShape::k32x32b;
  if (address.lane == quarter || address.lane == 0 || (has_16_lanes && address.lane == quarter + 16))
    return "";
  return fmt::format("lane {} of the address: warp {} reaches lanes {} to {} and must start at {}{}",
                     address.lane, warp, quarter, quarter + 31, quarter,
                     has_16_lanes ? fmt::format(" or {}", quarter + 16) : "");
}

}  // namespace imbrex::vgpu
