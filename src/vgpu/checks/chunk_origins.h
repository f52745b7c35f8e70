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

#include "vgpu/memory/swizzle.h"

namespace imbrex::vgpu {

struct Instruction;

class ChunkOrigins {
 public:
  ChunkOrigins() : chunks_(std::move(spare_chunks())) {}
  ~ChunkOrigins() {
    chunks_.clear();
    if (chunks_.capacity() > spare_chunks().capacity()) spare_chunks() = std::move(chunks_);
  }
  ChunkOrigins(const ChunkOrigins&) = delete;
  ChunkOrigins& operator=(const ChunkOrigins&) = delete;

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
    uint32_t offset = 0;     // where it begins in shared memory
    uint64_t barrier = 0;    // the mbarrier that it was announced to, and in which phase; 0: none
    int64_t phase = 0;
  };
  struct Chunk {
    uint32_t box = 0;  // 0: not written by a tensor copy
    uint32_t row = 0;
    uint32_t column = 0;  // in chunks
    bool is_read = false;
  };
  /// A product of the tensor core that a box is an operand of.
  struct Use {
    const Instruction* insn = nullptr;
    int warp = -1;
    int operand = 0;  // A, B
    bool k_major = true;
    uint64_t accumulator = 0;
  };
  struct Kept {
    Box box;
    uint32_t chunks = 0;   // in shared memory
    uint32_t size = 0;     // chunks in all
    uint32_t read = 0;     // of them read so far
    Use first[2] = {};     // the first product into its accumulator, as A and as B
    Use turned = {};       // one after it that took its rows for its columns
    Use passed_over = {};  // a product that read an older box where this one was to be expected
    bool is_passed_over() const { return read == 0 && passed_over.insn != nullptr; }
    bool is_suspect() const { return is_passed_over() || (read < size && turned.insn != nullptr); }
  };

  /// Of the copies carried out so far only those are kept of which something is still there.
  uint32_t add_box(const Box& box) {
    if (free_.empty()) {
      boxes_.push_back({box});
      return static_cast<uint32_t>(boxes_.size());
    }
    const uint32_t index = free_.back();
    free_.pop_back();
    boxes_[index - 1] = {box};
    return index;
  }
  const Box& box(const Chunk& chunk) const { return boxes_[chunk.box - 1].box; }
  Kept& kept(uint32_t index) { return boxes_[index - 1]; }
  /// A box announced to that phase of a barrier, of the tensor and the form of `like`, that has not been
  /// read; or null.
  Kept* find_unread(uint64_t barrier, int64_t phase, const Box& like);
  /// The chunks of a row of a box; number `i` lies at offset_of(i).
  template <class OffsetOf>
  void set_row(uint32_t box, uint32_t row, uint32_t row_chunks, OffsetOf&& offset_of) {
    kept(box).chunks += row_chunks;
    kept(box).size += row_chunks;
    for (uint32_t i = 0; i < row_chunks; ++i) {
      const size_t at = offset_of(i) / kChunkBytes;
      if (at >= chunks_.size()) chunks_.resize(at + 1);
      if (chunks_[at].box != 0) forget(chunks_[at]);
      chunks_[at] = {box, row, i};
    }
  }
  Chunk at(uint32_t offset) const {
    const size_t i = offset / kChunkBytes;
    return i < chunks_.size() ? chunks_[i] : Chunk{};
  }
  /// Something else is written there.
  void clear(uint32_t offset, uint32_t bytes) {
    const size_t end =
        std::min<size_t>(chunks_.size(), (size_t{offset} + bytes + kChunkBytes - 1) / kChunkBytes);
    for (size_t i = offset / kChunkBytes; i < end;) i = forget_run(i, end);
    for (size_t i = offset / kChunkBytes; i * kChunkBytes < size_t{offset} + bytes && i < staged_.size(); ++i)
      staged_[i].is_known = false;
    if (copied_.empty()) return;
    for (size_t i = offset / kChunkBytes; i * kChunkBytes < size_t{offset} + bytes && i < copied_.size();
         ++i) {
      copies_changed_ |= copied_[i].from != 0;
      copied_[i].from = 0;
    }
  }
  bool empty() const { return boxes_.empty(); }

  /// A thread's 16-byte store of what was loaded from tensor memory, see InstructionInfo::stages.
  struct Staged {
    bool is_known = false;
    uint32_t store = 0;   // the instruction's index
    uint32_t thread = 0;  // of the CTA
  };
  void note_staged(uint32_t offset, uint32_t store, uint32_t thread) {
    const size_t i = offset / kChunkBytes;
    if (i >= staged_.size()) staged_.resize(i + 1);
    staged_[i] = {true, store, thread};
  }
  Staged staged_at(uint32_t offset) const {
    const size_t i = offset / kChunkBytes;
    return i < staged_.size() ? staged_[i] : Staged{};
  }
  bool has_staged() const { return !staged_.empty(); }

  /// Somebody reads there.
  void note_read(uint32_t offset, uint32_t bytes) {
    const size_t end =
        std::min<size_t>(chunks_.size(), (size_t{offset} + bytes + kChunkBytes - 1) / kChunkBytes);
    for (size_t i = offset / kChunkBytes; i < end;) {
      const uint32_t box = chunks_[i].box;
      uint32_t read = 0;
      for (; i < end && chunks_[i].box == box; ++i) read += std::exchange(chunks_[i].is_read, true) ? 0 : 1;
      if (box != 0) boxes_[box - 1].read += read;
    }
  }
  bool has_suspects() const { return !suspects_.empty(); }
  /// Boxes that are there no more and are suspect.
  std::vector<Kept> take_suspects() { return std::exchange(suspects_, {}); }
  /// Nobody will read any more.
  void finish() {
    for (Chunk& chunk : chunks_) forget(chunk);
  }

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
  struct Copied {
    uint64_t from = 0;
    const Instruction* insn = nullptr;
    int warp = -1;
  };
  /// Of a CTA that the same host thread has run before: fresh pages take longer than to fill them.
  static std::vector<Chunk>& spare_chunks() {
    static thread_local std::vector<Chunk> spare;
    return spare;
  }
  void find_rectangle(uint64_t allocation, std::vector<uint32_t>& chunks);
  void forget(Chunk& chunk) { let_go(std::exchange(chunk.box, 0), 1); }
  /// From `i` on as long as they are of the same box. Returns where that ends.
  size_t forget_run(size_t i, size_t end) {
    const uint32_t box = chunks_[i].box;
    const size_t first = i;
    for (; i < end && chunks_[i].box == box; ++i) chunks_[i].box = 0;
    let_go(box, static_cast<uint32_t>(i - first));
    return i;
  }
  /// So many chunks of a box are there no more.
  void let_go(uint32_t box, uint32_t chunks) {
    if (box == 0 || (kept(box).chunks -= chunks) != 0) return;
    if (kept(box).is_suspect()) suspects_.push_back(kept(box));
    free_.push_back(box);
  }

  std::vector<Kept> boxes_;
  std::vector<uint32_t> free_;
  std::vector<Kept> suspects_;
  std::vector<Chunk> chunks_;
  std::vector<Copied> copied_;
  std::vector<Staged> staged_;
  bool copies_changed_ = false;
};

}  // namespace imbrex::vgpu
