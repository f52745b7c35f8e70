// SPDX-License-Identifier: Apache-2.0
// Hopper matmul of groups: the experts of a mixture. It is step H7 (hopper_matmul/matmul_h7.h) with a tile order that
// the device computes from the sizes of the groups, which the host does not know: persistent clusters walk over the tiles
// of all groups. A tile that reaches beyond its group computes rows of the next one, and does not store them.
#pragma once

#include "imbrex/kernels/grouped/group_tiles.h"
#include "imbrex/kernels/parts/epilogue.h"
#include "imbrex/kernels/parts/multicast_share.h"
#include "imbrex/kernels/parts/operand.h"
#include "imbrex/kernels/parts/pipeline.h"
#include "imbrex/lang.h"

namespace imbrex::kernels {

/// x * scale[g, j] in column j of group g.
struct GroupColumnScale {
  using Parameters = ParameterList<Int32, Ptr<float32>>;
  Int32 groups;
  Ptr<float32> scale;

  RegisterValue operator()(const RegisterBase& x, const OutputTile& at) const {
    return x * load_global(global_view(scale, {groups, at.columns})[at.matrix], {at.column}, {x.shape(1)});
  }
};

/// C[i, :] = steps(A[i, :] B[g]^T) for each row i of each group g; see epilogue.h.
template <class... Steps>
struct HopperGroupedMatmul {
  static constexpr const char* target = "sm_90a";
  int block_m = 128, block_n = 256, block_k = 64, stages = 4, consumers = 2;  // of a CTA
  int cluster_m = 2, cluster_n = 1;  // CTAs of a cluster with tiles below and beside each other (multicast)
  int store_stages = 2;              // slices of a consumer
  int band = 8, ctas = 132;

  static auto space() {
    return Space<HopperGroupedMatmul>()
        .template choose<&HopperGroupedMatmul::block_m, &HopperGroupedMatmul::block_n,
                         &HopperGroupedMatmul::stages, &HopperGroupedMatmul::consumers,
                         &HopperGroupedMatmul::cluster_m, &HopperGroupedMatmul::cluster_n,
                         &HopperGroupedMatmul::store_stages>({{128, 256, 4, 2, 2, 1, 2},
                                                              {128, 256, 4, 2, 1, 2, 2},
                                                              {256, 128, 4, 2, 1, 2, 1},
                                                              {128, 192, 5, 2, 1, 2, 1},
                                                              {128, 256, 4, 2, 1, 1, 2},
                                                              {128, 128, 6, 2, 1, 2, 2},
                                                              {64, 256, 5, 1, 1, 1, 2},
                                                              {64, 128, 8, 1, 1, 2, 2},
                                                              {64, 128, 8, 1, 1, 1, 2}})
        .template choose<&HopperGroupedMatmul::band>({8, 16, 4});
  }

