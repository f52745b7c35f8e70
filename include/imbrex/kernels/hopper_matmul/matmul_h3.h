// SPDX-License-Identifier: Apache-2.0
// Hopper matmul, step 3: two warp groups multiply, each half of the rows by the same 256 columns of B. While
// one waits, the other has products queued; and the tile is as large as their registers allow, so that shared
// memory can feed the tensor cores at their full rate.
#pragma once

#include "imbrex/kernels/parts/pipeline.h"
#include "imbrex/lang.h"

namespace imbrex::kernels {

struct HopperMatmulH3 {
  static constexpr const char* target = "sm_90a";
  int block_m = 128, block_n = 256, block_k = 64, stages = 4;

  static auto space() {
    return Space<HopperMatmulH3>()
        .choose<&HopperMatmulH3::block_m, &HopperMatmulH3::block_n>({{128, 256}, {256, 128}, {128, 192}})
        .choose<&HopperMatmulH3::stages>({4, 3});
  }

  void operator()(Int32 m_size, int n_size, int k_size, DataType dtype, Ptr<> a_ptr, Ptr<> b_ptr,
                  Ptr<> c_ptr) const {
    grid(cdiv(m_size, block_m), cdiv(n_size, block_n));
    warps(9);
    Int32 offset_m = block_m * block_idx.x;
    Int32 offset_n = block_n * block_idx.y;

    auto g_a = global_view(a_ptr, dtype, {m_size, k_size});
    auto g_b = global_view(b_ptr, dtype, {n_size, k_size});
    auto g_c = global_view(c_ptr, dtype, {m_size, n_size});
    auto s_a = shared_tensor(dtype, {stages, block_m, block_k});
    auto s_b = shared_tensor(dtype, {stages, block_n, block_k});
    Pipeline pipe(stages, 1, 256);
    sync();

    if (auto producer = single_warp(8)) {
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

    if (auto consumers = warp_group(0, 8)) {
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
