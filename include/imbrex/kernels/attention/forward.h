// SPDX-License-Identifier: Apache-2.0
// Attention of many query rows in one persistent kernel: O = softmax(scale Q K^T) V for every head; the matrix of scores
// is never in global memory. A tile is 64 rows of Q for each consumer; blocks of K and V stream through a ring. The scores
// of the next block are computed while the exponentials of this one are, and a tile's loads begin while the one before
// it ends.
#pragma once

#include "imbrex/kernels/attention/head_strides.h"
#include "imbrex/kernels/attention/online_softmax.h"
#include "imbrex/kernels/attention/score_steps.h"
#include "imbrex/kernels/attention/tile_order.h"
#include "imbrex/kernels/parts/pipeline.h"
#include "imbrex/lang.h"

namespace imbrex::kernels {

template <class... Steps>
struct ForwardAttention {
  static constexpr const char* target = "sm_90a";
  static constexpr int kRows = 64;  // of a consumer
  int block_kv = 128, stages = 2, consumers = 2, ctas = 132;

  static auto space() {
    return Space<ForwardAttention>()
        .template choose<&ForwardAttention::block_kv, &ForwardAttention::stages,
                         &ForwardAttention::consumers>(
            {{128, 2, 2}, {160, 2, 2}, {96, 2, 2}, {80, 2, 2}, {64, 4, 2}, {64, 2, 3}})
        .template choose<&ForwardAttention::ctas>({132});
  }

