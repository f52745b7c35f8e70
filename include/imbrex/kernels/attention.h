// SPDX-License-Identifier: Apache-2.0
// Attention in one kernel: O = softmax(scale Q K^T) V for every head; the matrix of scores is never in global
// memory. A CTA takes 128 rows of Q; blocks of K and V stream through a ring. The softmax is computed online: a
// larger maximum scales down what has been summed so far. Two warp groups have 64 rows each; the scores of the
// next block are computed while the exponentials of this one are.
#pragma once

#include <limits>

#include "imbrex/kernels/parts/pipeline.h"
#include "imbrex/lang.h"

namespace imbrex::kernels {

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
    require(head_size % 16 == 0 && head_size <= 128, "head_size is {}: a multiple of 16, at most 128",
            head_size);
    const int block_q = kConsumers * kRows;
    grid(cdiv(q_size, block_q), heads);
    warps(4 + 4 * kConsumers);
    // The last rows, which take longest when causal, start first.
    Int32 offset_q = (grid_dim.x - 1 - block_idx.x) * block_q;
    Int32 head = block_idx.y, head_kv = head / queries_per_kv;
    const float to_exponent = scale * 1.44269504f;  // exp(x) is 2 to the x log2(e)
    Int32 shift = kv_size - q_size;                 // row i sees columns up to i + shift
    Int32 end_kv = kv_size;
    if (causal) end_kv = max(1, min(kv_size, offset_q + block_q + shift));

    auto g_q = global_view(q_ptr, dtype, {heads, q_size, head_size});
    auto g_k = global_view(k_ptr, dtype, {heads / queries_per_kv, kv_size, head_size});
    auto g_v = global_view(v_ptr, dtype, {heads / queries_per_kv, kv_size, head_size});
    auto g_o = global_view(o_ptr, dtype, {heads, q_size, head_size});
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
        tma::global_to_shared(g_q, s_q, {head, offset_q, 0}, q_full);
        for (Int32 offset_kv : range(0, end_kv, block_kv)) {
          const auto load = [&](Pipeline& pipe, const GlobalTensor& g, const SharedTensor& s) {
            pipe.producer_acquire();
            auto stage = s[pipe.producer_stage];
            if (auto thread = single_thread())
              mbarrier::arrive_and_expect_tx(pipe.producer_barrier(), stage.nbytes());
            tma::global_to_shared(g, stage, {head_kv, offset_kv, 0}, pipe.producer_barrier());
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
          tma::shared_to_global(s_rows, g_o, {head, first_row, 0});
          tma::commit_group();
          tma::wait_group(0, {.read = true});
        }
      }
    }
  }
};

}  // namespace imbrex::kernels
