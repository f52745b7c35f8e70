// SPDX-License-Identifier: Apache-2.0
// Blackwell matmul, step 6: clusters of two CTAs on one tile. Each CTA loads half the rows of A and half the
// columns of B; the tensor cores of the pair read both halves and keep half the rows of C each. CTA 0 leads:
// all loads signal its barriers, it issues every MMA and requests the pair's next tile (TileScheduler). As the
// last step of the ladder it takes steps behind the product.
#pragma once

#include "imbrex/kernels/parts/epilogue.h"
#include "imbrex/kernels/parts/pipeline.h"
#include "imbrex/kernels/parts/tile_order.h"
#include "imbrex/kernels/parts/tile_scheduler.h"
#include "imbrex/lang.h"

namespace imbrex::kernels {

/// C = steps(A B^T), see epilogue.h.
template <class... Steps>
struct BlackwellMatmulV6 {
  static constexpr const char* target = "sm_100a";
  int block_m = 256, block_n = 256, e_block_n = 16, block_k = 64;
  int tma_stages = 5, mma_stages = 2, swizzle_size = 4;

  static auto space() {
    return Space<BlackwellMatmulV6>()
        .template choose<&BlackwellMatmulV6::block_m, &BlackwellMatmulV6::block_n,
                         &BlackwellMatmulV6::e_block_n>({{256, 256, 16}, {256, 256, 32}})
        .template choose<&BlackwellMatmulV6::block_k>({64})
        .template choose<&BlackwellMatmulV6::tma_stages>({5, 6})
        .template choose<&BlackwellMatmulV6::mma_stages>({2})
        .template choose<&BlackwellMatmulV6::swizzle_size>({4, 8, 16});
  }

  void operator()(Int32 m_size, int n_size, int k_size, Ptr<float16> a_ptr, Ptr<float16> b_ptr, Ptr<> c_ptr,
                  Epilogue<Steps...> finish) const {
    constexpr int kCtas = 2;
    constexpr int kBothCtas = 0b11;
    const int cta_m = block_m / kCtas, cta_n = block_n / kCtas;
    Int32 num_m_blocks = cdiv(m_size, block_m);
    finish.check(n_size, block_n);
    const int num_n_blocks = cdiv(n_size, block_n);
    grid(num_m_blocks * num_n_blocks * kCtas);
    cluster(kCtas);
    warps(8);
    Int32 rank = cluster_rank();

    auto g_a = global_view(a_ptr, float16, {m_size, k_size});
    auto g_b = global_view(b_ptr, float16, {n_size, k_size});
    const DataType c_type = finish.output_type(float16);
    auto g_c = global_view(c_ptr, c_type, {m_size, n_size});
    auto s_a = shared_tensor(float16, {tma_stages, cta_m, block_k});
    auto s_b = shared_tensor(float16, {tma_stages, cta_n, block_k});
    auto s_c = shared_tensor(c_type, {cta_m, e_block_n});
    auto t_acc = tcgen05::alloc(float32, {mma_stages, cta_m, block_n}, {.cta_group = 2});

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
        for (Int32 offset_k : range(0, k_size, block_k, {.unroll = tma_stages})) {
          tma_pipe.producer_acquire();
          auto s_a_stage = s_a[tma_pipe.producer_stage];
          auto s_b_stage = s_b[tma_pipe.producer_stage];
          // CTA 0 expects the bytes of both
          if (auto leader = when(rank == 0))
            if (auto thread = single_thread())
              mbarrier::arrive_and_expect_tx(tma_pipe.producer_barrier(),
                                             kCtas * (s_a_stage.nbytes() + s_b_stage.nbytes()));
          auto full = remote_barrier(tma_pipe.producer_barrier(), 0);
          tma::global_to_shared(g_a, s_a_stage, {offset_m, offset_k}, full, {.cta_group = 2});
          tma::global_to_shared(g_b, s_b_stage, {offset_n, offset_k}, full, {.cta_group = 2});
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
            tcgen05::mma(s_a[tma_pipe.consumer_stage], s_b[tma_pipe.consumer_stage].transpose(),
                         t_acc[mma_pipe.producer_stage], {.enable_input_d = offset_k != 0, .cta_group = 2});
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
        auto rows = finish.rows(cta_m);
        const auto load_part = [&](const ScalarArg& e_offset_n) {
          auto r_acc =
              tcgen05::load(t_acc[mma_pipe.consumer_stage].slice({0, e_offset_n}, {cta_m, e_block_n}));
          tcgen05::wait_load();
          return r_acc;
        };
        const auto place = [&](const ScalarArg& e_offset_n) {
          return OutputTile{m_size, n_size, c_type, offset_m, offset_n + e_offset_n};
        };
        if (finish.kReducesRows)
          for (Int32 e_offset_n : range(0, block_n, e_block_n))
            rows.look(load_part(e_offset_n), place(e_offset_n));
        for (Int32 e_offset_n : range(0, block_n, e_block_n)) {
          auto r_acc = load_part(e_offset_n);
          store_shared(s_c, rows(r_acc, place(e_offset_n)));
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
    tcgen05::dealloc(t_acc);
  }
};

}  // namespace imbrex::kernels