  /// Q and O are [batches, heads, q_size, ...], K and V [batches, heads / group, kv_size, ...], of `dtype` (float16 or
  /// bfloat16); rows of Q and K have head_size elements, those of V and O value_size. Position of row i: i + kv_size -
  /// q_size. With `wants_log_sum`, the logarithm of each row's sum of weights goes to log_sum [batches, heads, q_size].
  void operator()(Int32 batches, Int32 heads, Int32 q_size, Int32 kv_size, int head_size, int value_size,
                  int group, float scale, DataType dtype, Ptr<> q_ptr, HeadStrides q_strides, Ptr<> k_ptr,
                  HeadStrides k_strides, Ptr<> v_ptr, HeadStrides v_strides, Ptr<> o_ptr,
                  HeadStrides o_strides, bool wants_log_sum, Ptr<float32> log_sum_ptr,
                  AttentionTileOrder order, ScoreSteps<Steps...> steps) const {
    for (const int size : {head_size, value_size})
      require(size % 16 == 0 && size <= 256, "heads of {}: a multiple of 16, at most 256", size);
    const int block_q = consumers * kRows;
    Int32 num_tiles = cdiv(q_size, block_q) * heads * batches;
    grid(min(num_tiles, ctas));
    warps(4 + 4 * consumers);
    Int32 shift = kv_size - q_size;  // from rows to positions

    auto g_q = q_strides.view(q_ptr, dtype, batches, heads, q_size, head_size);
    auto g_k = k_strides.view(k_ptr, dtype, batches, heads / group, kv_size, head_size);
    auto g_v = v_strides.view(v_ptr, dtype, batches, heads / group, kv_size, value_size);
    auto g_o = o_strides.view(o_ptr, dtype, batches, heads, q_size, value_size);
    // O has memory of its own where there is room; else it takes that of Q, whose next rows come later then.
    const int64_t row_bytes = dtype.bits() / 8;
    const int64_t taken = (block_q * head_size + stages * block_kv * (head_size + value_size)) * row_bytes;
    const bool o_in_q = taken + block_q * value_size * row_bytes > 220 * 1024;
    auto s_q = shared_tensor(dtype, {block_q, head_size});
    auto s_o =
        o_in_q ? s_q.slice({0, 0}, {block_q, value_size}) : shared_tensor(dtype, {block_q, value_size});
    auto s_k = shared_tensor(dtype, {stages, block_kv, head_size});
    auto s_v = shared_tensor(dtype, {stages, block_kv, value_size});
    Pipeline k_pipe(stages, 1, consumers), v_pipe(stages, 1, consumers);
    auto q_full = mbarrier::alloc(std::vector<int64_t>(static_cast<size_t>(consumers), 1));
    auto q_empty = mbarrier::alloc(std::vector<int64_t>(static_cast<size_t>(consumers), 1));
    sync();

    // Blocks of columns that rows from first_row on of a tile see: from `begin`, a multiple of block_kv, to `end`. At least
    // one, so that all rings turn; its scores are masked.
    const auto columns_of = [&](const Int32& first_row, const ScalarArg& batch, Int32& begin, Int32& end) {
      begin = 0;
      end = kv_size;
      steps.narrow({first_row + shift, min(first_row + block_q, q_size) - 1 + shift, batch}, begin, end);
      begin = min(max(begin, 0), kv_size - 1) / block_kv * block_kv;
      end = max(end, begin + 1);
    };

    if (auto producer = warp_group(0, 4)) {
      setmaxnreg(consumers == 2 ? 24 : 32);
      if (auto warp = single_warp()) {
        UInt32 q_phase = mbarrier::producer_initial_phase;
        for (Int32 tile : range(block_idx.x, num_tiles, grid_dim.x)) {
          Int32 row_block = 0, head = 0, batch = 0;
          order.place(tile, q_size, block_q, heads, batches, row_block, head, batch);
          Int32 first_row = row_block * block_q, head_kv = head / group, begin = 0, end = 0;
          columns_of(first_row, batch, begin, end);
          for (int i = 0; i < consumers; ++i) {
            auto rows = s_q.slice({i * kRows, 0}, {kRows, head_size});
            mbarrier::wait(q_empty[i], q_phase);
            if (auto thread = single_thread()) mbarrier::arrive_and_expect_tx(q_full[i], rows.nbytes());
            tma::global_to_shared(g_q, rows, {batch, head, first_row + i * kRows, 0}, q_full[i]);
          }
          q_phase ^= 1;
          for (Int32 offset_kv : range(begin, end, block_kv)) {
            const auto load = [&](Pipeline& pipe, const GlobalTensor& g, const SharedTensor& s) {
              pipe.producer_acquire();
              auto stage = s[pipe.producer_stage];
              if (auto thread = single_thread())
                mbarrier::arrive_and_expect_tx(pipe.producer_barrier(), stage.nbytes());
              tma::global_to_shared(g, stage, {batch, head_kv, offset_kv, 0}, pipe.producer_barrier());
              pipe.producer_advance();
            };
            load(k_pipe, g_k, s_k);
            load(v_pipe, g_v, s_v);
          }
        }
      }
    }

    for (int i = 0; i < consumers; ++i) {
      if (auto consumer = warp_group(4 + 4 * i, 4)) {
        setmaxnreg(consumers == 2 ? 240 : 160);
        auto s_q_rows = s_q.slice({i * kRows, 0}, {kRows, head_size});
        auto s_o_rows = s_o.slice({i * kRows, 0}, {kRows, value_size});
        UInt32 q_phase = mbarrier::consumer_initial_phase;
        const auto release = [&](Pipeline& pipe) {
          if (auto thread = single_thread()) mbarrier::arrive(pipe.consumer_barrier());
          pipe.consumer_advance();
        };
        auto scores = wgmma::accumulator(float32, {kRows, block_kv});
        RegisterTensor out = zeros(float32, {kRows, value_size});
        RegisterTensor weights = zeros(dtype, {kRows, block_kv});
        const auto start_scores = [&] {
          k_pipe.consumer_acquire();
          wgmma::fence();
          wgmma::mma(s_q_rows, s_k[k_pipe.consumer_stage].transpose(), scores, {.scale_d = false});
          wgmma::commit_group();
        };
        const auto start_output = [&](const ScalarArg& adds) {
          v_pipe.consumer_acquire();
          wgmma::fence();
          wgmma::mma(weights, s_v[v_pipe.consumer_stage], out, {.scale_d = adds});
          wgmma::commit_group();
        };

        for (Int32 tile : range(block_idx.x, num_tiles, grid_dim.x)) {
          Int32 row_block = 0, head = 0, batch = 0;
          order.place(tile, q_size, block_q, heads, batches, row_block, head, batch);
          Int32 first_row = row_block * block_q + i * kRows, begin = 0, end = 0;
          columns_of(row_block * block_q, batch, begin, end);
          OnlineSoftmax softmax(kRows, scale, steps.changes());
          const auto tile_of = [&](const Int32& offset_kv) {
            return ScoreTile{
                [&] {
                  return register_tensor(int32, {kRows, 1},
                                         [&](auto r, auto) { return first_row + r + shift; });
                },
                [&] {
                  return register_tensor(int32, {1, block_kv}, [&](auto, auto c) { return offset_kv + c; });
                },
                [&] {
                  return register_tensor(int32, {1, 1}, [&](auto, auto) { return head + 0; });
                },
                batch};
          };
          const auto weigh = [&](const Int32& offset_kv) {
            const ScoreTile at = tile_of(offset_kv);
            if (steps.changes()) {
              scores = scores * scale;
              steps.change(scores, at);
            }
            auto is_edge = steps.is_edge({first_row + shift, first_row + (kRows - 1) + shift, offset_kv,
                                          offset_kv + (block_kv - 1), batch}) ||
                           offset_kv + block_kv > kv_size;
            if (auto edge = when(is_edge)) {
              scores = select(at.column() < kv_size, scores, -std::numeric_limits<float>::infinity());
              steps.mask(scores, at);
            }
            return softmax.weigh(scores);
          };
          steps.with_sink(tile_of(begin), [&](const RegisterValue& sink) { softmax.begin_with(sink); });

          mbarrier::wait(q_full[i], q_phase);
          q_phase ^= 1;
          start_scores();
          wgmma::wait_group(0);
          release(k_pipe);
          weigh(begin);
          weights = scores;
          for (Int32 offset_kv : range(begin + block_kv, end, block_kv)) {
            start_scores();  // of this block; below, the output of the block before
            start_output(offset_kv > begin + block_kv);
            wgmma::wait_group(1);
            release(k_pipe);
            auto shrink = weigh(offset_kv);
            wgmma::wait_group(0);
            release(v_pipe);
            out = out * shrink;
            weights = scores;
          }
          if (!o_in_q)
            if (auto thread = single_thread()) mbarrier::arrive(q_empty[i]);  // the last scores are there
          start_output(end > begin + block_kv);
          wgmma::wait_group(0);
          release(v_pipe);

          if (wants_log_sum) {
            auto g_log_sum = global_view(log_sum_ptr, {batches, heads, q_size, 1});
            store_global(g_log_sum[batch][head], softmax.log_sum_exp(), {first_row, 0});
          }
          auto result = (out * softmax.inverse()).to(dtype);
          if (!o_in_q) {
            if (auto warp = single_warp()) tma::wait_group(0, {.read = true});
            sync();  // the tile before has been stored
          }
          store_shared(s_o_rows, result);
          fence::proxy_async();
          sync();
          if (auto warp = single_warp()) {
            tma::shared_to_global(s_o_rows, g_o, {batch, head, first_row, 0});
            tma::commit_group();
            if (o_in_q) {
              tma::wait_group(0, {.read = true});
              if (auto thread = single_thread()) mbarrier::arrive(q_empty[i]);
            }
          }
        }
        if (auto warp = single_warp()) tma::wait_group(0, {.read = true});
      }
    }
  }
};

}  // namespace imbrex::kernels
