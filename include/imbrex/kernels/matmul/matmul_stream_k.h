// SPDX-License-Identifier: Apache-2.0
// Hopper matmul, stream-K: the tiles that do not fill a wave of the grid are divided among all CTAs, block of k by block
// of k, so that every multiprocessor works until the end. A tile whose blocks went to several CTAs is finished by the
// one that has its last block: it adds up what the others leave in a workspace, always in the same order, so that the
// result does not depend on timing. With clusters all this is done by clusters in place of CTAs.
#pragma once

#include "imbrex/kernels/parts/epilogue.h"
#include "imbrex/kernels/parts/multicast_share.h"
#include "imbrex/kernels/parts/operand.h"
#include "imbrex/kernels/parts/pipeline.h"
#include "imbrex/kernels/parts/product_sizes.h"
#include "imbrex/kernels/parts/result_store.h"
#include "imbrex/kernels/parts/tile_order.h"
#include "imbrex/lang.h"

namespace imbrex::kernels {

/// C = steps(A B^T), see epilogue.h.
template <class... Steps>
struct HopperMatmulStreamK {
  static constexpr const char* target = "sm_90a";
  int block_m = 128, block_n = 128, block_k = 64, stages = 6, consumers = 2;
  int cluster_m = 2, cluster_n = 1;  // CTAs of a cluster with tiles below and beside each other: they load
                                     // B, and A, for each other (multicast)
  bool swap_ab = false;              // B gives wgmma its rows, A its columns
  int swizzle_size = 8;
  int min_k_blocks =
      8;  // of a CTA on average, where there are few tiles: adding up a part costs about as much as these
  bool a_is_km = false, b_is_kn = false;  // A is [k, m], B is [k, n] in memory

  static auto space() {
    return Space<HopperMatmulStreamK>()
        .template choose<&HopperMatmulStreamK::block_m, &HopperMatmulStreamK::block_n,
                         &HopperMatmulStreamK::stages, &HopperMatmulStreamK::consumers,
                         &HopperMatmulStreamK::cluster_m, &HopperMatmulStreamK::cluster_n,
                         &HopperMatmulStreamK::swap_ab>({{128, 128, 6, 2, 2, 1, false},
                                                         {128, 192, 5, 2, 1, 2, false},
                                                         {192, 160, 4, 3, 1, 2, false},
                                                         {128, 256, 4, 2, 2, 1, false},
                                                         {256, 128, 4, 2, 2, 1, false},
                                                         {160, 128, 5, 2, 2, 1, true},
                                                         {160, 128, 5, 2, 1, 2, true},
                                                         {96, 128, 6, 2, 1, 2, true},
                                                         {64, 64, 12, 1, 1, 1, false}});
  }

  /// What a launch needs beside its operands: sums of a tile per CTA, undefined, and an int32 per CTA and consumer, zero
  /// before and after.
  int64_t partial_elements(int64_t ctas) const { return ctas * block_m * block_n; }
  int64_t turn_elements(int64_t ctas) const { return ctas * consumers; }

