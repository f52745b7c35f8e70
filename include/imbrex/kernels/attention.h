// SPDX-License-Identifier: Apache-2.0
// Attention in one kernel: O = softmax(scale Q K^T) V for every head; the matrix of scores is never in global
// memory. A CTA takes 128 rows of Q; blocks of K and V stream through a ring. The softmax is computed online: a
// larger maximum scales down what has been summed so far. Two warp groups have 64 rows each; the scores of the
// next block are computed while the exponentials of this one are.
#pragma once

#include <limits>

#include "imbrex/kernels/attention/head_strides.h"
#include "imbrex/kernels/parts/pipeline.h"
#include "imbrex/lang.h"
#include "imbrex/runtime/device_tensor.h"
#include "imbrex/runtime/stream.h"

namespace imbrex {

/// What attention() does beside softmax(scale q k^T) v. Rows and columns are counted alike: row i of q is at position
/// i + (rows of k) - (rows of q).
struct AttentionOptions {
  float scale = 0;      ///< of the scores; 0: 1 / sqrt(head size)
  bool causal = false;  ///< a row sees the columns up to its own position
  int64_t window_left = -1,
          window_right = -1;  ///< columns that a row sees before and behind its own; -1: all
  int64_t prefix = 0;         ///< columns that every row sees, beside those up to its own; 0: no such mask
  float soft_cap = 0;         ///< scores become soft_cap * tanh(score / soft_cap); 0: they do not
  DeviceTensor alibi_slopes;  ///< float32 [heads]: a head's slope * (column - row) is added to its scores
  DeviceTensor sinks;  ///< float32 [heads]: a score that takes part in each sum of weights and has no value
  DeviceTensor log_sum_exp;  ///< float32, like q without its last dimension: written if not null
  Stream stream;             ///< what it is launched on; Stream(): the own one of q's device
};

/// o = softmax(scale q k^T) v for every head of every batch: q is [batch, heads, rows, head size], k [batch, kv heads, kv
/// rows, head size], v [batch, kv heads, kv rows, value size], o [batch, heads, rows, value size], all float16 or all
/// bfloat16; without a batch, tensors of three dimensions. kv heads divide heads: consecutive heads of q share one of k and
/// v. Head and value size are multiples of 16 of at most 256. A row that sees nothing is 0. Devices that run sm_90a.
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
/// and sinks are not computed. Deterministic: equal calls give equal bits. Strides as attention()'s.
LaunchReport attention_backward(const DeviceTensor& q, const DeviceTensor& k, const DeviceTensor& v,
                                const DeviceTensor& o, const DeviceTensor& d_o, const DeviceTensor& dq,
                                const DeviceTensor& dk, const DeviceTensor& dv,
                                const AttentionOptions& options,
                                SourceLocation where = SourceLocation::current());

struct AttentionDecodeOptions {
  float scale = 0;       ///< of the scores; 0: 1 / sqrt(head size)
  bool causal = false;   ///< row i of q sees the columns up to length - (rows of q) + i
  DeviceTensor lengths;  ///< int32 [batch]: rows of each sequence that are there; null: all there is room for
  DeviceTensor page_table;   ///< int32 [batch, pages of a sequence]: k and v are pages; null: they are not
  DeviceTensor log_sum_exp;  ///< float32, like q without its last dimension: written if not null
  int64_t parts = 0;         ///< CTAs that a sequence is divided among; 0: as many as fill the GPU
  Stream stream;             ///< what it is launched on; Stream(): the own one of q's device
};

/// Attention of a few rows of q, as in decoding, to long caches: q and o are [batch, heads, rows, head size], k and v
/// [batch, kv heads, rows that there is room for, head size], or, with a page table, [pages, kv heads, rows of a page, head
/// size] with pages of any number of rows. Types, heads and strides as attention()'s; the head size is at most 256. What
/// lies in a cache beyond a sequence's length may be anything. A row that sees nothing is 0.
///
/// Lengths and page table are read on the device: a captured graph serves every step. `parts` is chosen from the room, not
/// from lengths. Elements of the table beyond a sequence's length are not read. Memory for the parts' results comes from
/// the stream's workspace.
LaunchReport attention_decode(const DeviceTensor& q, const DeviceTensor& k, const DeviceTensor& v,
                              const DeviceTensor& o, const AttentionDecodeOptions& options = {},
                              SourceLocation where = SourceLocation::current());

namespace kernels {

struct Attention {
  static constexpr const char* target = "sm_90a";
  static constexpr int kConsumers = 2, kRows = 64;  // of a consumer
  static constexpr float kLeast = -1e30f;           // below every score; finite, because it is subtracted
  int block_kv = 128, stages = 2;

