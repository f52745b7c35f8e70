// SPDX-License-Identifier: Apache-2.0
// The gradient of the weights of grouped products, on Hopper: each group adds up products over its own rows, whose number
// only device memory knows. As hopper_grouped.h, but the tiles are known, and how long k is differs from group to group.
#pragma once

#include "imbrex/kernels/grouped/group_tiles.h"
#include "imbrex/kernels/parts/epilogue.h"
#include "imbrex/kernels/parts/multicast_share.h"
#include "imbrex/kernels/parts/pipeline.h"
#include "imbrex/kernels/parts/tile_order.h"
#include "imbrex/lang.h"

namespace imbrex::kernels {

/// C[g] = steps(A[rows of g, :]^T B[rows of g, :]) for each group g; see epilogue.h.
template <class... Steps>
struct HopperWeightGradient {
  static constexpr const char* target = "sm_90a";
  static constexpr int kConsumers = 2;
  int block_m = 128, block_n = 256, block_k = 64, stages = 4;  // of a CTA
  int cluster_m = 2, cluster_n = 1;  // CTAs of a cluster with tiles below and beside each other (multicast)
  int swizzle_size = 8, ctas = 132;

  static auto space() {
    return Space<HopperWeightGradient>()
        .template choose<&HopperWeightGradient::block_m, &HopperWeightGradient::block_n,
                         &HopperWeightGradient::stages, &HopperWeightGradient::cluster_m,
                         &HopperWeightGradient::cluster_n>(
            {{128, 256, 4, 2, 1}, {128, 256, 4, 1, 2}, {128, 256, 4, 1, 1}, {128, 128, 6, 2, 1}})
        .template choose<&HopperWeightGradient::swizzle_size>({8, 16});
  }

