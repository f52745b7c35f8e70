// SPDX-License-Identifier: Apache-2.0
// Step 4: ping-pong. What step 3 leaves to chance, whether the two consumers need the tensor cores at the same time, is
// arranged: they take turns at starting products, so that the exponentials of one fall under the products of the other.
#pragma once

#include "imbrex/kernels/attention/online_softmax.h"
#include "imbrex/kernels/parts/pipeline.h"
#include "imbrex/lang.h"

namespace imbrex::kernels {

struct AttentionA4 {
  static constexpr const char* target = "sm_90a";
  static constexpr int kRows = 64, kConsumers = 2;  // rows of Q of a consumer
  int block_kv = 128, stages = 2;

  static auto space() {
    return Space<AttentionA4>().choose<&AttentionA4::block_kv, &AttentionA4::stages>(
        {{128, 2}, {64, 4}, {96, 2}});
  }

  /// As AttentionA0's.
  void operator()(Int32 heads, Int32 q_size, Int32 kv_size, int head_size, float scale, DataType dtype,
                  Ptr<> q_ptr, Ptr<> k_ptr, Ptr<> v_ptr, Ptr<> o_ptr) const {
    require(head_size % 16 == 0 && head_size <= 128, "head_size is {}: a multiple of 16, at most 128",
            head_size);
    constexpr int kBlock = kConsumers * kRows;
    grid(cdiv(q_size, kBlock), heads);
    warps(4 + 4 * kConsumers);
    Int32 first_row = block_idx.x * kBlock, head = block_idx.y, blocks = cdiv(kv_size, block_kv);
    auto g_q = global_view(q_ptr, dtype, {heads, q_size, head_size});
    auto g_k = global_view(k_ptr, dtype, {heads, kv_size, head_size});
    auto g_v = global_view(v_ptr, dtype, {heads, kv_size, head_size});
    auto g_o = global_view(o_ptr, dtype, {heads, q_size, head_size});
    auto s_q = shared_tensor(dtype, {kBlock, head_size});
    auto s_k = shared_tensor(dtype, {stages, block_kv, head_size});
    auto s_v = shared_tensor(dtype, {stages, block_kv, head_size});
    Barrier q_loaded = mbarrier::alloc(1);
    Pipeline k_pipe(stages, 1, kConsumers), v_pipe(stages, 1, kConsumers);
    auto turns = mbarrier::alloc({128, 128});  // whose turn it is to start products
    sync();

    if (auto producer = warp_group(0, 4)) {
      setmaxnreg(24);
      if (auto warp = single_warp()) {
        if (auto thread = single_thread()) mbarrier::arrive_and_expect_tx(q_loaded, s_q.nbytes());
        tma::global_to_shared(g_q, s_q, {head, first_row, 0}, q_loaded);
        for (Int32 block : range(blocks)) {
          const auto load = [&](Pipeline& pipe, const GlobalTensor& g, const SharedTensor& ring) {
            pipe.producer_acquire();
            auto stage = ring[pipe.producer_stage];
            if (auto thread = single_thread())
              mbarrier::arrive_and_expect_tx(pipe.producer_barrier(), stage.nbytes());
            tma::global_to_shared(g, stage, {head, block * block_kv, 0}, pipe.producer_barrier());
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
        auto s_q_rows = s_q.slice({i * kRows, 0}, {kRows, head_size});
        OnlineSoftmax softmax(kRows, scale);
        auto scores = wgmma::accumulator(float32, {kRows, block_kv});
        RegisterTensor out = zeros(float32, {kRows, head_size});
        RegisterTensor weights = zeros(dtype, {kRows, block_kv});
        const auto release = [&](Pipeline& pipe) {
          if (auto thread = single_thread()) mbarrier::arrive(pipe.consumer_barrier());
          pipe.consumer_advance();
        };
        const auto start_scores = [&] {
          k_pipe.consumer_acquire();
          wgmma::fence();
          wgmma::mma(s_q_rows, s_k[k_pipe.consumer_stage].transpose(), scores, {.scale_d = false});
          wgmma::commit_group();
        };
        const auto start_output = [&] {
          v_pipe.consumer_acquire();
          wgmma::fence();
          wgmma::mma(weights, s_v[v_pipe.consumer_stage], out, {.scale_d = true});
          wgmma::commit_group();
        };
        const auto weigh = [&](const ScalarArg& block) {
          if (auto edge = when((block + 1) * block_kv > kv_size)) {
            auto at =
                register_tensor(int32, {1, block_kv}, [&](auto, auto j) { return block * block_kv + j; });
            scores = select(at < kv_size, scores, -std::numeric_limits<float>::infinity());
          }
          return softmax.weigh(scores);
        };
        mbarrier::wait(q_loaded, 0);
        // Each consumer has the tensor cores to itself while it starts its products; the other one has its exponentials then.
        UInt32 turn_phase = i == 0 ? mbarrier::producer_initial_phase : mbarrier::consumer_initial_phase;
        const auto take_turn = [&] {
          mbarrier::wait(turns[i], turn_phase);
          turn_phase ^= 1;
        };
        const auto give_turn = [&] { mbarrier::arrive(turns[1 - i]); };
        take_turn();
        start_scores();
        give_turn();
        wgmma::wait_group(0);
        release(k_pipe);
        weigh(0);
        weights = scores;
        for (Int32 block : range(1, blocks)) {
          take_turn();
          start_scores();  // of this block; below, the output of the block before
          start_output();
          give_turn();
          wgmma::wait_group(1);
          release(k_pipe);
          auto shrink = weigh(block);
          wgmma::wait_group(0);
          release(v_pipe);
          out = out * shrink;
          weights = scores;
        }
        start_output();
        wgmma::wait_group(0);
        release(v_pipe);
        store_global(g_o[head], (out * softmax.inverse()).to(dtype), {first_row + i * kRows, 0});
      }
    }
  }
};

}  // namespace imbrex::kernels
