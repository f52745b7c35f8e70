// SPDX-License-Identifier: Apache-2.0
// Hopper matmul, step 8: any shape. Where there are fewer tiles than multiprocessors, the CTAs of a cluster
// divide k and add up their partial sums (split_k); clusters have one CTA or more, tiles one to three
// consumers; rows of C may begin at any address; a tile may be computed transposed (swap_ab), so that its
// height is wgmma's number of columns, any multiple of 8; and consumers may take turns, a whole tile each
// (takes_turns), so that one multiplies while the other stores, which pays where k is short or the steps are long: those
// of a gated product, half of whose tile is what the other half is multiplied by.
#pragma once

#include <optional>
#include <vector>

#include "imbrex/kernels/parts/cluster_sum.h"
#include "imbrex/kernels/parts/epilogue.h"
#include "imbrex/kernels/parts/fused_results.h"
#include "imbrex/kernels/parts/multicast_share.h"
#include "imbrex/kernels/parts/operand.h"
#include "imbrex/kernels/parts/parts_of_k.h"
#include "imbrex/kernels/parts/pipeline.h"
#include "imbrex/kernels/parts/product_sizes.h"
#include "imbrex/kernels/parts/result_store.h"
#include "imbrex/kernels/ranks/rank_tiles.h"
#include "imbrex/lang.h"

namespace imbrex::kernels {

/// C = steps(A B^T), see epilogue.h.
template <class... Steps>
struct HopperMatmulH8 {
  static constexpr const char* target = "sm_90a";
  static constexpr bool kGated = (std::is_same_v<Steps, GatedBy> || ...);
  int block_m = 128, block_n = kGated ? 192 : 128, block_k = 64;  // of a CTA
  int stages = kGated ? 4 : 5, consumers = 2;
  int split_k = 1;                   // CTAs of a cluster that divide k, for the same tiles
  int cluster_m = 1, cluster_n = 1;  // CTAs of a cluster with tiles below and beside each other: they load
                                     // B, and A, for each other (multicast)
  bool swap_ab = false;              // B gives wgmma its rows, A its columns
  int store_stages = 1;              // slices of a tile of C that TMA may be storing at once
  bool takes_turns = kGated;  // each of two consumers computes every other tile; not where k is divided
  int swizzle_size = 8;
  bool a_is_km = false, b_is_kn = false;  // A is [k, m], B is [k, n] in memory

