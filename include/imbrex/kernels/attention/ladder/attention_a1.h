// SPDX-License-Identifier: Apache-2.0
// Step 1: one pass. The softmax is computed as the blocks come (online_softmax.h): what has been summed shrinks when a larger
// maximum appears, and the sum of weights divides the result at the end. A block of K and one of V are loaded together,
// and those of the next block while this one is worked on.
#pragma once

#include "imbrex/kernels/attention/online_softmax.h"
#include "imbrex/kernels/parts/pipeline.h"
#include "imbrex/lang.h"

namespace imbrex::kernels {

struct AttentionA1 {
  static constexpr const char* target = "sm_90a";
  static constexpr int kRows = 64;
  int block_kv = 64, stages = 2;

  static auto space() {
    return Space<AttentionA1>().choose<&AttentionA1::block_kv, &AttentionA1::stages>(
        {{64, 2}, {128, 2}, {64, 3}});
  }

  /// As AttentionA0's.
  void operator()(Int32 heads, Int32 q_size, Int32 kv_size, int head_size, float scale, DataType dtype,
                  Ptr<> q_ptr, Ptr<> k_ptr, Ptr<> v_ptr, Ptr<> o_ptr) const {
    require(head_size % 16 == 0 && head_size <= 128, "head_size is {}: a multiple of 16, at most 128",
            head_size);
    grid(cdiv(q_size, kRows), heads);
    warps(4);
    Int32 first_row = block_idx.x * kRows, head = block_idx.y, blocks = cdiv(kv_size, block_kv);
    auto g_q = global_view(q_ptr, dtype, {heads, q_size, head_size});
    auto g_k = global_view(k_ptr, dtype, {heads, kv_size, head_size});
    auto g_v = global_view(v_ptr, dtype, {heads, kv_size, head_size});
    auto g_o = global_view(o_ptr, dtype, {heads, q_size, head_size});
    auto s_q = shared_tensor(dtype, {kRows, head_size});
    auto s_k = shared_tensor(dtype, {stages, block_kv, head_size});
    auto s_v = shared_tensor(dtype, {stages, block_kv, head_size});
    Barrier q_loaded = mbarrier::alloc(1);
    Pipeline pipe(stages);
    sync();

    const auto load = [&](const ScalarArg& block) {  // one warp's
      auto k = s_k[pipe.producer_stage], v = s_v[pipe.producer_stage];
      Barrier full = pipe.producer_barrier();
      if (auto thread = single_thread()) mbarrier::arrive_and_expect_tx(full, k.nbytes() + v.nbytes());
      tma::global_to_shared(g_k, k, {head, block * block_kv, 0}, full);
      tma::global_to_shared(g_v, v, {head, block * block_kv, 0}, full);
    };
    if (auto warp = single_warp()) {
      if (auto thread = single_thread()) mbarrier::arrive_and_expect_tx(q_loaded, s_q.nbytes());
      tma::global_to_shared(g_q, s_q, {head, first_row, 0}, q_loaded);
    }
    for (int i = 0; i < stages - 1; ++i) {
      if (auto some = when(i < blocks))
        if (auto warp = single_warp()) load(i);
      pipe.producer_advance();
    }
    mbarrier::wait(q_loaded, 0);

    OnlineSoftmax softmax(kRows, scale);
    auto scores = wgmma::accumulator(float32, {kRows, block_kv});
    RegisterTensor out = zeros(float32, {kRows, head_size});
    for (Int32 block : range(blocks)) {
      sync();  // all are done with the block before, whose stage is filled anew
      if (auto more = when(block + (stages - 1) < blocks))
        if (auto warp = single_warp()) load(block + (stages - 1));
      pipe.producer_advance();
      pipe.consumer_acquire();
      wgmma::fence();
      wgmma::mma(s_q, s_k[pipe.consumer_stage].transpose(), scores, {.scale_d = false});
      wgmma::commit_group();
      wgmma::wait_group(0);
      if (auto edge = when((block + 1) * block_kv > kv_size)) {
        auto at = register_tensor(int32, {1, block_kv}, [&](auto, auto j) { return block * block_kv + j; });
        scores = select(at < kv_size, scores, -std::numeric_limits<float>::infinity());
      }
      out = out * softmax.weigh(scores);
      RegisterTensor weights = scores.to(dtype);
      wgmma::fence();
      wgmma::mma(weights, s_v[pipe.consumer_stage], out, {.scale_d = true});
      wgmma::commit_group();
      wgmma::wait_group(0);
      pipe.consumer_advance();
    }
    store_global(g_o[head], (out * softmax.inverse()).to(dtype), {first_row, 0});
  }
};

}  // namespace imbrex::kernels