  /// A[m, k], B[groups, n, k], C[m, n]; rows_ptr: see GroupRows. `most_groups`: a number that `groups` does not exceed.
  void operator()(Int32 m_size, int n_size, int k_size, Int32 groups, int most_groups, bool masked,
                  Int32 room, DataType dtype, Ptr<int32> rows_ptr, Ptr<> a_ptr, Ptr<> b_ptr, Ptr<> c_ptr,
                  Epilogue<Steps...> finish) const {
    constexpr int kStoreN = 64;
    const int consumer_m = block_m / consumers, slices = block_n / kStoreN,
              cluster_ctas = cluster_m * cluster_n;
    require(block_n % kStoreN == 0 && slices % store_stages == 0,
            "{} columns of a tile are not a multiple of {} x store_stages = {}", block_n, kStoreN,
            store_stages);
    require(!finish.kReducesRows, "rows are reduced, which are wider than a tile");
    const int num_n_blocks = cdiv(n_size, cluster_n * block_n);  // of a cluster
    // Each group may end with a tile that is not full.
    grid(min(cluster_ctas * num_n_blocks * (cdiv(m_size, cluster_m * block_m) + groups),
             ctas / cluster_ctas * cluster_ctas));
    cluster(cluster_ctas);
    warps(4 + 4 * consumers);
    Int32 rank = cluster_rank();
    Int32 rank_m = rank, rank_n = 0;
    if (cluster_n > 1) rank_n = rank / cluster_m, rank_m = rank % cluster_m;
    Int32 first_tile = block_idx.x / cluster_ctas, num_clusters = grid_dim.x / cluster_ctas;
    const MulticastShare share_a(false, block_m, block_k, {cluster_n, cluster_m, cluster_ctas}, rank, rank_n),
        share_b(false, block_n, block_k, {cluster_m, 1, cluster_ctas}, rank, rank_m);

    auto g_a = global_view(a_ptr, dtype, {m_size, k_size});
    auto g_b = global_view(b_ptr, dtype, {groups, n_size, k_size});
    const DataType c_type = finish.output_type(dtype);
    auto g_c = global_view(c_ptr, c_type, {m_size, n_size});
    auto s_a = shared_tensor(dtype, {stages, block_m, block_k});
    auto s_b = shared_tensor(dtype, {stages, block_n, block_k});
    auto s_c = shared_tensor(c_type, {consumers, store_stages, consumer_m, kStoreN});
    Pipeline pipe(stages, 1, (cluster_m + cluster_n - 1) * consumers);
    griddepcontrol::wait();  // the grid before may still write A, B and the groups, or read C
    const GroupRows rows(rows_ptr, groups, most_groups, masked, room);
    cluster_sync();
    griddepcontrol::launch_dependents();

    if (auto producer = warp_group(0, 4)) {
      if (consumers > 1) setmaxnreg(40);
      if (auto warp = single_warp()) {
        GroupTiles tiles(rows, cluster_m * block_m, num_n_blocks, band);
        Int32 tile = first_tile;
        for (Loop loop : forever()) {
          tiles.find(tile);
          loop.break_if(tiles.at_end());
          Int32 offset_m = tiles.begin + (tiles.m_block * cluster_m + rank_m) * block_m;
          Int32 offset_n = (tiles.n_block * cluster_n + rank_n) * block_n;
          for (Int32 offset_k : range(0, k_size, block_k, {.unroll = stages})) {
            pipe.producer_acquire();  // empty in all CTAs that receive it
            auto s_a_stage = s_a[pipe.producer_stage];
            auto s_b_stage = s_b[pipe.producer_stage];
            if (auto thread = single_thread())
              mbarrier::arrive_and_expect_tx(pipe.producer_barrier(),
                                             s_a_stage.nbytes() + s_b_stage.nbytes());
            share_a.load(g_a, s_a_stage, offset_m, offset_k, pipe.producer_barrier());
            share_b.load(g_b[tiles.group], s_b_stage, offset_n, offset_k, pipe.producer_barrier());
            pipe.producer_advance();
          }
          tile += num_clusters;
        }
      }
    }

    // Signals all CTAs that load a share of the stage. Relaxed: only products have read it, and they are complete.
    const auto release = [&](const Int32& stage) {
      if (auto thread = single_thread()) {
        const auto arrive = [&](const ScalarArg& cta) {
          mbarrier::arrive(remote_barrier(pipe.empty_barriers[stage], cta), {.sem = Sem::kRelaxed});
        };
        for (int i = 0; i < cluster_m; ++i) arrive(rank - rank_m + i);
        for (int i = 1; i < cluster_n; ++i)
          arrive(rank - rank_n * cluster_m +
                 select(rank_n + i < cluster_n, rank_n + i, rank_n + i - cluster_n) * cluster_m);
      }
    };
    for (int i = 0; i < consumers; ++i) {
      if (auto consumer = warp_group(4 + 4 * i, 4)) {
        if (consumers > 1) setmaxnreg(232);
        GroupTiles tiles(rows, cluster_m * block_m, num_n_blocks, band);
        Int32 tile = first_tile;
        for (Loop loop : forever()) {
          tiles.find(tile);
          loop.break_if(tiles.at_end());
          auto acc = wgmma::accumulator(float32, {consumer_m, block_n});
          Int32 last_stage = stages - 1;
          for (Int32 offset_k : range(0, k_size, block_k, {.unroll = stages})) {
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

          Int32 offset_m = tiles.begin + (tiles.m_block * cluster_m + rank_m) * block_m + i * consumer_m;
          Int32 offset_n = (tiles.n_block * cluster_n + rank_n) * block_n;
          Int32 is_full = cast<int32>(offset_m + consumer_m <= tiles.end);
          auto g_group = global_view(c_ptr, c_type, {tiles.end, n_size});
          auto steps = finish.rows(consumer_m);
          for (int j = 0; j < slices; ++j) {
            auto s_slice = s_c[i][j % store_stages];
            const OutputTile place{m_size, n_size, c_type, offset_m, offset_n + j * kStoreN, tiles.group};
            if (auto warp = single_warp()) tma::wait_group(store_stages - 1, {.read = true});
            sync();  // the slice that was here has been stored
            store_shared(s_slice, steps(acc.slice({0, j * kStoreN}, {consumer_m, kStoreN}), place));
            fence::proxy_async();  // what was written becomes visible to TMA
            sync();
            if (auto full = when(is_full != 0)) {
              if (auto warp = single_warp()) {
                tma::shared_to_global(s_slice, g_c, {offset_m, offset_n + j * kStoreN});
                tma::commit_group();
              }
            }
            // Rows of the next group are not written.
            if (auto ragged = otherwise())
              store_global(g_group, load_shared(s_slice), {offset_m, offset_n + j * kStoreN});
          }
          tile += num_clusters;
        }
        if (auto warp = single_warp()) tma::wait_group(0, {.read = true});
      }
    }
    cluster_sync();  // no CTA exits while another may still write to it or signal it
  }
};

}  // namespace imbrex::kernels
