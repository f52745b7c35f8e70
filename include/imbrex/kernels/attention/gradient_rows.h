// SPDX-License-Identifier: Apache-2.0
// What the backward pass of attention needs of each row of Q: the logarithm of its sum of weights, and how much of the
// result's gradient lies along the result.
#pragma once

#include <limits>

#include "imbrex/kernels/attention/head_strides.h"
#include "imbrex/kernels/attention/packed_sequences.h"
#include "imbrex/lang.h"

namespace imbrex::kernels {

struct AttentionGradientRows {
  static constexpr const char* target = "sm_90a";
  static constexpr int kPackedRows = 16;
  static constexpr float kNone = std::numeric_limits<float>::infinity();
  int block_q = kPackedRows, num_warps = 4;

  static auto space() {
    return Space<AttentionGradientRows>()
        .choose<&AttentionGradientRows::block_q, &AttentionGradientRows::num_warps>(
            {{16, 4}, {32, 8}, {8, 4}});
  }

  /// Makes `row` of the numbers of a block of rows, [2, 1, rows], one that sees nothing.
  static void clear(const SharedTensor& numbers, const Int32& row) {
    for (const int which : {0, 1})
      store_shared(numbers[which].slice({0, row}, {1, 1}), full(float32, {1, 1}, which == 0 ? kNone : 0));
  }

  /// O and its gradient are [batches, heads, q_size, value_size], log_sum [batches, heads, q_size]. To rows, [2, batches *
  /// heads, padded], go the exponents of 2 of log_sum, and the rows' sums of O * dO; +infinity and 0 for rows that see
  /// nothing and for those beyond q_size. `padded` is q_size rounded up to a multiple of 128. Packed sequences each begin at a
  /// multiple of kPackedRows, PackedSequences::begin_of_blocks, since TMA reads from such places only.
  void operator()(Int32 batches, Int32 heads, Int32 q_size, Int32 padded, int value_size, DataType dtype,
                  Ptr<> o_ptr, HeadStrides o_strides, Ptr<> do_ptr, HeadStrides do_strides,
                  Ptr<float32> log_sum_ptr, Ptr<float32> row_ptr, PackedSequences packed) const {
    require(!packed.is_packed || block_q == kPackedRows, "block_q = {}: {} of packed sequences", block_q,
            kPackedRows);
    grid(packed.is_packed ? packed.blocks(q_size, block_q) : cdiv(padded, block_q), heads, batches);
    warps(num_warps);
    griddepcontrol::wait();  // the grid before may still write O, or read what this one writes
    griddepcontrol::launch_dependents();
    Int32 to = block_q * block_idx.x, head = block_idx.y, batch = block_idx.z;
    Int32 of = batch * heads + head, row = to + 0, end = q_size + 0;
    if (packed.is_packed) {
      Int32 block = block_idx.x + 0, sequence = 0, of_sequence = 0;
      SequenceRows rows;
      packed.find(block, block_q, false, sequence, of_sequence);
      packed.rows_of(sequence, rows);
      row = rows.q_begin + of_sequence * block_q;
      end = rows.q_begin + rows.q_size;
    }
    const auto load = [&](const Ptr<>& pointer, const HeadStrides& strides) {
      auto g = strides.view(pointer, dtype, batches, heads, end, value_size);
      return load_global(g[batch][head], {row, 0}, {block_q, value_size}).to(float32);
    };
    auto along = sum(load(o_ptr, o_strides) * load(do_ptr, do_strides), {.axis = 1});
    auto log_sum = load_global(global_view(log_sum_ptr, {batches * heads, end}, {q_size, 1})[of], {row},
                               {block_q}, {.other = -kNone});
    auto g_rows = global_view(row_ptr, {2, batches * heads, padded});
    store_global(g_rows[0][of], select(log_sum > -kNone, log_sum * 1.44269504f, kNone), {to});
    store_global(g_rows[1][of], along, {to});
  }
};

}  // namespace imbrex::kernels