  static auto space() {
    return Space<Attention>().choose<&Attention::block_kv, &Attention::stages>(
        {{128, 2}, {160, 2}, {96, 2}, {64, 4}});
  }

  /// Q and O are [heads, q_size, head_size], K and V [heads / queries_per_kv, kv_size, head_size], of `dtype`
  /// (float16 or bfloat16): `queries_per_kv` consecutive heads of Q share one of K and V. `causal`: row i sees
  /// columns up to i + kv_size - q_size.
  void operator()(Int32 heads, Int32 q_size, Int32 kv_size, int head_size, int queries_per_kv, bool causal,
                  float scale, DataType dtype, Ptr<> q_ptr, Ptr<> k_ptr, Ptr<> v_ptr, Ptr<> o_ptr) const {
    grid(cdiv(q_size, kConsumers * kRows), heads);
    Int32 head = block_idx.y, head_kv = head / queries_per_kv;
    auto g_q = global_view(q_ptr, dtype, {heads, q_size, head_size});
    auto g_k = global_view(k_ptr, dtype, {heads / queries_per_kv, kv_size, head_size});
    auto g_v = global_view(v_ptr, dtype, {heads / queries_per_kv, kv_size, head_size});
    auto g_o = global_view(o_ptr, dtype, {heads, q_size, head_size});
    attend(q_size, kv_size, head_size, causal, scale, dtype, g_q[head], g_k[head_kv], g_v[head_kv],
           g_o[head]);
  }

