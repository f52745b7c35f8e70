// SPDX-License-Identifier: Apache-2.0
// Many rows of activations times packed weights, as in prefill: C[m, n] = X[m, k] * W[n, k]^T, bound by the tensor cores.
//
// As in decode_matmul.h, W gives wgmma its rows, converted in registers while the products before run, so that no weight
// of 16 bits is ever in memory. Here sums have too many registers to keep a group's apart: weights are multiplied by
// their factors before the product, and rounded to X's type.
//
// Persistent clusters, whose CTAs load X for each other. X comes in stages of 64 of k, W in tiles of 256, each through a ring of
// its own. Each consumer has 64 rows of W. Where there are few rows of X, that makes too few CTAs: two consumers have the
// same rows then, and every other tile of k, and one of them adds up the sums of both.
#pragma once

#include <algorithm>
#include <optional>
#include <vector>

#include "imbrex/kernels/low_precision/group_sums.h"
#include "imbrex/kernels/parts/multicast_share.h"
#include "imbrex/kernels/parts/pipeline.h"
#include "imbrex/kernels/parts/tile_order.h"
#include "imbrex/lang.h"

namespace imbrex::kernels {

struct HopperLowPrecisionPrefill {
  static constexpr const char* target = "sm_90a";
  static constexpr int kBlockK = 64;
  int block_m = 256, stages = 4, weight_stages = 2;
  int consumers = 2, k_parts = 1, cluster_ctas = 2;  // consumers of a CTA; those that divide k, 1 or 2
  int swizzle_size = 8, ctas = 132;

  static auto space() {
    return Space<HopperLowPrecisionPrefill>()
        .choose<&HopperLowPrecisionPrefill::block_m, &HopperLowPrecisionPrefill::stages,
                &HopperLowPrecisionPrefill::weight_stages, &HopperLowPrecisionPrefill::consumers,
                &HopperLowPrecisionPrefill::k_parts, &HopperLowPrecisionPrefill::cluster_ctas>(
            {{256, 4, 2, 2, 1, 2},
             {256, 4, 3, 2, 1, 2},
             {256, 3, 3, 2, 1, 2},
             {64, 8, 3, 2, 1, 2},
             {64, 8, 3, 2, 2, 2},
             {64, 8, 4, 1, 1, 2},
             {32, 8, 3, 2, 2, 2}})
        .choose<&HopperLowPrecisionPrefill::swizzle_size>({8, 16, 4})
        .choose<&HopperLowPrecisionPrefill::ctas>({132, 128});
  }

