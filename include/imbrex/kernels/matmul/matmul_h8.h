// SPDX-License-Identifier: Apache-2.0
// Hopper matmul, step 8: any shape. Where there are fewer tiles than multiprocessors, the CTAs of a cluster
// divide k and add up their partial sums (split_k); clusters have one CTA or more, tiles one to three
// consumers; rows of C may begin at any address; and a tile may be computed transposed (swap_ab), so that its
// height is wgmma's number of columns, any multiple of 8.
#pragma once

#include <optional>

#include "imbrex/kernels/parts/cluster_sum.h"
#include "imbrex/kernels/parts/epilogue.h"
#include "imbrex/kernels/parts/multicast_share.h"
#include "imbrex/kernels/parts/operand.h"
#include "imbrex/kernels/parts/pipeline.h"
#include "imbrex/kernels/parts/result_store.h"
#include "imbrex/kernels/parts/tile_order.h"
#include "imbrex/lang.h"

namespace imbrex::kernels {

/// C = steps(A B^T), see epilogue.h.
template <class... Steps>
struct HopperMatmulH8 {
  static constexpr const char* target = "sm_90a";
  int block_m = 128, block_n = 128, block_k = 64, stages = 5, consumers = 2;  // of a CTA
  int split_k = 1;                   // CTAs of a cluster that divide k, for the same tiles
  int cluster_m = 1, cluster_n = 1;  // CTAs of a cluster with tiles below and beside each other: they load
                                     // B, and A, for each other (multicast)
  bool swap_ab = false;              // B gives wgmma its rows, A its columns
  int swizzle_size = 8, ctas = 132;
  bool a_is_km = false, b_is_kn = false;  // A is [k, m], B is [k, n] in memory

  static auto space() {
    return Space<HopperMatmulH8>()
        .template choose<&HopperMatmulH8::block_m, &HopperMatmulH8::block_n, &HopperMatmulH8::stages,
                         &HopperMatmulH8::consumers, &HopperMatmulH8::split_k, &HopperMatmulH8::cluster_m,
                         &HopperMatmulH8::cluster_n, &HopperMatmulH8::swap_ab>(
            {{64, 128, 8, 1, 1, 1, 1, false},  {64, 8, 12, 1, 1, 1, 1, false},
             {64, 32, 12, 1, 1, 1, 1, false},  {64, 72, 12, 1, 1, 1, 1, false},
             {128, 96, 7, 2, 1, 1, 1, false},  {128, 208, 4, 2, 1, 1, 1, false},
             {128, 112, 6, 2, 1, 2, 2, false}, {128, 176, 5, 2, 1, 1, 1, false},
             {192, 160, 4, 3, 1, 1, 1, false}, {128, 256, 4, 2, 1, 1, 1, false},
             {192, 192, 4, 3, 1, 1, 1, false}, {64, 128, 6, 1, 4, 1, 1, false},
             {64, 96, 10, 1, 1, 2, 4, false},  {128, 128, 6, 2, 1, 2, 1, false},
             {128, 160, 5, 2, 1, 2, 4, false}, {128, 176, 5, 2, 1, 2, 2, false},
             {128, 224, 4, 2, 1, 2, 1, false}, {128, 224, 4, 2, 1, 1, 2, false},
             {192, 160, 4, 3, 1, 1, 2, false}, {64, 160, 6, 1, 2, 2, 2, false},
             {128, 128, 5, 2, 2, 1, 2, false}, {128, 128, 5, 2, 2, 2, 1, false},
             {16, 64, 12, 1, 1, 1, 1, true},   {8, 128, 12, 2, 1, 1, 1, true},
             {48, 64, 12, 1, 1, 1, 1, true},   {96, 64, 10, 1, 1, 1, 1, true},
             {80, 128, 8, 2, 1, 1, 1, true},   {176, 64, 7, 1, 1, 1, 1, true},
             {104, 128, 7, 2, 1, 1, 1, true},  {112, 128, 6, 2, 1, 1, 1, true},
             {104, 192, 5, 3, 1, 1, 1, true},  {160, 128, 5, 2, 1, 1, 1, true},
             {16, 64, 12, 1, 2, 1, 1, true},   {32, 64, 12, 1, 2, 1, 1, true},
             {80, 128, 6, 2, 2, 1, 1, true},   {128, 128, 5, 2, 2, 1, 1, true},
             {32, 64, 12, 1, 4, 1, 1, true},   {64, 64, 8, 1, 4, 1, 1, true},
             {80, 192, 6, 3, 1, 2, 2, true},   {200, 128, 5, 2, 1, 2, 1, true},
             {224, 128, 4, 2, 1, 2, 1, true},  {192, 192, 4, 3, 1, 2, 1, true},
             {96, 128, 6, 2, 4, 2, 1, true},   {192, 128, 3, 2, 4, 1, 2, true}});
  }

