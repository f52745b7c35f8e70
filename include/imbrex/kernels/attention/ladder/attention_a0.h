// SPDX-License-Identifier: Apache-2.0
// Step 0: softmax as the textbook has it. A CTA has 64 rows of Q and goes through K twice: first for the maximum of each
// row's scores and the sum of its weights, then for the weights themselves, which meet V. The scores are never in global
// memory, but they are computed twice, and nothing overlaps: loads, tensor cores and exponentials wait for each other.
#pragma once

#include <limits>

#include "imbrex/lang.h"

namespace imbrex::kernels {

struct AttentionA0 {
  static constexpr const char* target = "sm_90a";
  static constexpr int kRows = 64;  // of Q: those of wgmma
  int block_kv = 64;

  static auto space() { return Space<AttentionA0>().choose<&AttentionA0::block_kv>({64, 128, 32}); }

  /// Q and O are [heads, q_size, head_size], K and V [heads, kv_size, head_size], of dtype (float16 or bfloat16).
  void operator()(Int32 heads, Int32 q_size, Int32 kv_size, int head_size, float scale, DataType dtype,
                  Ptr<> q_ptr, Ptr<> k_ptr, Ptr<> v_ptr, Ptr<> o_ptr) const {
    require(head_size % 16 == 0 && head_size <= 128, "head_size is {}: a multiple of 16, at most 128",
            head_size);
    grid(cdiv(q_size, kRows), heads);
    warps(4);
    Int32 first_row = block_idx.x * kRows, head = block_idx.y;
    auto g_q = global_view(q_ptr, dtype, {heads, q_size, head_size});
    auto g_k = global_view(k_ptr, dtype, {heads, kv_size, head_size});
    auto g_v = global_view(v_ptr, dtype, {heads, kv_size, head_size});
    auto g_o = global_view(o_ptr, dtype, {heads, q_size, head_size});
    auto s_q = shared_tensor(dtype, {kRows, head_size});
    auto s_k = shared_tensor(dtype, {block_kv, head_size});
    auto s_v = shared_tensor(dtype, {block_kv, head_size});
    Barrier loaded = mbarrier::alloc(1);
    sync();

    UInt32 phase = mbarrier::consumer_initial_phase;
    const auto load = [&](const GlobalTensor& g, const SharedTensor& s, const ScalarArg& row) {
      if (auto warp = single_warp()) {
        if (auto thread = single_thread()) mbarrier::arrive_and_expect_tx(loaded, s.nbytes());
        tma::global_to_shared(g, s, {head, row, 0}, loaded);
      }
      mbarrier::wait(loaded, phase);
      phase ^= 1;
    };
    load(g_q, s_q, first_row);

    auto scores = wgmma::accumulator(float32, {kRows, block_kv});
    // The scores of the columns from `column` on as exponents of 2; -infinity behind the last column.
    const auto score = [&](const Int32& column) {
      sync();  // all are done with the block before
      load(g_k, s_k, column);
      wgmma::fence();
      wgmma::mma(s_q, s_k.transpose(), scores, {.scale_d = false});
      wgmma::commit_group();
      wgmma::wait_group(0);
      auto at = register_tensor(int32, {1, block_kv}, [&](auto, auto j) { return column + j; });
      scores = select(at < kv_size, scores * (scale * 1.44269504f), -std::numeric_limits<float>::infinity());
    };

    RegisterTensor largest = full(float32, {kRows, 1}, -1e30f), total = zeros(float32, {kRows, 1});
    for (Int32 column : range(0, kv_size, block_kv)) {
      score(column);
      auto larger = max(largest, max(scores, {.axis = 1, .keep = true}));
      total = total * exp2(largest - larger) + sum(exp2(scores - larger), {.axis = 1, .keep = true});
      largest = larger;
    }
    RegisterTensor out = zeros(float32, {kRows, head_size});
    for (Int32 column : range(0, kv_size, block_kv)) {
      score(column);
      load(g_v, s_v, column);
      RegisterTensor weights = (exp2(scores - largest) / total).to(dtype);
      wgmma::fence();
      wgmma::mma(weights, s_v, out, {.scale_d = true});
      wgmma::commit_group();
      wgmma::wait_group(0);
    }
    store_global(g_o[head], out.to(dtype), {first_row, 0});
  }
};

}  // namespace imbrex::kernels
