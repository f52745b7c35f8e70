// SPDX-License-Identifier: Apache-2.0
// Hopper matmul, step 2: loads overlap products. A dedicated warp loads as many blocks ahead as the ring of
// stages has room for; the warp group that multiplies waits only for a stage to be full, and signals when it
// is empty again. With three stages of this size two CTAs fit a multiprocessor: while one waits, the other
// multiplies.
#pragma once

#include "imbrex/kernels/parts/pipeline.h"
#include "imbrex/lang.h"

namespace imbrex::kernels {

struct HopperMatmulH2 {
  static constexpr const char* target = "sm_90a";
  int block_m = 128, block_n = 128, block_k = 64, stages = 3;

  static auto space() {
    return Space<HopperMatmulH2>()
        .choose<&HopperMatmulH2::block_m, &HopperMatmulH2::block_n>({{128, 128}, {64, 256}, {128, 96}})
        .choose<&HopperMatmulH2::stages>({3, 4, 5});
  }

  void operator()(Int32 m_size, int n_size, int k_size, DataType dtype, Ptr<> a_ptr, Ptr<> b_ptr,
                  Ptr<> c_ptr) const {
    grid(cdiv(m_size, block_m), cdiv(n_size, block_n));
    warps(5);
    Int32 offset_m = block_m * block_idx.x;
    Int32 offset_n = block_n * block_idx.y;

    auto g_a = global_view(a_ptr, dtype, {m_size, k_size});
    auto g_b = global_view(b_ptr, dtype, {n_size, k_size});
    auto g_c = global_view(c_ptr, dtype, {m_size, n_size});
    auto s_a = shared_tensor(dtype, {stages, block_m, block_k});
    auto s_b = shared_tensor(dtype, {stages, block_n, block_k});
    Pipeline pipe(stages, 1, 128);
    sync();

    if (auto producer = single_warp(4)) {
      for (Int32 offset_k : range(0, k_size, block_k)) {
        pipe.producer_acquire();
        auto s_a_stage = s_a[pipe.producer_stage];
        auto s_b_stage = s_b[pipe.producer_stage];
        if (auto thread = single_thread())
          mbarrier::arrive_and_expect_tx(pipe.producer_barrier(), s_a_stage.nbytes() + s_b_stage.nbytes());
        tma::global_to_shared(g_a, s_a_stage, {offset_m, offset_k}, pipe.producer_barrier());
        tma::global_to_shared(g_b, s_b_stage, {offset_n, offset_k}, pipe.producer_barrier());
        pipe.producer_advance();
      }
    }

    if (auto consumer = warp_group(0, 4)) {
      auto acc = wgmma::accumulator(float32, {block_m, block_n});
      for (Int32 offset_k : range(0, k_size, block_k)) {
        pipe.consumer_acquire();
        wgmma::fence();
        wgmma::mma(s_a[pipe.consumer_stage], s_b[pipe.consumer_stage].transpose(), acc,
                   {.scale_d = offset_k != 0});
        wgmma::commit_group();
        wgmma::wait_group(0);
        mbarrier::arrive(pipe.consumer_barrier());
        pipe.consumer_advance();
      }
      store_global(g_c, acc.to(dtype), {offset_m, offset_n});
    }
  }
};

}  // namespace imbrex::kernels
