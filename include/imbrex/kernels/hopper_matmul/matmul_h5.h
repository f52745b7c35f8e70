// SPDX-License-Identifier: Apache-2.0
// Hopper matmul, step 5: two CTAs of a cluster need the same columns of B and load half of them each, for
// both (multicast): a third less traffic from the L2 cache. And a product is still running when the next one
// starts, so that the tensor cores never idle; a stage is released one iteration later.
#pragma once

#include "imbrex/kernels/parts/pipeline.h"
#include "imbrex/kernels/parts/tile_order.h"
#include "imbrex/lang.h"

namespace imbrex::kernels {

struct HopperMatmulH5 {
  static constexpr const char* target = "sm_90a";
  static constexpr int kConsumers = 2, kCtas = 2, kBothCtas = 0b11;  // CTAs of a cluster
  int block_m = 128, block_n = 256, block_k = 64, stages = 4;        // of a CTA
  int swizzle_size = 8, ctas = 132;

  static auto space() {
    return Space<HopperMatmulH5>()
        .choose<&HopperMatmulH5::block_m, &HopperMatmulH5::block_n, &HopperMatmulH5::stages>(
            {{128, 256, 4}, {256, 128, 4}, {128, 192, 5}, {256, 192, 3}, {128, 128, 5}, {128, 64, 8}})
        .choose<&HopperMatmulH5::swizzle_size>({8, 16, 4})
        .choose<&HopperMatmulH5::ctas>({132, 128});
  }

  void operator()(Int32 m_size, int n_size, int k_size, DataType dtype, Ptr<> a_ptr, Ptr<> b_ptr,
                  Ptr<> c_ptr) const {
    const int consumer_m = block_m / kConsumers, share_n = block_n / kCtas;
    Int32 num_m_blocks = cdiv(m_size, kCtas * block_m);  // of a cluster
    const int num_n_blocks = cdiv(n_size, block_n);
    Int32 num_tiles = num_m_blocks * num_n_blocks;
    grid(min(kCtas * num_tiles, ctas));
    cluster(kCtas);
    warps(4 + 4 * kConsumers);
    Int32 rank = cluster_rank();
    Int32 first_tile = block_idx.x / kCtas, num_clusters = grid_dim.x / kCtas;

    auto g_a = global_view(a_ptr, dtype, {m_size, k_size});
    auto g_b = global_view(b_ptr, dtype, {n_size, k_size});
    auto g_c = global_view(c_ptr, dtype, {m_size, n_size});
    auto s_a = shared_tensor(dtype, {stages, block_m, block_k});
    auto s_b = shared_tensor(dtype, {stages, block_n, block_k});
    Pipeline pipe(stages, 1, kCtas * kConsumers);
    cluster_sync();

    if (auto producer = warp_group(0, 4)) {
      setmaxnreg(40);
      if (auto warp = single_warp()) {
        for (Int32 tile : range(first_tile, num_tiles, num_clusters)) {
          auto [m_block, n_block] = compute_block_coord(tile, num_m_blocks, num_n_blocks, swizzle_size);
          Int32 offset_m = (m_block * kCtas + rank) * block_m;
          Int32 offset_n = n_block * block_n + rank * share_n;
          for (Int32 offset_k : range(0, k_size, block_k)) {
            pipe.producer_acquire();  // empty in both CTAs
            auto s_a_stage = s_a[pipe.producer_stage];
            auto s_b_stage = s_b[pipe.producer_stage];
            auto s_b_share = s_b_stage.slice({rank * share_n, 0}, {share_n, block_k});
            if (auto thread = single_thread())
              mbarrier::arrive_and_expect_tx(pipe.producer_barrier(),
                                             s_a_stage.nbytes() + s_b_stage.nbytes());
            tma::global_to_shared(g_a, s_a_stage, {offset_m, offset_k}, pipe.producer_barrier());
            tma::global_to_shared(g_b, s_b_share, {offset_n, offset_k}, pipe.producer_barrier(),
                                  {.multicast_mask = kBothCtas});
            pipe.producer_advance();
          }
        }
      }
    }

    // One thread of a consumer signals both CTAs, as both write to the stage. Relaxed: only its products have
    // read the stage, and they are complete.
    const auto release = [&](const Int32& stage) {
      if (auto thread = single_thread())
        for (int cta = 0; cta < kCtas; ++cta)
          mbarrier::arrive(remote_barrier(pipe.empty_barriers[stage], cta), {.sem = Sem::kRelaxed});
    };
    for (int i = 0; i < kConsumers; ++i) {
      if (auto consumer = warp_group(4 + 4 * i, 4)) {
        setmaxnreg(232);
        for (Int32 tile : range(first_tile, num_tiles, num_clusters)) {
          auto [m_block, n_block] = compute_block_coord(tile, num_m_blocks, num_n_blocks, swizzle_size);
          auto acc = wgmma::accumulator(float32, {consumer_m, block_n});
          Int32 last_stage = 0;
          for (Int32 offset_k : range(0, k_size, block_k)) {
            pipe.consumer_acquire();
            wgmma::fence();
            wgmma::mma(s_a[pipe.consumer_stage].slice({i * consumer_m, 0}, {consumer_m, block_k}),
                       s_b[pipe.consumer_stage].transpose(), acc, {.scale_d = offset_k != 0});
            wgmma::commit_group();
            wgmma::wait_group(1);
            if (auto later = when(offset_k != 0)) release(last_stage);
            last_stage = pipe.consumer_stage;
            pipe.consumer_advance();
          }
          wgmma::wait_group(0);
          release(last_stage);
          Int32 offset_m = (m_block * kCtas + rank) * block_m + i * consumer_m;
          store_global(g_c, acc.to(dtype), {offset_m, n_block * block_n});
        }
      }
    }
    cluster_sync();  // no CTA exits while the other may still write to it or signal it
  }
};

}  // namespace imbrex::kernels
