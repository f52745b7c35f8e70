// SPDX-License-Identifier: Apache-2.0
// Attention of float8: how weights and V meet in the tensor cores, and what undoes the scales of Q, K and V.
#pragma once

#include "imbrex/kernels/attention/head_strides.h"
#include "imbrex/kernels/attention/packed_sequences.h"
#include "imbrex/lang.h"

namespace imbrex::kernels {

/// Tensor cores take both operands of float8 along the columns of the scores, so that V is needed transposed. And a thread
/// gets other columns of scores than it must give as weights: of each 16 columns it has 2t, 2t + 1, 2t + 8, 2t + 9 and gives
/// 4t ... 4t + 3. Exchanging them among threads is left out: both operands take the columns of each 16 in this order, from
/// 8h + 2t + e to 4t + 2h + e.
inline constexpr int kFloat8Columns = 16;
inline RegisterValue in_float8_order(const RegisterBase& tile) {
  const int64_t rows = tile.shape(0), columns = tile.shape(1);
  return tile.reshape({rows, columns / 16, 2, 4, 2}).permute({0, 1, 3, 2, 4}).reshape({rows, columns});
}
/// Weights as they lie in an accumulator, as an operand: each thread puts its own in another order while they have a
/// register each.
inline RegisterValue float8_weights(const RegisterBase& scores) {
  return relayout(in_float8_order(scores)).to(float8_e4m3);
}
/// Weights are at most 1; multiplied by 2 to this, they use float8's range, up to 448.
inline constexpr int kFloat8WeightExponent = 8;

/// What has a factor of its own: nothing, a head, or each kScaledRows rows of a head.
enum class Float8ScaleOf : uint8_t { kNothing, kHead, kRows };
inline constexpr int kScaledRows = 128;

/// Factors of Q, K and V: what a tensor stands for is its elements multiplied by them. A parameter of a kernel.
struct Float8Scales {
  using Parameters = ParameterList<Float8ScaleOf, Int32, Ptr<float32>, Ptr<float32>, Ptr<float32>>;
  Float8ScaleOf of;
  Int32 heads;  ///< of Q, in each batch
  /// [batches, heads], for K and V [batches, heads / group]; kRows: [..., blocks of rows], as PackedSequences counts those.
  Ptr<float32> q_ptr, k_ptr, v_ptr;

  bool are_of_rows() const { return of == Float8ScaleOf::kRows; }

  /// A block of rows that has a scale, and how many there are of each head.
  struct Block {
    ScalarArg number, of;
  };

  /// What scores of a head are multiplied by; of_keys() is left out where it is of rows.
  Expr of_scores(const Int32& batch, const Int32& head, int group, const Block& block) const {
    if (are_of_rows()) return item(q_ptr, batch, head, 1, block);
    return item(q_ptr, batch, head, 1) * item(k_ptr, batch, head, group);
  }
  Expr of_values(const Int32& batch, const Int32& head, int group) const {
    return item(v_ptr, batch, head, group);
  }
  /// Of a block of rows of K, and of V.
  Expr of_keys(const Int32& batch, const Int32& head, int group, const Block& block) const {
    return item(k_ptr, batch, head, group, block);
  }
  Expr of_values(const Int32& batch, const Int32& head, int group, const Block& block) const {
    return item(v_ptr, batch, head, group, block);
  }

 private:
  Expr item(const Ptr<float32>& pointer, const Int32& batch, const Int32& head, int group) const {
    if (of == Float8ScaleOf::kNothing) return Float32(1.f) + 0.f;
    return global_view(pointer, {batch + 1, heads / group}).item({batch, head / group});
  }
  Expr item(const Ptr<float32>& pointer, const Int32& batch, const Int32& head, int group,
            const Block& block) const {
    return global_view(pointer, {batch + 1, heads / group, block.of})
        .item({batch, head / group, block.number});
  }
};

/// Columns of V as TransposeValues leaves it, of kv_size rows.
inline Expr float8_columns(const Int32& kv_size, const PackedSequences& packed) {
  return packed.is_packed ? (kv_size / kFloat8Columns + packed.sequences) * kFloat8Columns
                          : cdiv(kv_size, kFloat8Columns) * kFloat8Columns;
}

/// V [batches, heads, kv_size, value_size] of float8 as ForwardAttention takes it: [batches, heads, value_size, columns], with
/// kv_size rounded up to a multiple of 16 as columns, in_float8_order; zeros behind the end. Packed sequences each begin at a
/// multiple of 16, PackedSequences::begin_of_blocks, so that their columns are in this order too.
struct TransposeValues {
  static constexpr const char* target = "sm_90a";
  int block = 128, num_warps = 4;

  static auto space() {
    return Space<TransposeValues>().choose<&TransposeValues::block, &TransposeValues::num_warps>(
        {{128, 4}, {128, 8}, {64, 4}});
  }

  void operator()(Int32 batches, Int32 heads, Int32 kv_size, int value_size, Ptr<> v_ptr,
                  HeadStrides v_strides, Ptr<> transposed_ptr, PackedSequences packed) const {
    grid(packed.blocks(kv_size, block), heads, batches);
    warps(num_warps);
    griddepcontrol::wait();
    griddepcontrol::launch_dependents();
    Int32 first = block_idx.x * block, head = block_idx.y, batch = block_idx.z;
    Int32 columns = float8_columns(kv_size, packed), to = first + 0, end = kv_size + 0, end_to = columns + 0;
    if (packed.is_packed) {
      Int32 number = block_idx.x + 0, sequence = 0;
      SequenceRows rows;
      packed.enter(number, block, true, sequence, rows);
      Int32 begin_to = packed.begin_of_blocks(rows.kv_begin, sequence, kFloat8Columns);
      first = rows.kv_begin + number * block;
      to = begin_to + number * block;
      end = rows.kv_begin + rows.kv_size;
      end_to = begin_to + cdiv(rows.kv_size, kFloat8Columns) * kFloat8Columns;
    }
    auto g_v = v_strides.view(v_ptr, uint8, batches, heads, end, value_size);
    auto g_t = global_view(transposed_ptr, uint8, {batches, heads, value_size, end_to},
                           {heads * value_size * columns, value_size * columns, columns, 1});
    auto values = load_global(g_v[batch][head], {first, 0}, {block, value_size});
    store_global(g_t[batch][head], in_float8_order(values.transpose()), {0, to});
  }
};

}  // namespace imbrex::kernels