  /// `type` is that of the weights, `dtype` that of X, factors and C. `zero_points`: 1 where they follow the factors of
  /// each group, else 0. Rows of X begin at multiples of 16 bytes, those of C with c_has_tma_rows, too: n and their distance
  /// are then whole sectors of the L2 cache, 32 bytes.
  void operator()(Int32 m_size, int n_size, int k_size, int group, int zero_points, DataType type,
                  DataType dtype, ActivationRows x_rows, Ptr<> words_ptr, Ptr<> scales_ptr, Ptr<> c_ptr,
                  MatrixStrides c_strides, PackedFinish finish, bool c_has_tma_rows) const {
    const int words_rows = 2 * type.bits();
    const int row_consumers = consumers / k_parts, block_n = row_consumers * kWeightTileN,
              slice = std::min(block_m, 64);
    constexpr int kBlocks = kWeightTileK / kBlockK, kSteps = kBlockK / 16;  // of a tile of W, of a stage of X
    require(x_rows.dtype == dtype, "X is {}, weights become {}", x_rows.dtype, dtype);
    require(k_parts == 1 || (k_parts == 2 && consumers == 2), "{} consumers divide k among {}", consumers,
            k_parts);
    // A consumer holds its last stage until its next one, behind a tile of the other's, has arrived.
    require(k_parts == 1 || stages > kBlocks + 1, "{} stages, consumers that divide k take {} in turn",
            stages, kBlocks);
    const int tiles_n = cdiv(n_size, kWeightTileN), tiles_k = cdiv(k_size, kWeightTileK);
    const int k_steps = cdiv(tiles_k, k_parts);  // of each consumer, beyond k with zeros
    const int groups = cdiv(k_size, group) * (1 + zero_points),
              groups_per_tile = std::max(1, kWeightTileK / group);
    Int32 num_m_blocks = cdiv(m_size, block_m);
    const int num_n_blocks = cdiv(n_size, cluster_ctas * block_n);  // of a cluster
    Int32 num_tiles = num_m_blocks * num_n_blocks;
    grid(min(cluster_ctas * num_tiles, ctas / cluster_ctas * cluster_ctas));
    cluster(cluster_ctas);
    warps(4 + 4 * consumers);
    Int32 rank = cluster_rank();
    const MulticastShare share_x(false, block_m, kBlockK, {cluster_ctas}, rank, rank);
    Int32 first_tile = block_idx.x / cluster_ctas, num_clusters = grid_dim.x / cluster_ctas;

    auto g_x = x_rows.view(m_size, k_size);
    auto g_words = global_view(words_ptr, uint32, {tiles_n, tiles_k, words_rows, 256});
    auto g_scales = global_view(scales_ptr, dtype, {tiles_n, groups, kWeightTileN});
    auto g_c = matrix_view(c_ptr, dtype, c_strides, m_size, n_size);
    auto s_x = shared_tensor(dtype, {stages, block_m, kBlockK});
    auto s_words = shared_tensor(uint32, {weight_stages, consumers, words_rows, 256});
    auto s_scales =
        shared_tensor(dtype, {weight_stages, consumers, groups_per_tile * (1 + zero_points), kWeightTileN});
    auto s_c = shared_tensor(dtype, {consumers, slice, kWeightTileN});
    std::optional<SharedTensor> s_sums;
    std::optional<Pipeline> parts;  // the sums of the other half of k
    if (k_parts > 1) {
      s_sums.emplace(shared_tensor(float32, {kWeightTileN, block_m}));
      parts.emplace(1, 128, 128, Scope::kDefault, SourceLocation::current());
    }
    Pipeline pipe(stages, 1, cluster_ctas * row_consumers), weights(weight_stages, 1, 4 * consumers);
    cluster_sync();
    griddepcontrol::wait();  // the grid before may still write X, or read C
    griddepcontrol::launch_dependents();

    if (auto producers = warp_group(0, 4)) {
      if (consumers > 1) setmaxnreg(40);
      if (auto warp = single_warp(0)) {
        for (Int32 tile : range(first_tile, num_tiles, num_clusters)) {
          auto [m_block, n_block] = compute_block_coord(tile, num_m_blocks, num_n_blocks, swizzle_size);
          for (Int32 k : range(0, k_steps * k_parts * kWeightTileK, kBlockK, {.unroll = stages})) {
            pipe.producer_acquire();  // empty in both CTAs
            auto x = s_x[pipe.producer_stage];
            if (auto thread = single_thread())
              mbarrier::arrive_and_expect_tx(pipe.producer_barrier(), x.nbytes());
            share_x.load(g_x, x, m_block * block_m, k, pipe.producer_barrier());  // for both CTAs
            pipe.producer_advance();
          }
        }
        pipe.producer_drain();
      }
      if (auto warp = single_warp(1)) {
        for (Int32 tile : range(first_tile, num_tiles, num_clusters)) {
          auto [m_block, n_block] = compute_block_coord(tile, num_m_blocks, num_n_blocks, swizzle_size);
          Int32 tile_n = (n_block * cluster_ctas + rank) * row_consumers;
          for (Int32 step : range(k_steps)) {
            weights.producer_acquire();
            auto words = s_words[weights.producer_stage];
            auto scales = s_scales[weights.producer_stage];
            if (auto thread = single_thread())
              mbarrier::arrive_and_expect_tx(weights.producer_barrier(), words.nbytes() + scales.nbytes());
            for (int i = 0; i < consumers; ++i) {
              Int32 tile_k = step * k_parts + i / row_consumers;
              auto tile = tile_n + i % row_consumers;
              tma::global_to_shared(g_words, words[i], {tile, tile_k, 0, 0}, weights.producer_barrier());
              tma::global_to_shared(g_scales, scales[i],
                                    {tile, first_group(tile_k, group) * (1 + zero_points), 0},
                                    weights.producer_barrier());
            }
            weights.producer_advance();
          }
        }
      }
    }

    const auto release = [&](const Int32& stage) {
      if (auto thread = single_thread())
        for (int cta = 0; cta < cluster_ctas; ++cta)
          mbarrier::arrive(remote_barrier(pipe.empty_barriers[stage], cta), {.sem = Sem::kRelaxed});
    };
    for (int i = 0; i < consumers; ++i)
      if (auto consumer = warp_group(4 + 4 * i, 4)) {
        if (consumers > 1) setmaxnreg(232);
        const int part = i / row_consumers;
        pipe.consumer_skip(part * kBlocks);
        for (Int32 tile : range(first_tile, num_tiles, num_clusters)) {
          auto [m_block, n_block] = compute_block_coord(tile, num_m_blocks, num_n_blocks, swizzle_size);
          auto acc = wgmma::accumulator(float32, {kWeightTileN, block_m});
          Int32 last_stage = stages - 1;
          for (Int32 k_step : range(k_steps)) {
            weights.consumer_acquire();
            const PackedTile codes(s_words[weights.consumer_stage].slice({i, 0, 0}, {1, words_rows, 256}), 4,
                                   type, dtype);
            std::vector<std::optional<RegisterValue>> scales(static_cast<size_t>(groups_per_tile)),
                zero = scales;
            const auto load_factors = [&](int g) {
              const auto value = [&](int at) {
                return load_shared(s_scales[weights.consumer_stage][i][at]).reshape({kWeightTileN, 1});
              };
              scales[static_cast<size_t>(g)].emplace(value(g * (1 + zero_points)));
              if (zero_points) zero[static_cast<size_t>(g)].emplace(value(2 * g + 1));
            };
            const auto release_weights = [&] {
              release_words(weights.consumer_barrier());
              weights.consumer_advance();
            };
            // Of small groups there are too many factors for the registers: each block loads its own.
            const bool has_small_groups = group < kBlockK;
            if (!has_small_groups) {
              for (int g = 0; g < groups_per_tile; ++g) load_factors(g);
              release_weights();
            }
            for (int block = 0; block < kBlocks; ++block) {
              const int block_groups = groups_per_tile / kBlocks;
              for (int g = 0; has_small_groups && g < block_groups; ++g)
                load_factors(block * block_groups + g);
              if (has_small_groups && block + 1 == kBlocks) release_weights();
              std::vector<RegisterValue> a;
              for (int step = block * kSteps; step < (block + 1) * kSteps; ++step) {
                const auto g = static_cast<size_t>(step * groups_per_tile / kWeightSteps);
                a.push_back(codes.weights(step, zero[g]) * *scales[g]);
              }
              pipe.consumer_acquire();
              wgmma::fence();
              for (int step = 0; step < kSteps; ++step)
                wgmma::mma(a[static_cast<size_t>(step)],
                           s_x[pipe.consumer_stage].slice({0, 16 * step}, {block_m, 16}).transpose(), acc,
                           {.scale_d = block + step == 0 ? ScalarArg(k_step != 0) : ScalarArg(true)});
              wgmma::commit_group();
              wgmma::wait_group(1);
              if (auto later = when(block == 0 ? ScalarArg(k_step != 0) : ScalarArg(true)))
                release(last_stage);
              last_stage = pipe.consumer_stage;
              pipe.consumer_advance();
            }
            pipe.consumer_skip((k_parts - 1) * kBlocks);
          }
          wgmma::wait_group(0);
          release(last_stage);
          if (part > 0) {
            parts->producer_acquire();
            store_shared(*s_sums, acc);
            mbarrier::arrive(parts->producer_barrier());
            parts->producer_advance();
            continue;
          }
          if (k_parts > 1) parts->consumer_acquire();

          Int32 offset_m = m_block * block_m;
          Int32 offset_n = ((n_block * cluster_ctas + rank) * row_consumers + i) * kWeightTileN;
          for (int row = 0; row < block_m; row += slice) {
            if (c_has_tma_rows)
              if (auto warp = single_warp()) tma::wait_group(0, {.read = true});
            sync();  // the slice that was here has been stored
            RegisterTensor sums = acc.slice({0, row}, {kWeightTileN, slice});
            if (k_parts > 1) sums += load_shared(s_sums->slice({0, row}, {kWeightTileN, slice}));
            store_shared(s_c[i], finish(sums.transpose(), {m_size, n_size, dtype, offset_m + row, offset_n}));
            if (c_has_tma_rows) fence::proxy_async();  // what was written becomes visible to TMA
            sync();
            if (!c_has_tma_rows) {
              store_global(g_c, load_shared(s_c[i]), {offset_m + row, offset_n});
            } else if (auto warp = single_warp()) {
              tma::shared_to_global(s_c[i], g_c, {offset_m + row, offset_n});
              tma::commit_group();
            }
          }
          if (k_parts > 1) {
            mbarrier::arrive(parts->consumer_barrier());
            parts->consumer_advance();
          }
        }
        if (c_has_tma_rows && part == 0)
          if (auto warp = single_warp()) tma::wait_group(0, {.read = true});
      }
  }
};

}  // namespace imbrex::kernels