  static auto space() {
    // Consumers take turns only where k is not in parts.
    constexpr bool kTurn = !(std::is_same_v<Steps, PartsOfK> || ...);
    if constexpr (kGated)
      return Space<HopperMatmulH8>()
          .template choose<&HopperMatmulH8::block_m, &HopperMatmulH8::block_n, &HopperMatmulH8::stages,
                           &HopperMatmulH8::cluster_m, &HopperMatmulH8::cluster_n, &HopperMatmulH8::swap_ab>(
              {{128, 192, 4, 2, 1, false},
               {128, 160, 5, 2, 1, false},
               {128, 160, 5, 1, 2, false},
               {176, 128, 5, 2, 1, true},
               {176, 128, 5, 1, 2, true},
               {160, 128, 5, 1, 2, true}});
    return Space<HopperMatmulH8>()
        .template choose<&HopperMatmulH8::block_m, &HopperMatmulH8::block_n, &HopperMatmulH8::stages,
                         &HopperMatmulH8::consumers, &HopperMatmulH8::split_k, &HopperMatmulH8::cluster_m,
                         &HopperMatmulH8::cluster_n, &HopperMatmulH8::swap_ab, &HopperMatmulH8::store_stages,
                         &HopperMatmulH8::takes_turns>(
            {{64, 128, 8, 1, 1, 1, 1, false, 1, false},  {64, 8, 12, 1, 1, 1, 1, false, 1, false},
             {64, 32, 12, 1, 1, 1, 1, false, 1, false},  {64, 72, 12, 1, 1, 1, 1, false, 1, false},
             {128, 96, 7, 2, 1, 1, 1, false, 1, false},  {128, 208, 4, 2, 1, 1, 1, false, 1, false},
             {128, 112, 6, 2, 1, 2, 2, false, 1, false}, {128, 176, 5, 2, 1, 1, 1, false, 1, false},
             {192, 160, 4, 3, 1, 1, 1, false, 1, false}, {128, 256, 4, 2, 1, 1, 1, false, 1, false},
             {192, 192, 4, 3, 1, 1, 1, false, 1, false}, {64, 128, 6, 1, 4, 1, 1, false, 1, false},
             {64, 96, 10, 1, 1, 2, 4, false, 1, false},  {128, 128, 6, 2, 1, 2, 1, false, 1, false},
             {128, 160, 5, 2, 1, 2, 4, false, 1, false}, {128, 176, 5, 2, 1, 2, 2, false, 1, false},
             {128, 224, 4, 2, 1, 2, 1, false, 1, false}, {128, 224, 4, 2, 1, 1, 2, false, 1, false},
             {192, 160, 4, 3, 1, 1, 2, false, 1, false}, {64, 160, 6, 1, 2, 2, 2, false, 1, false},
             {128, 128, 5, 2, 2, 1, 2, false, 1, false}, {128, 128, 5, 2, 2, 2, 1, false, 1, false},
             {16, 64, 12, 1, 1, 1, 1, true, 1, false},   {8, 128, 12, 2, 1, 1, 1, true, 1, false},
             {48, 64, 12, 1, 1, 1, 1, true, 1, false},   {96, 64, 10, 1, 1, 1, 1, true, 1, false},
             {80, 128, 8, 2, 1, 1, 1, true, 1, false},   {176, 64, 7, 1, 1, 1, 1, true, 1, false},
             {104, 128, 7, 2, 1, 1, 1, true, 1, false},  {112, 128, 6, 2, 1, 1, 1, true, 1, false},
             {104, 192, 5, 3, 1, 1, 1, true, 1, false},  {160, 128, 5, 2, 1, 1, 1, true, 1, false},
             {16, 64, 12, 1, 2, 1, 1, true, 1, false},   {32, 64, 12, 1, 2, 1, 1, true, 1, false},
             {80, 128, 6, 2, 2, 1, 1, true, 1, false},   {128, 128, 5, 2, 2, 1, 1, true, 1, false},
             {32, 64, 12, 1, 4, 1, 1, true, 1, false},   {64, 64, 8, 1, 4, 1, 1, true, 1, false},
             {80, 192, 5, 3, 1, 2, 2, true, 1, false},   {200, 128, 5, 2, 1, 2, 1, true, 1, false},
             {224, 128, 4, 2, 1, 2, 1, true, 1, false},  {192, 192, 4, 3, 1, 2, 1, true, 1, false},
             {96, 128, 6, 2, 4, 2, 1, true, 1, false},   {192, 128, 3, 2, 4, 1, 2, true, 1, false},
             {128, 256, 4, 2, 1, 2, 1, false, 2, false}, {128, 256, 4, 2, 1, 1, 2, false, 2, false},
             {256, 128, 4, 2, 1, 2, 1, false, 1, false}, {256, 128, 4, 2, 1, 1, 2, false, 1, false},
             {256, 192, 3, 2, 1, 2, 1, false, 1, false}, {128, 192, 5, 2, 1, 2, 1, false, 1, false},
             {128, 192, 5, 2, 1, 1, 2, false, 1, false}, {128, 128, 6, 2, 1, 1, 2, false, 1, false},
             {128, 128, 5, 2, 1, 2, 1, false, 2, false}, {32, 64, 12, 1, 1, 1, 1, true, 1, false},
             {64, 64, 10, 1, 1, 1, 1, true, 1, false},   {80, 128, 8, 2, 1, 2, 1, true, 1, false},
             {160, 128, 5, 2, 1, 1, 2, true, 1, false},  {128, 256, 4, 2, 1, 2, 1, false, 1, false},
             {128, 176, 4, 2, 1, 2, 1, false, 1, kTurn}, {128, 192, 4, 2, 1, 1, 2, false, 1, kTurn},
             {136, 128, 5, 2, 1, 2, 1, true, 1, kTurn}});
  }

