// SPDX-License-Identifier: Apache-2.0
// C = A B^T of narrow floats with scale factors for blocks of k, with the structure of Blackwell step 6: pairs
// of persistent, warp-specialised CTAs. Two formats: float8_e4m3 with a power of two per 32 elements (mxf8),
// and float4_e2m1 with a float8_ue4m3 per 16 (nvf4). TMA loads factors like the operands; stage by stage the
// MMA warp copies them to tensor memory, where the tensor core reads them.
#pragma once

#include "imbrex/kernels/parts/pipeline.h"
#include "imbrex/kernels/parts/tile_order.h"
#include "imbrex/kernels/parts/tile_scheduler.h"
#include "imbrex/lang.h"

namespace imbrex::kernels {

struct BlockScaledMatmul {
  static constexpr const char* target = "sm_100a";
  int block_m = 256, block_n = 128, e_block_n = 32;
  int tma_stages = 4, mma_stages = 2, swizzle_size = 8;

  static auto space() {
    return Space<BlockScaledMatmul>()
        .choose<&BlockScaledMatmul::block_n, &BlockScaledMatmul::mma_stages>({{128, 2}, {256, 1}})
        .choose<&BlockScaledMatmul::e_block_n>({32, 64})
        .choose<&BlockScaledMatmul::tma_stages>({4, 3})
        .choose<&BlockScaledMatmul::swizzle_size>({4, 8});
  }

