// SPDX-License-Identifier: Apache-2.0
// Attention of many query rows on Blackwell. A CTA has two tiles of 128 rows of Q, whose softmax warp groups work while the
// tensor cores multiply for the other tile. Scores and sums are in tensor memory, one row per thread; weights go back there
// and are an operand from there. What has been summed is rescaled only where a row's maximum has grown enough to matter:
// a weight may be as large as 2^8 until then.
#pragma once

#include <limits>

#include "imbrex/kernels/parts/pipeline.h"
#include "imbrex/lang.h"

namespace imbrex::kernels {

struct BlackwellAttention {
  static constexpr const char* target = "sm_100a";
  static constexpr int kTiles = 2, kRows = 128;
  static constexpr float kGrowth = 8;  // of a maximum, as an exponent of 2, before sums are rescaled
  int block_kv = 64, stages = 3, slice = 32;

  static auto space() {
    return Space<BlackwellAttention>()
        .choose<&BlackwellAttention::block_kv, &BlackwellAttention::stages>({{64, 3}, {64, 2}, {32, 4}})
        .choose<&BlackwellAttention::slice>({32, 64});
  }

  /// Q and O are [heads, q_size, head_size], K and V [heads / queries_per_kv, kv_size, head_size], of `dtype` (float16 or
  /// bfloat16). `causal`: row i sees columns up to i + kv_size - q_size.
  void operator()(Int32 heads, Int32 q_size, Int32 kv_size, int head_size, int queries_per_kv, bool causal,
                  float scale, DataType dtype, Ptr<> q_ptr, Ptr<> k_ptr, Ptr<> v_ptr, Ptr<> o_ptr) const {
    require(head_size % slice == 0 && head_size <= 128, "head_size is {}: a multiple of {}, at most 128",
            head_size, slice);
    require(head_size >= block_kv, "block_kv = {} is more than head_size = {}", block_kv, head_size);
    grid(cdiv(q_size, kTiles * kRows), heads);
    warps(4 + 4 * kTiles);
    Int32 head = block_idx.y, head_kv = head / queries_per_kv;
    // The last rows, which take longest when causal, start first.
    Int32 offset_q = (grid_dim.x - 1 - block_idx.x) * (kTiles * kRows), shift = kv_size - q_size;
    Int32 end_kv = kv_size;
    if (causal) end_kv = max(1, min(kv_size, offset_q + kTiles * kRows + shift));

    auto g_q = global_view(q_ptr, dtype, {heads, q_size, head_size})[head];
    auto g_k = global_view(k_ptr, dtype, {heads / queries_per_kv, kv_size, head_size})[head_kv];
    auto g_v = global_view(v_ptr, dtype, {heads / queries_per_kv, kv_size, head_size})[head_kv];
    auto g_o = global_view(o_ptr, dtype, {heads, q_size, head_size})[head];
    auto s_q = shared_tensor(dtype, {kTiles, kRows, head_size});
    auto s_k = shared_tensor(dtype, {stages, block_kv, head_size});
    auto s_v = shared_tensor(dtype, {stages, block_kv, head_size});
    // From the largest: sums are as wide as scores at least, as head_size >= block_kv.
    auto t_out = tcgen05::alloc(float32, {kTiles, kRows, head_size});
    auto t_scores = tcgen05::alloc(float32, {kTiles, kRows, block_kv});
    auto t_weights = tcgen05::alloc(dtype, {kTiles, kRows, block_kv});

    Barrier q_full = mbarrier::alloc(1);
    Pipeline k_pipe(stages), v_pipe(stages);
    // Of each tile: scores are there, have been read; weights are there; their product has been added to the sums.
    auto scores_full = mbarrier::alloc({1, 1}), scores_empty = mbarrier::alloc({kRows, kRows}),
         weights_full = mbarrier::alloc({kRows, kRows}), added = mbarrier::alloc({1, 1});
    sync();

    if (auto loader = single_warp(0)) {
      if (auto thread = single_thread()) mbarrier::arrive_and_expect_tx(q_full, s_q.nbytes());
      for (int t = 0; t < kTiles; ++t) tma::global_to_shared(g_q, s_q[t], {offset_q + t * kRows, 0}, q_full);
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
      // The last products give their stages back some time after others know of them: the barriers must be there until then.
      for (int i = 0; i < stages; ++i)
        for (Pipeline* pipe : {&k_pipe, &v_pipe}) {
          pipe->producer_acquire();
          pipe->producer_advance();
        }
    }

    if (auto multiplier = single_warp(1)) {
      UInt32 empty_phase = mbarrier::producer_initial_phase, full_phase = mbarrier::consumer_initial_phase;
      const auto start_scores = [&] {
        k_pipe.consumer_acquire();
        for (int t = 0; t < kTiles; ++t) {
          mbarrier::wait(scores_empty[t], empty_phase);
          tcgen05::mma(s_q[t], s_k[k_pipe.consumer_stage].transpose(), t_scores[t],
                       {.enable_input_d = false});
          tcgen05::commit(scores_full[t]);
        }
        empty_phase ^= 1;
        tcgen05::commit(k_pipe.consumer_barrier());
        k_pipe.consumer_advance();
      };
      const auto start_output = [&](const ScalarArg& adds) {
        v_pipe.consumer_acquire();
        for (int t = 0; t < kTiles; ++t) {
          mbarrier::wait(weights_full[t], full_phase);
          tcgen05::mma(t_weights[t], s_v[v_pipe.consumer_stage], t_out[t], {.enable_input_d = adds});
          tcgen05::commit(added[t]);
        }
        full_phase ^= 1;
        tcgen05::commit(v_pipe.consumer_barrier());
        v_pipe.consumer_advance();
      };
      mbarrier::wait(q_full, 0);
      start_scores();
      for (Int32 offset_kv : range(block_kv, end_kv, block_kv)) {
        start_scores();  // of this block; below, the output of the block before
        start_output(offset_kv > block_kv);
      }
      start_output(end_kv > block_kv);
    }

    for (int t = 0; t < kTiles; ++t) {
      if (auto softmax = warp_group(4 + 4 * t, 4)) {
        Int32 first_row = offset_q + t * kRows;
        const float to_exponent = scale * 1.44269504f;
        RegisterTensor largest = full(float32, {kRows, 1}, -1e30f), total = zeros(float32, {kRows, 1});
        UInt32 phase = mbarrier::consumer_initial_phase, added_phase = mbarrier::consumer_initial_phase;
        const auto each_slice = [&](const auto& use) {
          for (int c = 0; c < head_size; c += slice) use(t_out[t].slice({0, c}, {kRows, slice}), c);
        };
        for (Int32 offset_kv : range(0, end_kv, block_kv)) {
          mbarrier::wait(scores_full[t], phase);
          phase ^= 1;
          RegisterTensor scores = tcgen05::load(t_scores[t]);
          tcgen05::wait_load();
          mbarrier::arrive(scores_empty[t]);
          auto last_seen = causal ? min(kv_size - 1, first_row + shift) : kv_size - 1;
          if (auto edge = when(offset_kv + block_kv - 1 > last_seen)) {
            auto is_seen = register_tensor(boolean, {kRows, block_kv}, [&](auto row, auto column) {
              auto at = offset_kv + column;
              return causal ? at < kv_size && at <= first_row + row + shift : at < kv_size;
            });
            scores = select(is_seen, scores, -std::numeric_limits<float>::infinity());
          }
          auto larger = max(largest, max(scores, {.axis = 1, .keep = true}));
          if (auto first = when(offset_kv == 0)) largest = larger;
          if (auto later = otherwise()) {
            mbarrier::wait(added[t], added_phase);  // the sums are complete, and the weights have been read
            added_phase ^= 1;
            if (auto grown = when(any((larger - largest) * to_exponent > kGrowth))) {
              RegisterTensor shrink = exp2((largest - larger) * to_exponent);
              each_slice([&](const TMemoryTensor& sums, int) {
                tcgen05::store(sums, tcgen05::load(sums) * shrink);
              });
              tcgen05::wait_store();
              total = total * shrink;
              largest = larger;
            }
          }
          scores = exp2(fma(scores, to_exponent, -(largest * to_exponent)));
          total = total + sum(scores, {.axis = 1, .keep = true});
          tcgen05::store(t_weights[t], scores.to(dtype));
          tcgen05::wait_store();
          mbarrier::arrive(weights_full[t]);
        }
        mbarrier::wait(added[t], added_phase);

        RegisterTensor inverse = select(total > 0, 1 / total, 0);  // a row that sees nothing is 0
        each_slice([&](const TMemoryTensor& sums, int c) {
          store_shared(s_q[t].slice({0, c}, {kRows, slice}), (tcgen05::load(sums) * inverse).to(dtype));
        });
        fence::proxy_async();
        sync();
        if (auto warp = single_warp()) {
          tma::shared_to_global(s_q[t], g_o, {first_row, 0});
          tma::commit_group();
          tma::wait_group(0, {.read = true});
        }
      }
    }
    sync();
    tcgen05::dealloc(t_scores);
    tcgen05::dealloc(t_weights);
    tcgen05::dealloc(t_out);
  }
};

}  // namespace imbrex::kernels
