// SPDX-License-Identifier: Apache-2.0
// Attention by the kernel library: forward, backward, and decoding from long caches (docs/attention.md). The kernels are in
// imbrex/kernels/attention/. Programs that call these functions link imbrex_kernels.
#pragma once

#include "imbrex/runtime/device_tensor.h"
#include "imbrex/runtime/stream.h"

namespace imbrex {

/// What attention() does beside softmax(scale q k^T) v. Rows and columns are counted alike: row i of q is at position
/// i + (rows of k) - (rows of q).
struct AttentionOptions {
  float scale = 0;      ///< of the scores, a positive number; 0: 1 / sqrt(head size)
  bool causal = false;  ///< a row sees the columns up to its own position
  int64_t window_left = -1,
          window_right = -1;  ///< columns that a row sees before and behind its own; -1: all
  int64_t prefix = 0;         ///< columns that every row sees, beside those up to its own; 0: no such mask
  float soft_cap = 0;         ///< scores become soft_cap * tanh(score / soft_cap); 0: they do not
  DeviceTensor alibi_slopes;  ///< float32 [heads]: a head's slope * (column - row) is added to its scores
  DeviceTensor sinks;  ///< float32 [heads]: a score that takes part in each sum of weights and has no value
  DeviceTensor log_sum_exp;  ///< float32, like q without its last dimension: written if not null
  /// int32 [sequences + 1], ascending, the first 0: rows begins[s] ... begins[s + 1] - 1 of q, and of k and v, are sequence s,
  /// which sees no other. Both or neither; without a batch. Positions are then counted in the sequence.
  DeviceTensor q_begins, kv_begins;
  /// Of float8: float32 [batch, heads] of q and [batch, kv heads] of k and v, without a batch [heads] and [kv heads]: what an
  /// element stands for is multiplied by its head's. Or with one dimension more, [..., heads, (rows + 127) / 128], by that of its
  /// block of 128 rows, a positive number. Of packed sequences [heads, rows / 128 + sequences]: each sequence has blocks of its
  /// own, the first of them number begins[s] / 128 + s, and numbers that no block has are not read. All or none; without them 1.
  DeviceTensor q_scales, k_scales, v_scales;
  bool deterministic = true;  ///< of attention_backward(); see there
  Stream stream;              ///< what it is launched on; Stream(): the own one of q's device
};

/// o = softmax(scale q k^T) v for every head of every batch: q is [batch, heads, rows, head size], k [batch, kv heads, kv
/// rows, head size], v [batch, kv heads, kv rows, value size], o [batch, heads, rows, value size], all float16 or all
/// bfloat16, or q, k and v float8_e4m3 and o one of the two; without a batch, tensors of three dimensions. kv heads divide heads: consecutive heads of q share one of k and
/// v. Head and value size are multiples of 16 of at most 256 (of float8, the head size of 32). A row that sees nothing is 0.
/// Devices that run sm_90a, and those that run sm_100a: there float16 and bfloat16, head and value size one number of at most
/// 128, and no packed sequences.
///
/// Of float8, v is transposed into the stream's workspace first, and weights are rounded to float8. Packed sequences
/// (q_begins) may have any lengths, 0 too; where they begin is read on the device.
///
/// Strides may be any: tensors that lie in memory as [batch, rows, heads, head size] are passed as
/// q.permute({0, 2, 1, 3}), and nothing is copied. Where TMA cannot access a tensor as it lies (head elements that are
/// not neighbours, other strides or an address that are not multiples of 16 bytes) a copy is made in the stream's
/// order.
///
/// On a CUDA GPU it returns without waiting. The first call of each head size, scale, set of options, type and heads per
/// kv head compiles. LaunchError names the condition that a call does not meet. Several threads may call it at once.
LaunchReport attention(const DeviceTensor& q, const DeviceTensor& k, const DeviceTensor& v,
                       const DeviceTensor& o, const AttentionOptions& options = {},
                       SourceLocation where = SourceLocation::current());
/// Compiles what attention() of these arguments launches, and launches nothing, so that the call can be captured into a
/// CUDA graph.
void prepare_attention(const DeviceTensor& q, const DeviceTensor& k, const DeviceTensor& v,
                       const DeviceTensor& o, const AttentionOptions& options = {});

/// The gradients of a loss by q, k and v, from that by o: dq is like q, dk like k, dv like v, d_o like o. `o` and
/// `options.log_sum_exp` are what attention() of the same options has written; the latter is read here. Gradients by slopes
/// and sinks are not computed. Equal calls give equal bits. With `deterministic` = false the last bits of dq may differ from call
/// to call where that is faster (heads of 96 and 128 with no mask but `causal`; v's size that of k, not packed). Float32 sums of
/// dq's size, for that and of many heads of 128, are in the stream's workspace. Strides as attention()'s. Packed sequences as
/// attention()'s, of any lengths: a sequence without rows of q has gradients of 0 for its rows of k and v, and the other way round;
/// rows behind the last sequence are not written.
LaunchReport attention_backward(const DeviceTensor& q, const DeviceTensor& k, const DeviceTensor& v,
                                const DeviceTensor& o, const DeviceTensor& d_o, const DeviceTensor& dq,
                                const DeviceTensor& dk, const DeviceTensor& dv,
                                const AttentionOptions& options,
                                SourceLocation where = SourceLocation::current());

struct AttentionDecodeOptions {
  float scale = 0;      ///< of the scores; 0: 1 / sqrt(head size)
  bool causal = false;  ///< row i of q sees the columns up to its position, length - (rows of q) + i
  int64_t window_left =
      -1;              ///< columns that a row sees before its own position; -1: all. Others are not read
  float soft_cap = 0;  ///< as in AttentionOptions, like the next two
  DeviceTensor alibi_slopes;  ///< float32 [heads]; positions are those in the sequence
  DeviceTensor sinks;         ///< float32 [heads]
  DeviceTensor lengths;  ///< int32 [batch]: rows of each sequence that are there; null: all there is room for
  DeviceTensor page_table;   ///< int32 [batch, pages of a sequence]: k and v are pages; null: they are not
  DeviceTensor log_sum_exp;  ///< float32, like q without its last dimension: written if not null
  DeviceTensor k_scales,
      v_scales;       ///< of float8: float32 [kv heads], by which elements are multiplied; both or none
  int64_t parts = 0;  ///< CTAs that a sequence is divided among; 0: as many as fill the GPU
  Stream stream;      ///< what it is launched on; Stream(): the own one of q's device
};

/// Attention of a few rows of q, as in decoding, to long caches: q and o are [batch, heads, rows, head size], k and v
/// [batch, kv heads, rows that there is room for, head size], or, with a page table, [pages, kv heads, rows of a page, head
/// size] with pages of any number of rows. Heads and strides as attention()'s; the head size is at most 256. q and o are float16
/// or bfloat16, k and v the same or float8_e4m3 (then q is converted to float16, whose largest number is 65504). What lies
/// in a cache beyond a sequence's length may be anything. A row that sees nothing is 0. Devices that run sm_90a, and those
/// that run sm_100a: there no float8, and heads of at most 128.
///
/// Lengths and page table are read on the device: a captured graph serves every step. `parts` is chosen from the room, not
/// from lengths. Elements of the table beyond a sequence's length are not read. A page that the cache does not have reads as zeros
/// where TMA loads pages (of 8, 16, 32 and multiples of 64 rows), and is a trap where they are gathered; lengths are held to 0 and
/// to the room that there is. Memory for the parts' results comes from
/// the stream's workspace.
LaunchReport attention_decode(const DeviceTensor& q, const DeviceTensor& k, const DeviceTensor& v,
                              const DeviceTensor& o, const AttentionDecodeOptions& options = {},
                              SourceLocation where = SourceLocation::current());

/// Bytes of a row of a cache of float8 of attention_latent_decode(): for a head size of 576 and values of 512 656.
constexpr int64_t latent_float8_row_bytes(int64_t head_size, int64_t value_size) {
  return value_size + (value_size / 128 + 3) / 4 * 16 + 2 * (head_size - value_size);
}

/// Multi-head latent attention of a few rows of q, with the projections absorbed: all heads share one cache, of whose rows the
/// keys are all of head size (576, say), and the values the first elements, as many as rows of o have (512). q is [batch,
/// heads, rows, head size], o [batch, heads, rows, value size], the cache [batch, 1, rows that there is room for, head size]
/// or, with a page table, [pages, 1, rows of a page, head size] with pages of 8, 16, 32 or a multiple of 64 rows. The head
/// size is a multiple of 64 of at most 576, the value size one of 128 of at most 512. float16 or bfloat16; options as
/// attention_decode()'s, whose default scale, 1 / sqrt(head size), is rarely what such a model has.
///
/// Or the cache is float8_e4m3 with rows of latent_float8_row_bytes(), as FlashMLA and vLLM lay them out: the value's elements, a
/// float32 factor for each 128 of them, as many as fill a multiple of 16 bytes, and the key's other elements, of q's type. What a
/// value stands for is its element multiplied by its factor, rounded to q's type. No k_scales and v_scales.
LaunchReport attention_latent_decode(const DeviceTensor& q, const DeviceTensor& cache, const DeviceTensor& o,
                                     const AttentionDecodeOptions& options = {},
                                     SourceLocation where = SourceLocation::current());

}  // namespace imbrex