  void operator()(ProductSizes sizes, DataType dtype, Ptr<> a_ptr, Ptr<> b_ptr, Ptr<> c_ptr,
                  Epilogue<Steps...> finish) const {
    static_assert(!Epilogue<Steps...>::kReducesRows, "a tile need not have whole rows");
    // X gives wgmma its rows, Y its columns: A and B, or B and A. CTAs side by side along x load Y for each
    // other, CTAs along y load X.
    const int block_x = swap_ab ? block_n : block_m, block_y = swap_ab ? block_m : block_n;
    require(!takes_turns || (consumers == 2 && split_k == 1 && !finish.template find<PartsOfK>()),
            "consumers take turns where there are two and k is not divided; there are {}, split_k is {}",
            consumers, split_k);
    const int sharers = takes_turns ? 1 : consumers;  // of a tile
    const int consumer_x = block_x / sharers, part_y = block_y / split_k;
    const GatedBy* gate = used_step<GatedBy>(finish);
    const int tile_n = gate ? block_n / 2 : block_n;  // columns of C; a gated tile has as many of B and of U
    const int tile_x = swap_ab ? tile_n : block_x, tile_y = swap_ab ? block_y : tile_n;
    const int cluster_x = swap_ab ? cluster_n : cluster_m, cluster_y = swap_ab ? cluster_m : cluster_n;
    const int cluster_ctas = cluster_m * cluster_n * split_k;
    const PartsOfK* parts = finish.template find<PartsOfK>();
    require(
        !gate || (split_k == 1 && !parts && !b_is_kn && (!swap_ab || consumer_x == block_n)),
        "a gated product has rows of k, in one part; transposed, each consumer has a tile. split_k is {}, {} "
        "consumers share a tile",
        split_k, sharers);
    Int32 num_k_blocks = cdiv(sizes.k, block_k);
    Int32 split_blocks = cdiv(num_k_blocks, parts ? ScalarArg(parts->parts * split_k) : ScalarArg(split_k));
    Int32 num_m_blocks = cdiv(sizes.m, cluster_m * block_m);  // of a cluster
    Int32 num_n_blocks = cdiv(sizes.n(), cluster_n * tile_n);
    const Batch* batch = finish.batch();
    auto ranks = tiles_of_ranks(finish, sizes, {block_m, cluster_m, cluster_ctas, consumers, dtype});
    auto part_tiles = num_m_blocks * num_n_blocks;
    auto matrix_tiles = parts ? parts->parts * part_tiles : part_tiles;
    Int32 num_tiles = batch ? batch->matrices * matrix_tiles : ranks.tiles(matrix_tiles);
    grid(min(cluster_ctas * num_tiles, sizes.ctas / cluster_ctas * cluster_ctas));
    cluster(cluster_ctas);
    warps(4 + 4 * consumers);
    Int32 rank = cluster_rank();
    // The CTA's coordinates in the cluster: x varies fastest, then y, then the part of k.
    Int32 rank_k = 0, rank_x = rank, rank_y = 0;
    if (split_k > 1) rank_k = rank / (cluster_x * cluster_y), rank_x = rank % (cluster_x * cluster_y);
    if (cluster_y > 1) rank_y = rank_x / cluster_x, rank_x = rank_x % cluster_x;
    Int32 first_tile = block_idx.x / cluster_ctas, num_clusters = grid_dim.x / cluster_ctas;
    const bool x_is_km = swap_ab ? b_is_kn : a_is_km, y_is_km = swap_ab ? a_is_km : b_is_kn;
    const MulticastShare share_x(x_is_km, tile_x, block_k, {cluster_y, cluster_x, cluster_ctas}, rank,
                                 rank_y),
        share_y(y_is_km, tile_y, block_k, {cluster_x, 1, cluster_ctas}, rank, rank_x);

    auto g_a = operand_view(a_ptr, dtype, ranks.rows_of_a(sizes.m), sizes.k, a_is_km, batch, &Batch::a);
    auto g_b = operand_view(b_ptr, dtype, sizes.n(), sizes.k, b_is_kn, batch, &Batch::b);
    const DataType c_type = finish.output_type(dtype);
    const ProductSizes& sizes_of_c = ranks.sizes_of_c(sizes);
    auto g_c = parts ? parts_view(c_ptr, batch, *parts, sizes.m, sizes.n())
                     : result_view(c_ptr, c_type, sizes_of_c.m, sizes.n(), batch);
    auto s_x = operand_stages(dtype, stages, block_x, block_k, x_is_km);
    auto s_y = operand_stages(dtype, stages, block_y, block_k, y_is_km);
    const ResultStore store(finish, g_c, c_type, sizes_of_c,
                            {consumers, min(consumer_x, tile_x), min(part_y, tile_y), swap_ab, store_stages});
    Pipeline pipe(stages, 1, (cluster_x + cluster_y - 1) * sharers);
    std::optional<BarrierArray> turns;  // a consumer's turn to multiply
    if (takes_turns) turns.emplace(mbarrier::alloc({4, 4}));
    std::optional<ClusterSum> cluster_sum;
    if (split_k > 1)
      cluster_sum.emplace(split_k, rank_k, cluster_x * cluster_y, rank_y * cluster_x + rank_x, consumers,
                          consumer_x, block_y, SourceLocation::current());
    cluster_sync();
    griddepcontrol::wait();  // the grid before may still write A and B, or read C
    griddepcontrol::launch_dependents();
    ranks.begin();

    // A CTA's share of k, by number, and its blocks: one of zeros, if none is left.
    const auto share_of = [&](const ScalarArg& part) {
      return parts ? ScalarArg(part * split_k + rank_k) : ScalarArg(rank_k);
    };
    const auto blocks_of = [&](const ScalarArg& share) {
      if (sizes.k_fills_rings || (!parts && split_k == 1)) return ScalarArg(split_blocks);
      return ScalarArg(max(1, min(split_blocks, num_k_blocks - share * split_blocks)));
    };

    if (auto producer = warp_group(0, 4)) {
      if (consumers > 1) setmaxnreg(consumers == 2 ? 40 : 32);
      if (auto warp = single_warp()) {
        for (Int32 tile : range(first_tile, num_tiles, num_clusters)) {
          const TileOfBatch at = ranks.tile(batch, tile, matrix_tiles);
          const auto [part, part_tile] = tile_of_part(parts, at.tile, part_tiles);
          const ScalarArg share = share_of(part);
          auto [m_block, n_block] = ranks.block(part_tile, num_m_blocks, num_n_blocks, swizzle_size);
          Int32 offset_x = ((swap_ab ? n_block : m_block) * cluster_x + rank_x) * tile_x;
          Int32 offset_y = ((swap_ab ? m_block : n_block) * cluster_y + rank_y) * tile_y;
          const auto source_of_a =
              ranks.source_of_a(matrix_of(batch, g_a, at.matrix), at.matrix, swap_ab ? offset_y : offset_x);
          each_k_block(sizes, blocks_of(share), [&](const ScalarArg& k_block) {
            Int32 offset_k = (share * split_blocks + k_block) * block_k;
            pipe.producer_acquire();  // empty in all CTAs that receive it
            auto s_x_stage = s_x[pipe.producer_stage];
            auto s_y_stage = s_y[pipe.producer_stage];
            if (auto thread = single_thread())
              mbarrier::arrive_and_expect_tx(pipe.producer_barrier(),
                                             s_x_stage.nbytes() + s_y_stage.nbytes());
            const auto load_x = [&](const GlobalTensor& from, const ScalarArg& row) {
              share_x.load(from, s_x_stage, row, offset_k, pipe.producer_barrier());
            };
            const auto load_y = [&](const GlobalTensor& from, const ScalarArg& row) {
              share_y.load(from, s_y_stage, row, offset_k, pipe.producer_barrier());
            };
            if (gate) {
              const auto load_half = [&](const GlobalTensor& from, int half) {
                const auto& share = swap_ab ? share_x : share_y;
                share.load(from,
                           (swap_ab ? s_x_stage : s_y_stage).slice({half * tile_n, 0}, {tile_n, block_k}),
                           swap_ab ? offset_x : offset_y, offset_k, pipe.producer_barrier());
              };
              if (swap_ab)
                source_of_a(offset_k, load_y);
              else
                source_of_a(offset_k, load_x);
              load_half(matrix_of(batch, g_b, at.matrix), 0);
              load_half(gate->view(dtype, 1, sizes.n(), sizes.k)[0], 1);
            } else if (swap_ab) {
              load_x(matrix_of(batch, g_b, at.matrix), offset_x);
              source_of_a(offset_k, load_y);
            } else {
              source_of_a(offset_k, load_x);
              load_y(matrix_of(batch, g_b, at.matrix), offset_y);
            }
            pipe.producer_advance();
          });
        }
        if (cluster_ctas > 1 && split_k == 1) pipe.producer_drain();
      }
      ranks.carry();
    }

    const auto release = [&](const Int32& stage) {
      if (auto thread = single_thread())
        arrive_at_loaders(pipe.empty_barriers[stage], cluster_x, cluster_y, rank, rank_x, rank_y);
    };
    for (int i = 0; i < consumers; ++i) {
      if (auto consumer = warp_group(4 + 4 * i, 4)) {
        if (consumers > 1) setmaxnreg(consumers == 2 ? 232 : 160);
        const int turn = takes_turns ? i : 0, row = takes_turns ? 0 : i * consumer_x;  // of the CTA's tile
        if (turn == 1) skip_tile(pipe, sizes, num_k_blocks);
        UInt32 turn_phase = turn == 0 ? mbarrier::producer_initial_phase : mbarrier::consumer_initial_phase;
        for (Int32 tile : range(turn == 0 ? ScalarArg(first_tile) : ScalarArg(first_tile + num_clusters),
                                num_tiles, takes_turns ? ScalarArg(2 * num_clusters) : num_clusters)) {
          const TileOfBatch at = ranks.tile(batch, tile, matrix_tiles);
          const auto [part, part_tile] = tile_of_part(parts, at.tile, part_tiles);
          const ScalarArg share = share_of(part);
          auto [m_block, n_block] = ranks.block(part_tile, num_m_blocks, num_n_blocks, swizzle_size);
          auto acc = wgmma::accumulator(sum_type(dtype), {consumer_x, block_y});
          Int32 last_stage = stages - 1;
          if (turns) {
            mbarrier::wait((*turns)[i], turn_phase);
            turn_phase ^= 1;
          }
          each_k_block(sizes, blocks_of(share), [&](const ScalarArg& k_block) {
            pipe.consumer_acquire();
            wgmma::fence();
            wgmma::mma(s_x[pipe.consumer_stage].slice({row, 0}, {consumer_x, block_k}),
                       s_y[pipe.consumer_stage].transpose(), acc, {.scale_d = k_block != 0});
            wgmma::commit_group();
            wgmma::wait_group(1);
            if (auto later = when(k_block != 0)) release(last_stage);
            ranks.between_blocks(k_block);
            last_stage = pipe.consumer_stage;
            pipe.consumer_advance();
          });
          // The last stage has been filled: the phases that the other consumer waits for now are its tile's.
          if (turns) arrive_each_warp((*turns)[1 - i], 4);
          wgmma::wait_group(0);
          release(last_stage);
          if (takes_turns) skip_tile(pipe, sizes, num_k_blocks);
          Int32 offset_x = ((swap_ab ? n_block : m_block) * cluster_x + rank_x) * tile_x + row;
          Int32 offset_y = ((swap_ab ? m_block : n_block) * cluster_y + rank_y) * tile_y + rank_k * part_y;
          const Int32 &offset_m = swap_ab ? offset_y : offset_x, &offset_n = swap_ab ? offset_x : offset_y;
          const ScalarArg matrix = parts ? ScalarArg(at.matrix * parts->parts + part) : at.matrix;
          if (cluster_sum)
            ranks.store(store, i, (*cluster_sum)(i, as_float(acc)), offset_m, offset_n, matrix, at, rank);
          else
            ranks.store(store, i, acc, offset_m, offset_n, matrix, at, rank);
        }
        ranks.end_of_tiles(first_tile, num_tiles, num_clusters, matrix_tiles, rank, i);
        store.wait();
      }
    }
    if (split_k > 1) {
      cluster_sync();  // no CTA exits while another may still read its sums
    }
    ranks.end();
  }