  /// A[rows, m], B[rows, n], C[groups, m, n]; rows_ptr: see GroupRows. Groups without rows get zeros.
  void operator()(Int32 rows_size, int m_size, int n_size, Int32 groups, int most_groups, bool masked,
                  Int32 room, DataType dtype, Ptr<int32> rows_ptr, Ptr<> a_ptr, Ptr<> b_ptr, Ptr<> c_ptr,
                  Epilogue<Steps...> finish) const {
    constexpr int kStoreN = 64, kStoreStages = 2;
    const int slices = block_n / kStoreN, cluster_ctas = cluster_m * cluster_n;
    require(dtype.bits() == 16, "elements have {} bits: wgmma takes k first of 16-bit types only",
            dtype.bits());
    require(!finish.kReducesRows, "rows are reduced, which are wider than a tile");
    const int num_m_blocks = cdiv(m_size, cluster_m * block_m),
              num_n_blocks = cdiv(n_size, cluster_n * block_n);
    Int32 num_tiles = groups * (num_m_blocks * num_n_blocks);
    grid(min(cluster_ctas * num_tiles, ctas / cluster_ctas * cluster_ctas));
    cluster(cluster_ctas);
    warps(4 + 4 * kConsumers);
    Int32 rank = cluster_rank();
    Int32 rank_m = rank, rank_n = 0;
    if (cluster_n > 1) rank_n = rank / cluster_m, rank_m = rank % cluster_m;
    Int32 first_tile = block_idx.x / cluster_ctas, num_clusters = grid_dim.x / cluster_ctas;
    const MulticastShare share_a(true, block_m, block_k, {cluster_n, cluster_m, cluster_ctas}, rank, rank_n),
        share_b(true, block_n, block_k, {cluster_m, 1, cluster_ctas}, rank, rank_m);

    auto g_a = global_view(a_ptr, dtype, {rows_size, m_size}).transpose();
    auto g_b = global_view(b_ptr, dtype, {rows_size, n_size}).transpose();
    const DataType c_type = finish.output_type(dtype);
    auto g_c = global_view(c_ptr, c_type, {groups, m_size, n_size});
    auto s_a = shared_tensor(dtype, {stages, block_k, block_m});
    auto s_b = shared_tensor(dtype, {stages, block_k, block_n});
    auto s_c = shared_tensor(c_type, {kStoreStages, block_m, kStoreN});
    Pipeline pipe(stages, 1, (cluster_m + cluster_n - 1) * kConsumers);
    griddepcontrol::wait();
    const GroupRows rows(rows_ptr, groups, most_groups, masked, room);
    cluster_sync();
    griddepcontrol::launch_dependents();

    const auto offset_m_of = [&](const BlockCoord& at) {
      return (at.m_block * cluster_m + rank_m) * block_m;
    };
    const auto offset_n_of = [&](const BlockCoord& at) {
      return (at.n_block * cluster_n + rank_n) * block_n;
    };
    if (auto producer = warp_group(0, 4)) {
      setmaxnreg(40);
      if (auto warp = single_warp()) {
        for (Int32 tile : range(first_tile, num_tiles, num_clusters)) {
          const auto [group, in_group] = fast_divmod(tile, num_m_blocks * num_n_blocks);
          const BlockCoord at = compute_block_coord(in_group, num_m_blocks, num_n_blocks, swizzle_size);
          Int32 offset_m = offset_m_of(at), offset_n = offset_n_of(at), begin = rows.begin(group);
          for (Int32 row : range(begin, rows.end(group), block_k)) {
            // Empty in all CTAs that receive it, whose threads may have written zeros.
            mbarrier::wait(pipe.empty_barriers[pipe.producer_stage], pipe.producer_phase,
                           {.scope = Scope::kCluster});
            auto s_a_stage = s_a[pipe.producer_stage];
            auto s_b_stage = s_b[pipe.producer_stage];
            if (auto thread = single_thread())
              mbarrier::arrive_and_expect_tx(pipe.producer_barrier(),
                                             s_a_stage.nbytes() + s_b_stage.nbytes());
            share_a.load(g_a, s_a_stage.transpose(), offset_m, row, pipe.producer_barrier());
            share_b.load(g_b, s_b_stage.transpose(), offset_n, row, pipe.producer_barrier());
            pipe.producer_advance();
          }
        }
        if (cluster_m * cluster_n > 1) pipe.producer_drain();
      }
    }

    // Signals all CTAs that load a share of the stage, once for each of the warp groups that have read it. Relaxed where
    // only products have read it, which are complete.
    const auto release = [&](const Int32& stage,
                             const mbarrier::ArriveOptions& order = {.sem = Sem::kRelaxed}) {
      for (int i = 0; i < kConsumers; ++i)
        if (auto warps = warp_group(4 * i, 4))
          if (auto thread = single_thread()) {
            const auto arrive = [&](const ScalarArg& cta) {
              mbarrier::arrive(remote_barrier(pipe.empty_barriers[stage], cta), order);
            };
            for (int j = 0; j < cluster_m; ++j) arrive(rank - rank_m + j);
            for (int j = 1; j < cluster_n; ++j)
              arrive(rank - rank_n * cluster_m +
                     select(rank_n + j < cluster_n, rank_n + j, rank_n + j - cluster_n) * cluster_m);
          }
    };
    if (auto consumers = warp_group(4, 4 * kConsumers)) {
      setmaxnreg(232);
      for (Int32 tile : range(first_tile, num_tiles, num_clusters)) {
        const auto [group, in_group] = fast_divmod(tile, num_m_blocks * num_n_blocks);
        const BlockCoord at = compute_block_coord(in_group, num_m_blocks, num_n_blocks, swizzle_size);
        Int32 begin = rows.begin(group), end = rows.end(group);
        rows.promise(group, begin, end);
        RegisterTensor acc = zeros(float32, {block_m, block_n});
        Int32 last_stage = stages - 1;
        for (Int32 row : range(begin, end, block_k)) {
          pipe.consumer_acquire();
          if (auto ragged = when(end - row < block_k)) {  // what follows are rows of the next group
            constexpr int kRows = 4;                      // at a time, which takes few registers
            for (Int32 first : range(0, block_k, kRows)) {
              auto others =
                  register_tensor(boolean, {kRows, 1}, [&](auto k, auto) { return first + k >= end - row; });
              for (const SharedTensor& s : {s_a[pipe.consumer_stage], s_b[pipe.consumer_stage]})
                scatter(s, zeros(dtype, {kRows, s.shape(1)}), {first, 0}, {.mask = others});
            }
            fence::proxy_async();
            sync();
          }
          wgmma::fence();
          wgmma::mma(s_a[pipe.consumer_stage].transpose(), s_b[pipe.consumer_stage], acc, {.scale_d = true});
          wgmma::commit_group();
          wgmma::wait_group(1);
          if (auto later = when(row != begin)) release(last_stage);
          last_stage = pipe.consumer_stage;
          pipe.consumer_advance();
        }
        wgmma::wait_group(0);
        // In the last stage there may be zeros, which come before what TMA writes next.
        if (auto any_rows = when(end > begin))
          release(last_stage, {.sem = Sem::kRelease, .scope = Scope::kCluster});

        Int32 offset_m = offset_m_of(at), offset_n = offset_n_of(at);
        auto steps = finish.rows(block_m);
        for (int j = 0; j < slices; ++j) {
          auto s_slice = s_c[j % kStoreStages];
          const OutputTile place{m_size, n_size, c_type, offset_m, offset_n + j * kStoreN, group};
          if (auto warp = single_warp()) tma::wait_group(kStoreStages - 1, {.read = true});
          sync();  // the slice that was here has been stored
          store_shared(s_slice, steps(acc.slice({0, j * kStoreN}, {block_m, kStoreN}), place));
          fence::proxy_async();  // what was written becomes visible to TMA
          sync();
          if (auto warp = single_warp()) {
            tma::shared_to_global(s_slice, g_c[group], {offset_m, offset_n + j * kStoreN});
            tma::commit_group();
          }
        }
      }
      if (auto warp = single_warp()) tma::wait_group(0, {.read = true});
    }
  }
};

}  // namespace imbrex::kernels
