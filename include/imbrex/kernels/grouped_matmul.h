// SPDX-License-Identifier: Apache-2.0
// Many products in one launch, of sizes that only device memory knows: the experts of a mixture, whose tokens are sorted
// by expert. The host launches as many CTAs as there can be tiles; each reads the groups' boundaries to find its tile,
// or that there is none for it. Then it is Hopper's matmul: TMA loads into a ring, two warp groups multiply.
#pragma once

#include "imbrex/kernels/parts/pipeline.h"
#include "imbrex/lang.h"

namespace imbrex::kernels {

struct GroupedMatmul {
  static constexpr const char* target = "sm_90a";
  int block_m = 128, block_n = 128, block_k = 64, stages = 4;

  static auto space() {
    return Space<GroupedMatmul>()
        .choose<&GroupedMatmul::block_m, &GroupedMatmul::block_n>({{128, 128}, {128, 256}, {256, 128}})
        .choose<&GroupedMatmul::stages>({4, 3});
  }

  /// C[row, :] = A[row, :] * B[g]^T for the rows first_row[g] ... first_row[g + 1] - 1 of each group g. A[m, k],
  /// B[groups, n, k], C[m, n] of `dtype` (float16 or bfloat16); first_row has groups + 1 elements that do not decrease.
  void operator()(Int32 m_size, int n_size, int k_size, int groups, DataType dtype, Ptr<int32> first_row_ptr,
                  Ptr<> a_ptr, Ptr<> b_ptr, Ptr<> c_ptr) const {
    // Every group may end with a tile that is not full.
    grid(cdiv(n_size, block_n), cdiv(m_size, block_m) + groups - 1);
    warps(9);
    auto g_first_row = global_view(first_row_ptr, {groups + 1});
    auto g_a = global_view(a_ptr, dtype, {m_size, k_size});
    auto g_b = global_view(b_ptr, dtype, {groups, n_size, k_size});
    auto s_a = shared_tensor(dtype, {stages, block_m, block_k});
    auto s_b = shared_tensor(dtype, {stages, block_n, block_k});
    Pipeline pipe(stages, 1, 256);
    sync_threads();

    Int32 offset_n = block_n * block_idx.x;
    Int32 tiles_before = 0, group = -1, offset_m = 0, end_m = 0;
    for (Int32 g : range(groups)) {
      Int32 begin = g_first_row[g], end = g_first_row[g + 1];
      auto tile = block_idx.y - tiles_before;
      auto tiles = cdiv(end - begin, block_m);
      if (auto mine = when(tile >= 0 && tile < tiles)) {
        group = g;
        offset_m = begin + tile * block_m;
        end_m = end;
      }
      tiles_before += tiles;
    }

    if (auto has_tile = when(group >= 0)) {
      if (auto producer = single_warp(8)) {
        for (Int32 offset_k : range(0, k_size, block_k)) {
          pipe.producer_acquire();
          auto a_stage = s_a[pipe.producer_stage], b_stage = s_b[pipe.producer_stage];
          if (auto thread = single_thread())
            mbarrier::arrive_and_expect_tx(pipe.producer_barrier(), a_stage.nbytes() + b_stage.nbytes());
          tma::global_to_shared(g_a, a_stage, {offset_m, offset_k}, pipe.producer_barrier());
          tma::global_to_shared(g_b, b_stage, {group, offset_n, offset_k}, pipe.producer_barrier());
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
        // The rows of the next group, which the tile may reach into, are not written.
        store_global(global_view(c_ptr, dtype, {end_m, n_size}), acc.to(dtype), {offset_m, offset_n});
      }
    }
  }
};

}  // namespace imbrex::kernels