  /// Elements of k that the stages hold, where it gains something that they are filled: between the products of large
  /// tiles; else 0.
  int64_t ring() const {
    return split_k == 1 && block_m * block_n >= 128 * 192 ? int64_t{block_k} * stages : 0;
  }

 private:
  /// Skips the stages of the other consumer's tile.
  void skip_tile(Pipeline& pipe, const ProductSizes& sizes, const Int32& k_blocks) const {
    if (sizes.k_fills_rings) {
      pipe.consumer_phase ^= cast<uint32>(k_blocks / stages) & 1u;
    } else {
      Int32 at = pipe.consumer_stage + k_blocks;
      pipe.consumer_phase ^= cast<uint32>(at / stages) & 1u;
      pipe.consumer_stage = at % stages;
    }
  }
  /// Runs body(k_block) for a CTA's blocks of k; written out for each stage where they fill rings.
  template <class Body>
  void each_k_block(const ProductSizes& sizes, const ScalarArg& k_blocks, const Body& body) const {
    if (sizes.k_fills_rings) {
      assume(sizes.k % (block_k * stages * split_k) == 0);
      for (Int32 ring : range(0, k_blocks / stages))
        for (int stage = 0; stage < stages; ++stage) body(ring * stages + stage);
    } else {
      for (Int32 k_block : range(0, k_blocks)) body(k_block);
    }
  }
};

}  // namespace imbrex::kernels
