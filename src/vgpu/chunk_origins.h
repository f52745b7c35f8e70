// SPDX-License-Identifier: Apache-2.0
// Where the 16-byte chunks of shared memory come from: which tensor copy wrote them, and which part of its
// box they are. What a matrix descriptor makes of them is compared with it. What cp.async copied counts as a
// box as well, where its chunks are all of a rectangle of some allocation: rows of equal length at equal
// distances, laid out one after the other.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "vgpu/swizzle.h"

namespace imbrex::vgpu {

struct Instruction;

class ChunkOrigins {
 public:
  static constexpr uint32_t kChunkBytes = 16;
  /// A copy that has been carried out.
  struct Box {
    const Instruction* insn;
    int warp;
    Swizzle swizzle;
    uint32_t rows, row_chunks;
    uint64_t tensor;         // where it begins
    int64_t inner;           // bytes of the box's first coordinate
    bool is_copied = false;  // by cp.async
  };
  struct Chunk {
    uint32_t box = 0;  // 0: not written by a tensor copy
    uint32_t row = 0;
    uint32_t column = 0;  // in chunks
  };

  /// Of the copies carried out so far only those are kept of which something is still there.
  uint32_t add_box(const Box& box) {
    if (free_.empty()) {
      boxes_.push_back({box, 0});
      return static_cast<uint32_t>(boxes_.size());
    }
    const uint32_t index = free_.back();
    free_.pop_back();
    boxes_[index - 1] = {box, 0};
    return index;
  }
  const Box& box(const Chunk& chunk) const { return boxes_[chunk.box - 1].box; }
  void set(uint32_t offset, Chunk chunk) {
    const size_t i = offset / kChunkBytes;
    if (i >= chunks_.size()) chunks_.resize(i + 1);
    ++boxes_[chunk.box - 1].chunks;
    forget(chunks_[i]);
    chunks_[i] = chunk;
  }
  Chunk at(uint32_t offset) const {
    const size_t i = offset / kChunkBytes;
    return i < chunks_.size() ? chunks_[i] : Chunk{};
  }
  /// Something else is written there.
  void clear(uint32_t offset, uint32_t bytes) {
    const size_t end =
        std::min<size_t>(chunks_.size(), (size_t{offset} + bytes + kChunkBytes - 1) / kChunkBytes);
    for (size_t i = offset / kChunkBytes; i < end; ++i) forget(chunks_[i]);
    if (copied_.empty()) return;
    for (size_t i = offset / kChunkBytes; i * kChunkBytes < size_t{offset} + bytes && i < copied_.size();
         ++i) {
      copies_changed_ |= copied_[i].from != 0;
      copied_[i].from = 0;
    }
  }
  bool empty() const { return boxes_.empty(); }

  /// cp.async has copied a chunk from this address of global memory.
  void note_copy(uint32_t offset, uint64_t from, const Instruction* insn, int warp) {
    const size_t i = offset / kChunkBytes;
    if (i >= copied_.size()) copied_.resize(i + 1);
    copied_[i] = {from, insn, warp};
    copies_changed_ = true;
  }
  /// Makes boxes of what cp.async has copied so far. `allocation(address)`: where the allocation begins.
  template <class Allocation>
  void find_copied_boxes(Allocation&& allocation) {
    if (!std::exchange(copies_changed_, false)) return;
    std::map<uint64_t, std::vector<uint32_t>> by_allocation;
    for (uint32_t i = 0; i < copied_.size(); ++i) {
      if (copied_[i].from == 0) continue;
      if (i < chunks_.size()) forget(chunks_[i]);
      by_allocation[allocation(copied_[i].from)].push_back(i);
    }
    for (auto& [begin, chunks] : by_allocation) find_rectangle(begin, chunks);
  }

 private:
  struct Kept {
    Box box;
    uint32_t chunks;  // in shared memory
  };
  struct Copied {
    uint64_t from = 0;
    const Instruction* insn = nullptr;
    int warp = -1;
  };
  void find_rectangle(uint64_t allocation, std::vector<uint32_t>& chunks);
  void forget(Chunk& chunk) {
    if (chunk.box != 0 && --boxes_[chunk.box - 1].chunks == 0) free_.push_back(chunk.box);
    chunk.box = 0;
  }

  std::vector<Kept> boxes_;
  std::vector<uint32_t> free_;
  std::vector<Chunk> chunks_;
  std::vector<Copied> copied_;
  bool copies_changed_ = false;
};

}  // namespace imbrex::vgpu