  void operator()(Int32 m_size, int n_size, int k_size, DataType dtype, Ptr<> a_ptr, Ptr<> b_ptr, Ptr<> c_ptr,
                  Epilogue<Steps...> finish) const {
    // X gives wgmma its rows, Y its columns: A and B, or B and A. CTAs side by side along x load Y for each
    // other, CTAs along y load X.
    const int block_x = swap_ab ? block_n : block_m, block_y = swap_ab ? block_m : block_n;
    const int consumer_x = block_x / consumers, part_y = block_y / split_k;
    const int cluster_x = swap_ab ? cluster_n : cluster_m, cluster_y = swap_ab ? cluster_m : cluster_n;
    const int cluster_ctas = cluster_m * cluster_n * split_k;
    const int num_k_blocks = cdiv(k_size, block_k), split_blocks = cdiv(num_k_blocks, split_k);
    require(!swap_ab || !finish.kReducesRows, "rows are reduced, tiles are computed transposed");
    finish.check(n_size, part_y);
    Int32 num_m_blocks = cdiv(m_size, cluster_m * block_m);  // of a cluster
    const int num_n_blocks = cdiv(n_size, cluster_n * block_n);
    const Batch* batch = finish.batch();
    auto matrix_tiles = num_m_blocks * num_n_blocks;
    Int32 num_tiles = batch ? batch->matrices * matrix_tiles : matrix_tiles;
    grid(min(cluster_ctas * num_tiles, ctas / cluster_ctas * cluster_ctas));
    cluster(cluster_ctas);
    warps(4 + 4 * consumers);
    Int32 rank = cluster_rank();
    // The CTA's coordinates in the cluster: x varies fastest, then y, then the part of k.
    Int32 rank_k = 0, rank_x = rank, rank_y = 0;
    if (split_k > 1) rank_k = rank / (cluster_x * cluster_y), rank_x = rank % (cluster_x * cluster_y);
    if (cluster_y > 1) rank_y = rank_x / cluster_x, rank_x = rank_x % cluster_x;
    Int32 first_tile = block_idx.x / cluster_ctas, num_clusters = grid_dim.x / cluster_ctas;
    const bool x_is_km = swap_ab ? b_is_kn : a_is_km, y_is_km = swap_ab ? a_is_km : b_is_kn;
    const MulticastShare share_x(x_is_km, block_x, block_k, {cluster_y, cluster_x, cluster_ctas}, rank,
                                 rank_y),
        share_y(y_is_km, block_y, block_k, {cluster_x, 1, cluster_ctas}, rank, rank_x);

    auto g_a = operand_view(a_ptr, dtype, m_size, k_size, a_is_km, batch, &Batch::a);
    auto g_b = operand_view(b_ptr, dtype, n_size, k_size, b_is_kn, batch, &Batch::b);
    const auto &g_x = swap_ab ? g_b : g_a, &g_y = swap_ab ? g_a : g_b;
    const DataType c_type = finish.output_type(dtype);
    auto g_c = result_view(c_ptr, c_type, m_size, n_size, batch);
    auto s_x = operand_stages(dtype, stages, block_x, block_k, x_is_km);
    auto s_y = operand_stages(dtype, stages, block_y, block_k, y_is_km);
    const bool spans_rows = num_n_blocks == 1 && cluster_n == 1 && split_k == 1 && !swap_ab;
    const ResultStore store(finish, g_c, c_type, m_size, n_size, {consumers, consumer_x, part_y, swap_ab},
                            spans_rows);
    Pipeline pipe(stages, 1, (cluster_x + cluster_y - 1) * consumers);
    std::optional<ClusterSum> cluster_sum;
    if (split_k > 1)
      cluster_sum.emplace(split_k, rank_k, cluster_x * cluster_y, rank_y * cluster_x + rank_x, consumers,
                          consumer_x, block_y);
    cluster_sync();
    griddepcontrol::wait();  // the grid before may still write A and B, or read C
    griddepcontrol::launch_dependents();

    // Where every CTA has the same number of blocks of k, a multiple of the stages, stage numbers are constants.
    const bool is_even = num_k_blocks % split_k == 0;
    const int unroll = is_even && split_blocks % stages == 0 ? stages : 1;
    Int32 k_blocks = split_blocks;
    if (!is_even)
      k_blocks =
          max(1, min(split_blocks, num_k_blocks - rank_k * split_blocks));  // of zeros, if none is left

    if (auto producer = warp_group(0, 4)) {
      if (consumers > 1) setmaxnreg(consumers == 2 ? 40 : 32);
      if (auto warp = single_warp()) {
        for (Int32 tile : range(first_tile, num_tiles, num_clusters)) {
          const TileOfBatch at = tile_of_batch(batch, tile, matrix_tiles);
          auto [m_block, n_block] = compute_block_coord(at.tile, num_m_blocks, num_n_blocks, swizzle_size);
          Int32 offset_x = ((swap_ab ? n_block : m_block) * cluster_x + rank_x) * block_x;
          Int32 offset_y = ((swap_ab ? m_block : n_block) * cluster_y + rank_y) * block_y;
          for (Int32 k_block : range(0, k_blocks, {.unroll = unroll})) {
            Int32 offset_k = (rank_k * split_blocks + k_block) * block_k;
            pipe.producer_acquire();  // empty in all CTAs that receive it
            auto s_x_stage = s_x[pipe.producer_stage];
            auto s_y_stage = s_y[pipe.producer_stage];
            if (auto thread = single_thread())
              mbarrier::arrive_and_expect_tx(pipe.producer_barrier(),
                                             s_x_stage.nbytes() + s_y_stage.nbytes());
            share_x.load(matrix_of(batch, g_x, at.matrix), s_x_stage, offset_x, offset_k,
                         pipe.producer_barrier());
            share_y.load(matrix_of(batch, g_y, at.matrix), s_y_stage, offset_y, offset_k,
                         pipe.producer_barrier());
            pipe.producer_advance();
          }
        }
      }
    }

    const auto release = [&](const Int32& stage) {
      if (auto thread = single_thread())
        arrive_at_loaders(pipe.empty_barriers[stage], cluster_x, cluster_y, rank, rank_x, rank_y);
    };
    for (int i = 0; i < consumers; ++i) {
      if (auto consumer = warp_group(4 + 4 * i, 4)) {
        if (consumers > 1) setmaxnreg(consumers == 2 ? 232 : 160);
        for (Int32 tile : range(first_tile, num_tiles, num_clusters)) {
          const TileOfBatch at = tile_of_batch(batch, tile, matrix_tiles);
          auto [m_block, n_block] = compute_block_coord(at.tile, num_m_blocks, num_n_blocks, swizzle_size);
          auto acc = wgmma::accumulator(float32, {consumer_x, block_y});
          Int32 last_stage = stages - 1;
          for (Int32 k_block : range(0, k_blocks, {.unroll = unroll})) {
            pipe.consumer_acquire();
            wgmma::fence();
            wgmma::mma(s_x[pipe.consumer_stage].slice({i * consumer_x, 0}, {consumer_x, block_k}),
                       s_y[pipe.consumer_stage].transpose(), acc, {.scale_d = k_block != 0});
            wgmma::commit_group();
            wgmma::wait_group(1);
            if (auto later = when(k_block != 0)) release(last_stage);
            last_stage = pipe.consumer_stage;
            pipe.consumer_advance();
          }
          wgmma::wait_group(0);
          release(last_stage);
          Int32 offset_x = ((swap_ab ? n_block : m_block) * cluster_x + rank_x) * block_x + i * consumer_x;
          Int32 offset_y = ((swap_ab ? m_block : n_block) * cluster_y + rank_y) * block_y + rank_k * part_y;
          const Int32 &offset_m = swap_ab ? offset_y : offset_x, &offset_n = swap_ab ? offset_x : offset_y;
          if (cluster_sum)
            store(i, (*cluster_sum)(i, acc), offset_m, offset_n, at.matrix);
          else
            store(i, acc, offset_m, offset_n, at.matrix);
        }
        store.wait();
      }
    }
    cluster_sync();  // no CTA exits while another may still write to it or signal it
  }
};

}  // namespace imbrex::kernels
