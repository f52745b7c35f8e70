// SPDX-License-Identifier: Apache-2.0
// Hopper matmul for few rows of A, as in decoding: C[m, n] = A[m, k] * B[n, k]^T is bound by reading B once.
// B takes the part of wgmma's 64 rows and A that of its columns, of which there may be as few as 8: the tile
// of C is computed transposed. A CTA keeps many bytes of B under way and goes through all of k, so that
// nothing is to be reduced.
#pragma once

#include "imbrex/imbrex.h"
#include "pipeline.h"

namespace imbrex::kernels {

struct HopperMatmulSkinny {
  static constexpr const char* target = "sm_90a";
  int block_m = 16, block_n = 64, block_k = 128, stages = 9;

  static auto space() {
    return Space<HopperMatmulSkinny>()
        .choose<&HopperMatmulSkinny::block_m, &HopperMatmulSkinny::block_n, &HopperMatmulSkinny::block_k,
                &HopperMatmulSkinny::stages>({{16, 64, 128, 9},
                                              {8, 64, 128, 10},
                                              {32, 64, 128, 8},
                                              {64, 64, 128, 6},
                                              {128, 64, 128, 4},
                                              {16, 64, 128, 5},
                                              {32, 64, 128, 4},
                                              {64, 64, 128, 3},
                                              {128, 128, 64, 6}});
  }

  void operator()(Int32 m_size, int n_size, int k_size, DataType dtype, Ptr<> a_ptr, Ptr<> b_ptr,
                  Ptr<> c_ptr) const {
    grid(cdiv(n_size, block_n), cdiv(m_size, block_m));
    warps(5);
    Int32 offset_n = block_n * block_idx.x;
    Int32 offset_m = block_m * block_idx.y;

    auto g_a = global_view(a_ptr, dtype, {m_size, k_size});
    auto g_b = global_view(b_ptr, dtype, {n_size, k_size});
    auto g_c = global_view(c_ptr, dtype, {m_size, n_size});
    auto s_a = shared_tensor(dtype, {stages, block_m, block_k});
    auto s_b = shared_tensor(dtype, {stages, block_n, block_k});
    Pipeline pipe(stages);
    sync();

    if (auto producer = single_warp(4)) {
      for (Int32 offset_k : range(0, k_size, block_k)) {
        pipe.producer_acquire();
        auto s_a_stage = s_a[pipe.producer_stage];
        auto s_b_stage = s_b[pipe.producer_stage];
        if (auto thread = single_thread())
          mbarrier::arrive_and_expect_tx(pipe.producer_barrier(), s_a_stage.nbytes() + s_b_stage.nbytes());
        // B is read once and need not stay in the L2 cache; every CTA reads A.
        tma::global_to_shared(g_b, s_b_stage, {offset_n, offset_k}, pipe.producer_barrier(),
                              {.cache_policy = tma::CachePolicy::kEvictFirst});
        tma::global_to_shared(g_a, s_a_stage, {offset_m, offset_k}, pipe.producer_barrier(),
                              {.cache_policy = tma::CachePolicy::kEvictLast});
        pipe.producer_advance();
      }
    }

    if (auto consumer = warp_group(0, 4)) {
      auto acc = wgmma::accumulator(float32, {block_n, block_m});
      for (Int32 offset_k : range(0, k_size, block_k)) {
        pipe.consumer_acquire();
        wgmma::fence();
        wgmma::mma(s_b[pipe.consumer_stage], s_a[pipe.consumer_stage].transpose(), acc,
                   {.scale_d = offset_k != 0});
        wgmma::commit_group();
        wgmma::wait_group(0);
        if (auto thread = single_thread()) mbarrier::arrive(pipe.consumer_barrier());
        pipe.consumer_advance();
      }
      store_global(g_c, acc.to(dtype), {offset_m, offset_n}, {.dims = {1, 0}});
    }
  }
};

}  // namespace imbrex::kernels
