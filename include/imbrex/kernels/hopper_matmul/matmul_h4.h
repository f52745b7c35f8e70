// SPDX-License-Identifier: Apache-2.0
// Hopper matmul, step 4: less overhead between products. One thread per consumer signals that a stage is
// empty, instead of all 128; CTAs are persistent and take tile after tile, in an order that reuses the L2
// cache, so that the producer fills the ring for the next tile while this one is stored; and the producer's
// warp group gives up registers that the consumers need.
#pragma once

#include "imbrex/kernels/parts/pipeline.h"
#include "imbrex/kernels/parts/tile_order.h"
#include "imbrex/lang.h"

namespace imbrex::kernels {

struct HopperMatmulH4 {
  static constexpr const char* target = "sm_90a";
  static constexpr int kConsumers = 2;
  int block_m = 128, block_n = 256, block_k = 64, stages = 4;
  int swizzle_size = 8, ctas = 132;  // of the whole GPU

  static auto space() {
    return Space<HopperMatmulH4>()
        .choose<&HopperMatmulH4::block_m, &HopperMatmulH4::block_n, &HopperMatmulH4::stages>(
            {{128, 256, 4}, {256, 128, 4}, {128, 192, 5}, {256, 192, 3}})
        .choose<&HopperMatmulH4::swizzle_size>({8, 16, 4})
        .choose<&HopperMatmulH4::ctas>({132, 128});
  }

  void operator()(Int32 m_size, int n_size, int k_size, DataType dtype, Ptr<> a_ptr, Ptr<> b_ptr,
                  Ptr<> c_ptr) const {
    const int consumer_m = block_m / kConsumers;
    Int32 num_m_blocks = cdiv(m_size, block_m);
    const int num_n_blocks = cdiv(n_size, block_n);
    Int32 num_tiles = num_m_blocks * num_n_blocks;
    grid(min(num_tiles, ctas));
    warps(4 + 4 * kConsumers);

    auto g_a = global_view(a_ptr, dtype, {m_size, k_size});
    auto g_b = global_view(b_ptr, dtype, {n_size, k_size});
    auto g_c = global_view(c_ptr, dtype, {m_size, n_size});
    auto s_a = shared_tensor(dtype, {stages, block_m, block_k});
    auto s_b = shared_tensor(dtype, {stages, block_n, block_k});
    Pipeline pipe(stages, 1, kConsumers);
    sync();

    if (auto producer = warp_group(0, 4)) {
      setmaxnreg(40);
      if (auto warp = single_warp()) {
        for (Int32 tile : range(block_idx.x, num_tiles, grid_dim.x)) {
          auto [m_block, n_block] = compute_block_coord(tile, num_m_blocks, num_n_blocks, swizzle_size);
          Int32 offset_m = m_block * block_m, offset_n = n_block * block_n;
          for (Int32 offset_k : range(0, k_size, block_k)) {
            pipe.producer_acquire();
            auto s_a_stage = s_a[pipe.producer_stage];
            auto s_b_stage = s_b[pipe.producer_stage];
            if (auto thread = single_thread())
              mbarrier::arrive_and_expect_tx(pipe.producer_barrier(),
                                             s_a_stage.nbytes() + s_b_stage.nbytes());
            tma::global_to_shared(g_a, s_a_stage, {offset_m, offset_k}, pipe.producer_barrier());
            tma::global_to_shared(g_b, s_b_stage, {offset_n, offset_k}, pipe.producer_barrier());
            pipe.producer_advance();
          }
        }
      }
    }

    for (int i = 0; i < kConsumers; ++i) {  // the code is written out for each
      if (auto consumer = warp_group(4 + 4 * i, 4)) {
        setmaxnreg(232);
        for (Int32 tile : range(block_idx.x, num_tiles, grid_dim.x)) {
          auto [m_block, n_block] = compute_block_coord(tile, num_m_blocks, num_n_blocks, swizzle_size);
          auto acc = wgmma::accumulator(float32, {consumer_m, block_n});
          for (Int32 offset_k : range(0, k_size, block_k)) {
            pipe.consumer_acquire();
            wgmma::fence();
            wgmma::mma(s_a[pipe.consumer_stage].slice({i * consumer_m, 0}, {consumer_m, block_k}),
                       s_b[pipe.consumer_stage].transpose(), acc, {.scale_d = offset_k != 0});
            wgmma::commit_group();
            wgmma::wait_group(0);
            if (auto thread = single_thread()) mbarrier::arrive(pipe.consumer_barrier());
            pipe.consumer_advance();
          }
          store_global(g_c, acc.to(dtype), {m_block * block_m + i * consumer_m, n_block * block_n});
        }
      }
    }
  }
};

}  // namespace imbrex::kernels
