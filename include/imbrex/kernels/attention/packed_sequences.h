// SPDX-License-Identifier: Apache-2.0
// Sequences of several lengths, packed one behind the other: which rows of Q, K and V belong together. Where each begins
// is in memory, so that a captured graph serves every division of the rows.
#pragma once

#include <functional>
#include <vector>

#include "imbrex/lang.h"

namespace imbrex::kernels {

/// The rows of Q, K and V of one sequence, among those of the tensors.
struct SequenceRows {
  Int32 q_begin = 0, q_size = 0, kv_begin = 0, kv_size = 0;
};

/// A parameter of a kernel. Sequence s has rows begins[s] ... begins[s + 1] - 1 of Q, and of K and V, of one batch. Without
/// `is_packed` every batch is a sequence of its own, and the pointers are not read.
struct PackedSequences {
  using Parameters = ParameterList<bool, Int32, Ptr<int32>, Ptr<int32>>;
  bool is_packed;
  Int32 sequences;
  Ptr<int32> q_begin_ptr, kv_begin_ptr;  ///< [sequences + 1]

  /// Blocks of rows to go through, for tensors of `rows` rows. Where sequences are packed, their number is in memory; there
  /// are at most as many as this, and `find` leaves the rest empty.
  Expr blocks(const Int32& rows, int block) const {
    return is_packed ? rows / block + sequences : cdiv(rows, block);
  }

  /// The sequence that has the block of rows of Q (of K and V, if `of_kv`), and which of its blocks that is; behind its last
  /// one where there is no such block. A sequence's blocks begin at number begin / block + sequence, which leaves room for
  /// all blocks of those before, whatever their lengths.
  void find(const Int32& number, int block, bool of_kv, Int32& sequence, Int32& block_of_sequence) const {
    constexpr int kAtOnce = 128;
    auto begins = global_view(of_kv ? kv_begin_ptr : q_begin_ptr, {sequences + 1});
    Int32 begun = 0;  // sequences whose blocks begin at this number or before
    for (Int32 first : range(0, sequences, kAtOnce)) {
      auto s = register_tensor(int32, {kAtOnce}, [&](auto i) { return first + i; });
      auto begin = load_global(begins, {first}, {kAtOnce});
      begun += sum((begin / block + s <= number && s < sequences).to(int32));
    }
    sequence = max(begun - 1, 0);
    block_of_sequence = max(number - (begins.item({sequence}) / block + sequence), 0);
  }

  /// The number of the block that `row` of a sequence is in, whose rows begin at `begin`: as `find` numbers them.
  Expr block_of(const Int32& begin, const Int32& sequence, const ScalarArg& row, int block) const {
    return is_packed ? begin / block + sequence + row / block : row / block;
  }

  /// Where a sequence of rows from `begin` on begins in a tensor that has all blocks of all sequences, as `blocks` counts and
  /// `find` numbers them: at a multiple of `block`.
  Expr begin_of_blocks(const Int32& begin, const Int32& sequence, int block) const {
    return (begin / block + sequence) * block;
  }

  /// The rows of a sequence.
  void rows_of(const Int32& sequence, SequenceRows& rows) const {
    const auto read = [&](const Ptr<int32>& pointer, Int32& begin, Int32& size) {
      auto begins = global_view(pointer, {sequences + 1});
      begin = begins.item({sequence});
      size = begins.item({sequence + 1}) - begin;
    };
    read(q_begin_ptr, rows.q_begin, rows.q_size);
    read(kv_begin_ptr, rows.kv_begin, rows.kv_size);
  }

  /// Of a block of `size` rows among all sequences: its sequence, that one's rows, and which of its blocks it is.
  void enter(Int32& block, int size, bool of_kv, Int32& sequence, SequenceRows& rows) const {
    Int32 of_sequence = 0;
    find(block, size, of_kv, sequence, of_sequence);
    rows_of(sequence, rows);
    block = of_sequence;
  }
};

/// Tiles of a packed sequence's rows that its end is in, in shared memory. What is behind it is another sequence's: nothing is summed
/// of it, but it may be no number.
class EndOfSequence {
 public:
  /// `groups` warp groups read the tiles. The whole CTA executes it.
  explicit EndOfSequence(int groups) : groups_(groups), cleared_(mbarrier::alloc({groups * 128})[0]) {}

  /// Each group clears a part of the rows from `end` on, `also(row)` what else a row has, and goes on when all have. `phase` is the
  /// group's own, mbarrier::consumer_initial_phase at first.
  void clear(const Expr& end, const std::vector<SharedTensor>& tiles, int group, UInt32& phase,
             const std::function<void(const Int32& row)>& also = {}) const {
    for (Int32 row : range(max(end, 0) + group, tiles.front().shape(0), groups_)) {
      for (const SharedTensor& tile : tiles) store_shared(tile[row], zeros(tile.dtype(), {tile.shape(1)}));
      if (also) also(row);
    }
    fence::proxy_async();
    wait(phase);
  }
  /// Waits until all groups have cleared their parts, in whatever way.
  void wait(UInt32& phase) const {
    mbarrier::arrive(cleared_);
    mbarrier::wait(cleared_, phase);
    phase ^= 1;
  }

 private:
  int groups_;
  Barrier cleared_;
};

}  // namespace imbrex::kernels
