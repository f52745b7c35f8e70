// SPDX-License-Identifier: Apache-2.0
// Blackwell matmul, step 5: persistent CTAs. Through cluster launch control a scheduler warp cancels CTAs that
// have not been launched, and all roles go on to their tiles; with two accumulators in tensor memory, the
// epilogue of one tile overlaps the main loop of the next.
#pragma once

#include "imbrex/kernels/parts/pipeline.h"
#include "imbrex/kernels/parts/tile_order.h"
#include "imbrex/lang.h"

namespace imbrex::kernels {

struct BlackwellMatmulV5 {
  static constexpr const char* target = "sm_100a";
  int block_m = 128, block_n = 64, e_block_n = 16, block_k = 16;
  int tma_stages = 2, mma_stages = 2, swizzle_size = 1;

  static auto space() {
    return Space<BlackwellMatmulV5>()
        .choose<&BlackwellMatmulV5::block_m, &BlackwellMatmulV5::block_n, &BlackwellMatmulV5::e_block_n>(
            {{128, 64, 16}, {128, 128, 16}, {128, 256, 16}})
        .choose<&BlackwellMatmulV5::block_k>({16, 32, 64})
        .choose<&BlackwellMatmulV5::tma_stages>({2, 3, 4})
        .choose<&BlackwellMatmulV5::mma_stages>({2})
        .choose<&BlackwellMatmulV5::swizzle_size>({1, 4, 8});
  }

  void operator()(Int32 m_size, int n_size, int k_size, Ptr<float16> a_ptr, Ptr<float16> b_ptr,
                  Ptr<float16> c_ptr) const {
    Int32 num_m_blocks = cdiv(m_size, block_m);
    const int num_n_blocks = cdiv(n_size, block_n);
    grid(num_m_blocks * num_n_blocks);
    warps(8);

    auto g_a = global_view(a_ptr, float16, {m_size, k_size});
    auto g_b = global_view(b_ptr, float16, {n_size, k_size});
    auto g_c = global_view(c_ptr, float16, {m_size, n_size});
    auto s_a = shared_tensor(float16, {tma_stages, block_m, block_k});
    auto s_b = shared_tensor(float16, {tma_stages, block_n, block_k});
    auto s_c = shared_tensor(float16, {block_m, e_block_n});
    auto s_response = shared_tensor(int32, clc::kResponseShape);
    auto t_acc = tcgen05::alloc(float32, {mma_stages, block_m, block_n});

    // loads -> MMAs, MMAs -> the 4 epilogue warps, the scheduler -> the 7 warps that work on tiles
    Pipeline tma_pipe(tma_stages);
    Pipeline mma_pipe(mma_stages, 1, 4 * 32);
    Pipeline clc_pipe(1, 1, 7 * 32);
    sync();

    const auto block_coord = [&](const ScalarArg& tile) {
      return compute_block_coord(tile, num_m_blocks, num_n_blocks, swizzle_size);
    };
    // Waits for the scheduler's response; false when no tile is left.
    const auto next_tile = [&](Int32& tile) {
      clc_pipe.consumer_acquire();
      auto response = clc::query(s_response);
      fence::proxy_async();  // the response has been read before the next one is written
      mbarrier::arrive(clc_pipe.consumer_barrier());
      clc_pipe.consumer_advance();
      tile = response.x;
      return response.is_canceled;
    };

    if (auto tma_warp = single_warp(0)) {
      Int32 tile = block_idx.x;
      for (Loop tiles : forever()) {
        auto [m_block, n_block] = block_coord(tile);
        Int32 offset_m = m_block * block_m;
        Int32 offset_n = n_block * block_n;
        for (Int32 offset_k : range(0, k_size, block_k, {.unroll = tma_stages})) {
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
        tiles.break_if(!next_tile(tile));
      }
    }

    if (auto mma_warp = single_warp(1)) {
      Int32 tile = block_idx.x;
      for (Loop tiles : forever()) {
        mma_pipe.producer_acquire();
        for (Int32 offset_k : range(0, k_size, block_k, {.unroll = tma_stages})) {
          tma_pipe.consumer_acquire();
          tcgen05::mma(s_a[tma_pipe.consumer_stage], s_b[tma_pipe.consumer_stage].transpose(),
                       t_acc[mma_pipe.producer_stage], {.enable_input_d = offset_k != 0});
          tcgen05::commit(tma_pipe.consumer_barrier());
          tma_pipe.consumer_advance();
        }
        tcgen05::commit(mma_pipe.producer_barrier());
        mma_pipe.producer_advance();
        tiles.break_if(!next_tile(tile));
      }
    }

    if (auto scheduler_warp = single_warp(2)) {
      Int32 tile = 0;
      for (Loop tiles : forever()) {
        clc_pipe.producer_acquire();
        if (auto thread = single_thread())
          mbarrier::arrive_and_expect_tx(clc_pipe.producer_barrier(), clc::kResponseBytes);
        clc::try_cancel(s_response, clc_pipe.producer_barrier());
        clc_pipe.producer_advance();
        // after a response that says no, there must be no further request
        tiles.break_if(!next_tile(tile));
      }
    }

    if (auto epilogue = warp_group(4, 4)) {
      Int32 tile = block_idx.x;
      for (Loop tiles : forever()) {
        auto [m_block, n_block] = block_coord(tile);
        Int32 offset_m = m_block * block_m;
        Int32 offset_n = n_block * block_n;
        mma_pipe.consumer_acquire();
        for (Int32 e_offset_n : range(0, block_n, e_block_n)) {
          auto r_acc =
              tcgen05::load(t_acc[mma_pipe.consumer_stage].slice({0, e_offset_n}, {block_m, e_block_n}));
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
        mbarrier::arrive(mma_pipe.consumer_barrier());
        mma_pipe.consumer_advance();
        tiles.break_if(!next_tile(tile));
      }
    }

    sync();
    tcgen05::dealloc(t_acc);
  }
};

}  // namespace imbrex::kernels
