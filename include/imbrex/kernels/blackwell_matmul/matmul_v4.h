// SPDX-License-Identifier: Apache-2.0
// Blackwell matmul, step 4: CTAs that run at the same time work on tiles close to each other, so that the L2
// cache serves more of their loads; and the ring's bookkeeping becomes a Pipeline.
#pragma once

#include "imbrex/kernels/parts/pipeline.h"
#include "imbrex/kernels/parts/tile_order.h"
#include "imbrex/lang.h"

namespace imbrex::kernels {

struct BlackwellMatmulV4 {
  static constexpr const char* target = "sm_100a";
  int block_m = 128, block_n = 64, e_block_n = 16, block_k = 16, stages = 2, swizzle_size = 1;

  static auto space() {
    return Space<BlackwellMatmulV4>()
        .choose<&BlackwellMatmulV4::block_m, &BlackwellMatmulV4::block_n, &BlackwellMatmulV4::e_block_n>(
            {{128, 64, 16}, {128, 128, 16}, {128, 256, 16}})
        .choose<&BlackwellMatmulV4::block_k>({16, 32, 64})
        .choose<&BlackwellMatmulV4::stages>({2, 3, 4})
        .choose<&BlackwellMatmulV4::swizzle_size>({1, 4, 8});
  }

  void operator()(Int32 m_size, int n_size, int k_size, Ptr<float16> a_ptr, Ptr<float16> b_ptr,
                  Ptr<float16> c_ptr) const {
    Int32 num_m_blocks = cdiv(m_size, block_m);
    const int num_n_blocks = cdiv(n_size, block_n);
    grid(num_m_blocks * num_n_blocks);
    warps(4);

    auto [m_block, n_block] = compute_block_coord(block_idx.x, num_m_blocks, num_n_blocks, swizzle_size);
    Int32 offset_m = m_block * block_m;
    Int32 offset_n = n_block * block_n;

    auto g_a = global_view(a_ptr, float16, {m_size, k_size});
    auto g_b = global_view(b_ptr, float16, {n_size, k_size});
    auto g_c = global_view(c_ptr, float16, {m_size, n_size});
    auto s_a = shared_tensor(float16, {stages, block_m, block_k});
    auto s_b = shared_tensor(float16, {stages, block_n, block_k});
    auto t_acc = tcgen05::alloc(float32, {block_m, block_n});

    Pipeline tma_pipe(stages);
    auto flush_barrier = mbarrier::alloc(1);
    sync();

    if (auto tma_warp = single_warp(0)) {
      for (Int32 offset_k : range(0, k_size, block_k, {.unroll = stages})) {
        tma_pipe.producer_acquire();
        auto s_a_stage = s_a[tma_pipe.producer_stage];
        auto s_b_stage = s_b[tma_pipe.producer_stage];
        if (auto thread = single_thread())
          mbarrier::arrive_and_expect_tx(tma_pipe.producer_barrier(),
                                         s_a_stage.nbytes() + s_b_stage.nbytes());
        tma::global_to_shared(g_a, s_a_stage, {offset_m, offset_k}, tma_pipe.producer_barrier());
        tma::global_to_shared(g_b, s_b_stage, {offset_n, offset_k}, tma_pipe.producer_barrier());
        tma_pipe.producer_advance();
      }
    }

    if (auto mma_warp = single_warp(1)) {
      for (Int32 offset_k : range(0, k_size, block_k, {.unroll = stages})) {
        tma_pipe.consumer_acquire();
        tcgen05::mma(s_a[tma_pipe.consumer_stage], s_b[tma_pipe.consumer_stage].transpose(), t_acc,
                     {.enable_input_d = offset_k != 0});
        tcgen05::commit(tma_pipe.consumer_barrier());
        tma_pipe.consumer_advance();
      }
      // all MMAs are done
      tcgen05::commit(flush_barrier);
      mbarrier::wait(flush_barrier, 0);
    }
    sync();

    // tensor memory -> registers -> shared memory -> global memory, e_block_n columns at a time
    auto s_c = shared_tensor(float16, {block_m, e_block_n});
    for (Int32 e_offset_n : range(0, block_n, e_block_n)) {
      auto r_acc = tcgen05::load(t_acc.slice({0, e_offset_n}, {block_m, e_block_n}));
      tcgen05::wait_load();
      store_shared(s_c, r_acc.to(float16));
      fence::proxy_async();  // what was written becomes visible to TMA
      sync();
      if (auto warp = single_warp()) {
        tma::shared_to_global(s_c, g_c, {offset_m, offset_n + e_offset_n});
        tma::commit_group();
        tma::wait_group(0, {.read = true});  // s_c may be written again
      }
      sync();
    }

    tcgen05::dealloc(t_acc);
  }
};

}  // namespace imbrex::kernels