 protected:
  /// One CTA's rows of one head: the tensors are [rows, head_size].
  void attend(const Int32& q_size, const Int32& kv_size, int head_size, bool causal, float scale,
              DataType dtype, const GlobalTensor& g_q, const GlobalTensor& g_k, const GlobalTensor& g_v,
              const GlobalTensor& g_o) const {
    require(head_size % 16 == 0 && head_size <= 128, "head_size is {}: a multiple of 16, at most 128",
            head_size);
    const int block_q = kConsumers * kRows;
    warps(4 + 4 * kConsumers);
    // The last rows, which take longest when causal, start first.
    Int32 offset_q = (grid_dim.x - 1 - block_idx.x) * block_q;
    const float to_exponent = scale * 1.44269504f;  // exp(x) is 2 to the x log2(e)
    Int32 shift = kv_size - q_size;                 // row i sees columns up to i + shift
    Int32 end_kv = kv_size;
    if (causal) end_kv = max(1, min(kv_size, offset_q + block_q + shift));

    auto s_q = shared_tensor(dtype, {block_q, head_size});
    auto s_k = shared_tensor(dtype, {stages, block_kv, head_size});
    auto s_v = shared_tensor(dtype, {stages, block_kv, head_size});
    Barrier q_full = mbarrier::alloc({1})[0];
    Pipeline k_pipe(stages, 1, kConsumers), v_pipe(stages, 1, kConsumers);
    sync();

    if (auto producer = warp_group(0, 4)) {
      setmaxnreg(24);
      if (auto warp = single_warp()) {
        if (auto thread = single_thread()) mbarrier::arrive_and_expect_tx(q_full, s_q.nbytes());
        tma::global_to_shared(g_q, s_q, {offset_q, 0}, q_full);
        for (Int32 offset_kv : range(0, end_kv, block_kv)) {
          const auto load = [&](Pipeline& pipe, const GlobalTensor& g, const SharedTensor& s) {
            pipe.producer_acquire();
            auto stage = s[pipe.producer_stage];
            if (auto thread = single_thread())
              mbarrier::arrive_and_expect_tx(pipe.producer_barrier(), stage.nbytes());
            tma::global_to_shared(g, stage, {offset_kv, 0}, pipe.producer_barrier());
            pipe.producer_advance();
          };
          load(k_pipe, g_k, s_k);
          load(v_pipe, g_v, s_v);
        }
      }
    }

    for (int i = 0; i < kConsumers; ++i) {
      if (auto consumer = warp_group(4 + 4 * i, 4)) {
        setmaxnreg(240);
        Int32 first_row = offset_q + i * kRows;
        auto s_rows = s_q.slice({i * kRows, 0}, {kRows, head_size});
        const auto release = [&](Pipeline& pipe) {
          if (auto thread = single_thread()) mbarrier::arrive(pipe.consumer_barrier());
          pipe.consumer_advance();
        };
        RegisterTensor out = zeros(float32, {kRows, head_size});
        RegisterTensor largest = full(float32, {kRows, 1}, kLeast), total = zeros(float32, {kRows, 1});
        RegisterTensor weights = zeros(dtype, {kRows, block_kv});

        const auto start_scores = [&](RegisterTensor& scores) {
          k_pipe.consumer_acquire();
          wgmma::fence();
          wgmma::mma(s_rows, s_k[k_pipe.consumer_stage].transpose(), scores, {.scale_d = false});
          wgmma::commit_group();
        };
        const auto start_output = [&] {
          v_pipe.consumer_acquire();
          wgmma::fence();
          wgmma::mma(weights, s_v[v_pipe.consumer_stage], out, {.scale_d = true});
          wgmma::commit_group();
        };
        // Turns scores into weights; returns the factor by which the sums so far shrink.
        const auto online_softmax = [&](RegisterTensor& scores, const ScalarArg& offset_kv) {
          auto last_seen = causal ? min(kv_size - 1, first_row + shift) : Expr(kv_size - 1);
          if (auto edge = when(offset_kv + block_kv - 1 > last_seen)) {
            auto is_seen = register_tensor(boolean, {kRows, block_kv}, [&](auto row, auto column) {
              auto at = offset_kv + column;
              return causal ? at < kv_size && at <= first_row + row + shift : at < kv_size;
            });
            scores = select(is_seen, scores, -std::numeric_limits<float>::infinity());
          }
          auto larger = max(largest, max(scores, {.axis = 1, .keep = true}));
          auto shrink = exp2((largest - larger) * to_exponent);
          scores = exp2(fma(scores, to_exponent, -(larger * to_exponent)));
          total = total * shrink + sum(scores, {.axis = 1, .keep = true});
          largest = larger;
          return shrink;
        };

        mbarrier::wait(q_full, 0);
        auto scores = wgmma::accumulator(float32, {kRows, block_kv});
        start_scores(scores);
        wgmma::wait_group(0);
        release(k_pipe);
        online_softmax(scores, 0);
        weights = scores;
        for (Int32 offset_kv : range(block_kv, end_kv, block_kv)) {
          start_scores(scores);  // of this block; below, the output of the block before
          start_output();
          wgmma::wait_group(1);
          release(k_pipe);
          auto shrink = online_softmax(scores, offset_kv);
          wgmma::wait_group(0);
          release(v_pipe);
          out = out * shrink;
          weights = scores;
        }
        start_output();
        wgmma::wait_group(0);
        release(v_pipe);

        auto inverse = select(total > 0, 1 / total, 0);  // a row that sees nothing is 0
        store_shared(s_rows, (out * inverse).to(dtype));
        fence::proxy_async();
        sync();
        if (auto warp = single_warp()) {
          tma::shared_to_global(s_rows, g_o, {first_row, 0});
          tma::commit_group();
          tma::wait_group(0, {.read = true});
        }
      }
    }
  }
};

/// Attention of tensors with strides: only the tensor maps differ.
struct StridedAttention : Attention {
  static auto space() {
    return Space<StridedAttention>().choose<&StridedAttention::block_kv, &StridedAttention::stages>(
        {{128, 2}, {160, 2}, {96, 2}, {64, 4}});
  }

  /// As Attention, for every one of `batches`.
  void operator()(Int32 batches, Int32 heads, Int32 q_size, Int32 kv_size, int head_size, int queries_per_kv,
                  bool causal, float scale, DataType dtype, Ptr<> q_ptr, HeadStrides q_strides, Ptr<> k_ptr,
                  HeadStrides k_strides, Ptr<> v_ptr, HeadStrides v_strides, Ptr<> o_ptr,
                  HeadStrides o_strides) const {
    grid(cdiv(q_size, kConsumers * kRows), heads, batches);
    Int32 batch = block_idx.z, head = block_idx.y, head_kv = head / queries_per_kv;
    auto heads_kv = heads / queries_per_kv;
    auto g_q = q_strides.view(q_ptr, dtype, batches, heads, q_size, head_size);
    auto g_k = k_strides.view(k_ptr, dtype, batches, heads_kv, kv_size, head_size);
    auto g_v = v_strides.view(v_ptr, dtype, batches, heads_kv, kv_size, head_size);
    auto g_o = o_strides.view(o_ptr, dtype, batches, heads, q_size, head_size);
    attend(q_size, kv_size, head_size, causal, scale, dtype, g_q[batch][head], g_k[batch][head_kv],
           g_v[batch][head_kv], g_o[batch][head]);
  }
};

}  // namespace kernels
}  // namespace imbrex