  /// `element` is float8_e4m3 or float4_e2m1. Factors are laid out as imbrex/runtime/scale_factors.h says.
  void operator()(Int32 m_size, int n_size, int k_size, DataType element, Ptr<> a_ptr, Ptr<> b_ptr,
                  Ptr<> scale_a_ptr, Ptr<> scale_b_ptr, Ptr<bfloat16> c_ptr) const {
    const bool is_nvf4 = element == float4_e2m1;
    const DataType scale = is_nvf4 ? float8_ue4m3 : float8_e8m0;
    const int scaled = is_nvf4 ? 16 : 32;        // elements that share a factor
    const int block_k = is_nvf4 ? 256 : 128;     // 128 bytes of a row
    const int k_tiles = block_k / (4 * scaled);  // tiles of factors in it: 128 rows by 4
    const int num_k_tiles = cdiv(k_size, 4 * scaled);

    constexpr int kCtas = 2;
    constexpr int kBothCtas = 0b11;
    const int cta_m = block_m / kCtas, cta_n = block_n / kCtas;
    const int m_tiles = cta_m / 128, n_tiles = block_n / 128;  // of factors: all columns in both CTAs
    Int32 num_m_blocks = cdiv(m_size, block_m);
    const int num_n_blocks = cdiv(n_size, block_n);
    grid(num_m_blocks * num_n_blocks * kCtas);
    cluster(kCtas);
    warps(8);
    Int32 rank = cluster_rank();

    auto g_a = global_view(a_ptr, element, {m_size, k_size});
    auto g_b = global_view(b_ptr, element, {n_size, k_size});
    auto g_scale_a = global_view(scale_a_ptr, scale, {cdiv(m_size, 128), num_k_tiles, 2, 256});
    auto g_scale_b = global_view(scale_b_ptr, scale, {cdiv(n_size, 128), num_k_tiles, 2, 256});
    auto g_c = global_view(c_ptr, bfloat16, {m_size, n_size});
    auto s_a = shared_tensor(element, {tma_stages, cta_m, block_k});
    auto s_b = shared_tensor(element, {tma_stages, cta_n, block_k});
    auto s_scale_a = shared_tensor(scale, {tma_stages, m_tiles, k_tiles, 2, 256});
    auto s_scale_b = shared_tensor(scale, {tma_stages, n_tiles, k_tiles, 2, 256});
    auto s_c = shared_tensor(bfloat16, {cta_m, e_block_n});
    auto t_acc = tcgen05::alloc(float32, {mma_stages, cta_m, block_n}, {.cta_group = 2});
    // A set of factors for every stage: the one before may still be in use.
    auto t_scale_b = tcgen05::alloc(scale, {tma_stages, block_n, 4 * k_tiles}, {.cta_group = 2});
    auto t_scale_a = tcgen05::alloc(scale, {tma_stages, cta_m, 4 * k_tiles}, {.cta_group = 2});

    // Only CTA 0 waits for loads; stages are released in both CTAs. The epilogues of both CTAs release
    // accumulators in CTA 0.
    Pipeline tma_pipe(tma_stages, 1, 1, Scope::kCluster);
    Pipeline mma_pipe(mma_stages, 1, kCtas * 4 * 32, Scope::kCluster);
    TileScheduler scheduler(kCtas, 7, rank);  // for the 7 warps of each CTA that have a role
    cluster_sync();

    const auto block_coord = [&](const ScalarArg& tile) {
      return compute_block_coord(tile, num_m_blocks, num_n_blocks, swizzle_size);
    };

    if (auto tma_warp = single_warp(0)) {
      Int32 tile = scheduler.first_tile();
      for (Loop tiles : forever()) {
        auto [m_block, n_block] = block_coord(tile);
        Int32 offset_m = m_block * block_m + rank * cta_m;
        Int32 offset_n = n_block * block_n + rank * cta_n;
        Int32 m_tile = m_block * (kCtas * m_tiles) + rank * m_tiles;
        Int32 n_tile = n_block * n_tiles;
        Int32 k_tile = 0;
        for (Int32 offset_k : range(0, k_size, block_k, {.unroll = tma_stages})) {
          tma_pipe.producer_acquire();
          auto s_a_stage = s_a[tma_pipe.producer_stage];
          auto s_b_stage = s_b[tma_pipe.producer_stage];
          auto s_scale_a_stage = s_scale_a[tma_pipe.producer_stage];
          auto s_scale_b_stage = s_scale_b[tma_pipe.producer_stage];
          // CTA 0 expects the bytes of both
          if (auto leader = when(rank == 0))
            if (auto thread = single_thread())
              mbarrier::arrive_and_expect_tx(tma_pipe.producer_barrier(),
                                             kCtas * (s_a_stage.nbytes() + s_b_stage.nbytes() +
                                                      s_scale_a_stage.nbytes() + s_scale_b_stage.nbytes()));
          auto full = remote_barrier(tma_pipe.producer_barrier(), 0);
          tma::global_to_shared(g_a, s_a_stage, {offset_m, offset_k}, full, {.cta_group = 2});
          tma::global_to_shared(g_b, s_b_stage, {offset_n, offset_k}, full, {.cta_group = 2});
          tma::global_to_shared(g_scale_a, s_scale_a_stage, {m_tile, k_tile, 0, 0}, full, {.cta_group = 2});
          tma::global_to_shared(g_scale_b, s_scale_b_stage, {n_tile, k_tile, 0, 0}, full, {.cta_group = 2});
          k_tile += k_tiles;
          tma_pipe.producer_advance();
        }
        tiles.break_if(!scheduler.next(tile));
      }
    }

    if (auto mma_warp = single_warp(1)) {
      Int32 tile = 0;
      for (Loop tiles : forever()) {
        if (auto leader = when(rank == 0)) {
          mma_pipe.producer_acquire();
          for (Int32 offset_k : range(0, k_size, block_k, {.unroll = tma_stages})) {
            tma_pipe.consumer_acquire();
            auto t_scale_a_stage = t_scale_a[tma_pipe.consumer_stage];
            auto t_scale_b_stage = t_scale_b[tma_pipe.consumer_stage];
            tcgen05::copy(tcgen05::scale_factor_matrix(s_scale_a[tma_pipe.consumer_stage]), t_scale_a_stage,
                          {.cta_group = 2});
            tcgen05::copy(tcgen05::scale_factor_matrix(s_scale_b[tma_pipe.consumer_stage]), t_scale_b_stage,
                          {.cta_group = 2});
            tcgen05::scaled_mma(s_a[tma_pipe.consumer_stage], s_b[tma_pipe.consumer_stage].transpose(),
                                t_acc[mma_pipe.producer_stage], t_scale_a_stage, t_scale_b_stage,
                                {.enable_input_d = offset_k != 0, .cta_group = 2});
            tcgen05::commit(tma_pipe.consumer_barrier(), {.cta_group = 2, .multicast_mask = kBothCtas});
            tma_pipe.consumer_advance();
          }
          tcgen05::commit(mma_pipe.producer_barrier(), {.cta_group = 2, .multicast_mask = kBothCtas});
          mma_pipe.producer_advance();
        }
        tiles.break_if(!scheduler.next(tile));
      }
    }

    if (auto scheduler_warp = single_warp(2)) scheduler.run();

    if (auto epilogue = warp_group(4, 4)) {
      Int32 tile = scheduler.first_tile();
      for (Loop tiles : forever()) {
        auto [m_block, n_block] = block_coord(tile);
        Int32 offset_m = m_block * block_m + rank * cta_m;
        Int32 offset_n = n_block * block_n;
        mma_pipe.consumer_acquire();
        for (Int32 e_offset_n : range(0, block_n, e_block_n)) {
          auto r_acc =
              tcgen05::load(t_acc[mma_pipe.consumer_stage].slice({0, e_offset_n}, {cta_m, e_block_n}));
          tcgen05::wait_load();
          store_shared(s_c, r_acc.to(bfloat16));
          fence::proxy_async();  // what was written becomes visible to TMA
          sync();
          if (auto warp = single_warp()) {
            tma::shared_to_global(s_c, g_c, {offset_m, offset_n + e_offset_n});
            tma::commit_group();
            tma::wait_group(0, {.read = true});  // s_c may be written again
          }
          sync();
        }
        mbarrier::arrive(remote_barrier(mma_pipe.consumer_barrier(), 0));
        mma_pipe.consumer_advance();
        tiles.break_if(!scheduler.next(tile));
      }
    }

    // no CTA exits or frees tensor memory while the other may still use its memory
    cluster_sync();
    tcgen05::dealloc(t_scale_a);
    tcgen05::dealloc(t_scale_b);
    tcgen05::dealloc(t_acc);
  }
};

}  // namespace imbrex::kernels