  void operator()(ProductSizes sizes, DataType dtype, Ptr<> a_ptr, Ptr<> b_ptr, Ptr<> c_ptr,
                  Ptr<float32> partial_ptr, Ptr<int32> turn_ptr, Epilogue<Steps...> finish) const {
    static_assert(!Epilogue<Steps...>::kReducesRows, "a tile need not have whole rows");
    // X gives wgmma its rows, Y its columns: A and B, or B and A.
    const int block_x = swap_ab ? block_n : block_m, block_y = swap_ab ? block_m : block_n;
    const int cluster_x = swap_ab ? cluster_n : cluster_m, cluster_y = swap_ab ? cluster_m : cluster_n;
    const int consumer_x = block_x / consumers;
    Int32 num_k_blocks = cdiv(sizes.k, block_k);
    Int32 num_m_blocks = cdiv(sizes.m, cluster_m * block_m);  // of a cluster
    Int32 num_n_blocks = cdiv(sizes.n(), cluster_n * block_n);
    const Batch* batch = finish.batch();
    auto matrix_tiles = num_m_blocks * num_n_blocks;
    Int32 num_tiles = batch ? batch->matrices * matrix_tiles : matrix_tiles;
    const int cluster_ctas = cluster_m * cluster_n;
    grid(cluster_ctas * min(sizes.ctas / cluster_ctas, cdiv(num_tiles * num_k_blocks, min_k_blocks)));
    cluster(cluster_ctas);
    warps(4 + 4 * consumers);
    Int32 cta = block_idx.x, rank = cluster_rank();
    Int32 rank_x = rank % cluster_x, rank_y = rank / cluster_x;
    Int32 group = cta / cluster_ctas, num_groups = grid_dim.x / cluster_ctas;  // of the grid's clusters

    const bool x_is_km = swap_ab ? b_is_kn : a_is_km, y_is_km = swap_ab ? a_is_km : b_is_kn;
    const MulticastShare share_x(x_is_km, block_x, block_k, {cluster_y, cluster_x, cluster_ctas}, rank,
                                 rank_y),
        share_y(y_is_km, block_y, block_k, {cluster_x, 1, cluster_ctas}, rank, rank_x);
    auto g_a = operand_view(a_ptr, dtype, sizes.m, sizes.k, a_is_km, batch, &Batch::a);
    auto g_b = operand_view(b_ptr, dtype, sizes.n(), sizes.k, b_is_kn, batch, &Batch::b);
    const auto &g_x = swap_ab ? g_b : g_a, &g_y = swap_ab ? g_a : g_b;
    const DataType c_type = finish.output_type(dtype);
    auto g_c = result_view(c_ptr, c_type, sizes.m, sizes.n(), batch);
    auto g_partials = global_view(partial_ptr, {grid_dim.x, consumers, consumer_x, block_y});
    auto g_turns = global_view(turn_ptr, {grid_dim.x, consumers});
    auto s_x = operand_stages(dtype, stages, block_x, block_k, x_is_km);
    auto s_y = operand_stages(dtype, stages, block_y, block_k, y_is_km);
    const ResultStore store(finish, g_c, c_type, sizes, {consumers, consumer_x, block_y, swap_ab});
    Pipeline pipe(stages, 1, (cluster_x + cluster_y - 1) * consumers);
    cluster_sync();
    griddepcontrol::wait();  // the grid before may still write A and B, or read C
    griddepcontrol::launch_dependents();

    // Tiles of full waves are not divided. What is left is, together with one wave, where there is one: one to two tiles
    // per cluster, so that the parts are long.
    Int32 left = num_tiles % num_groups;
    Int32 divided = select(left == 0, 0, left + select(num_tiles > num_groups, num_groups, 0));
    Int32 num_blocks = divided * num_k_blocks;  // of the divided tiles
    const auto first_block = [&](const ScalarArg& of_group) { return num_blocks * of_group / num_groups; };
    Int32 begin = first_block(group), end = first_block(group + 1);
    Int32 last_tile = (end - 1) / num_k_blocks;
    Int32 num_parts = select(begin == end, 0, last_tile - begin / num_k_blocks + 1);
    Int32 num_work = num_parts + (num_tiles - divided) / num_groups;

    /// Blocks of k of one tile: the cluster's parts from the last to the first, then its whole tiles. So the part that
    /// another one waits for is done first, and clusters wait for those before them in the grid alone.
    struct Work {
      Int32 tile, begin_k, end_k;
    };
    const auto work_at = [&](const Int32& i) {
      Work work{divided + group + (i - num_parts) * num_groups, 0, num_k_blocks};
      if (auto is_part = when(i < num_parts)) {
        work.tile = last_tile - i;
        work.begin_k = max(begin - work.tile * num_k_blocks, 0);
        work.end_k = min(end - work.tile * num_k_blocks, num_k_blocks);
      }
      return work;
    };

    if (auto producer = warp_group(0, 4)) {
      if (consumers > 1) setmaxnreg(consumers == 2 ? 40 : 32);
      if (auto warp = single_warp()) {
        for (Int32 i : range(0, num_work)) {
          const Work work = work_at(i);
          const TileOfBatch at = tile_of_batch(batch, work.tile, matrix_tiles);
          auto [m_block, n_block] = compute_block_coord(at.tile, num_m_blocks, num_n_blocks, swizzle_size);
          Int32 offset_x = ((swap_ab ? n_block : m_block) * cluster_x + rank_x) * block_x;
          Int32 offset_y = ((swap_ab ? m_block : n_block) * cluster_y + rank_y) * block_y;
          for (Int32 k_block : range(work.begin_k, work.end_k)) {
            pipe.producer_acquire();  // empty in all CTAs that receive it
            auto s_x_stage = s_x[pipe.producer_stage];
            auto s_y_stage = s_y[pipe.producer_stage];
            if (auto thread = single_thread())
              mbarrier::arrive_and_expect_tx(pipe.producer_barrier(),
                                             s_x_stage.nbytes() + s_y_stage.nbytes());
            Int32 offset_k = k_block * block_k;
            share_x.load(matrix_of(batch, g_x, at.matrix), s_x_stage, offset_x, offset_k,
                         pipe.producer_barrier());
            share_y.load(matrix_of(batch, g_y, at.matrix), s_y_stage, offset_y, offset_k,
                         pipe.producer_barrier());
            pipe.producer_advance();
          }
        }
        if (cluster_ctas > 1) pipe.producer_drain();
      }
    }
    const auto release = [&](const Int32& stage) {
      if (auto thread = single_thread())
        arrive_at_loaders(pipe.empty_barriers[stage], cluster_x, cluster_y, rank, rank_x, rank_y);
    };
    for (int i = 0; i < consumers; ++i) {
      if (auto consumer = warp_group(4 + 4 * i, 4)) {
        if (consumers > 1) setmaxnreg(consumers == 2 ? 232 : 160);
        for (Int32 j : range(0, num_work)) {
          const Work work = work_at(j);
          const TileOfBatch at = tile_of_batch(batch, work.tile, matrix_tiles);
          auto [m_block, n_block] = compute_block_coord(at.tile, num_m_blocks, num_n_blocks, swizzle_size);
          auto acc = wgmma::accumulator(sum_type(dtype), {consumer_x, block_y});
          Int32 last_stage = stages - 1;
          for (Int32 k_block : range(work.begin_k, work.end_k)) {
            pipe.consumer_acquire();
            wgmma::fence();
            wgmma::mma(s_x[pipe.consumer_stage].slice({i * consumer_x, 0}, {consumer_x, block_k}),
                       s_y[pipe.consumer_stage].transpose(), acc, {.scale_d = k_block != work.begin_k});
            wgmma::commit_group();
            wgmma::wait_group(1);
            if (auto later = when(k_block != work.begin_k)) release(last_stage);
            last_stage = pipe.consumer_stage;
            pipe.consumer_advance();
          }
          wgmma::wait_group(0);
          release(last_stage);
          if (auto unfinished = when(work.end_k < num_k_blocks)) {
            store_global(g_partials[cta][i], as_bits_of(acc, float32), {0, 0});
            semaphore::release(g_turns[cta][i], 1);
          }
          if (auto finished = otherwise()) {
            if (auto has_others = when(work.begin_k > 0)) {
              // The first cluster whose part begins at or before the tile's first block and ends behind it.
              Int32 first_group = ((work.tile * num_k_blocks + 1) * num_groups - 1) / num_blocks;
              for (Int32 other : range(first_group * cluster_ctas + rank, cta, cluster_ctas)) {
                semaphore::wait(g_turns[other][i], 1);
                acc +=
                    as_bits_of(load_global(g_partials[other][i], {0, 0}, {consumer_x, block_y}), acc.dtype());
                semaphore::release(g_turns[other][i], 0);  // for the next launch
              }
            }
            Int32 offset_x = ((swap_ab ? n_block : m_block) * cluster_x + rank_x) * block_x + i * consumer_x;
            Int32 offset_y = ((swap_ab ? m_block : n_block) * cluster_y + rank_y) * block_y;
            store(i, acc, swap_ab ? offset_y : offset_x, swap_ab ? offset_x : offset_y, at.matrix);
          }
        }
        store.wait();
      }
    }
  }
};

}  // namespace imbrex::kernels
