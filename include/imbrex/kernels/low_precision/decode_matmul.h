// SPDX-License-Identifier: Apache-2.0
// Few rows of activations times packed weights, as in decoding: C[m, n] = X[m, k] * W[n, k]^T with W of 1 to 8 bits and
// a factor for every group of k of a row. Bound by reading W once.
//
// W gives mma.sync its 16 rows, as the A operand in registers, and X its 8 columns: the tile of C is computed
// transposed. (wgmma with A in registers takes as long for 8 columns as for 64.) A stage has `row_tiles` tiles of 64 rows
// by `k_tiles` tiles of 256 of k, and each warp `warp_rows` rows of one of them: the sums of the tiles of k are rows of
// their own, and are added at the end, as are those of the CTAs of a cluster, which divide k. All warps run the same
// few hundred instructions: warps with code of their own would wait for instructions rather than for memory. A stage
// arrives by three TMA instructions, some stages ahead. Products of a group of k are summed as they are, and multiplied
// by its factor once, in float32.
#pragma once

#include <algorithm>
#include <vector>

#include "imbrex/kernels/low_precision/group_sums.h"
#include "imbrex/lang.h"

namespace imbrex::kernels {

struct HopperLowPrecisionDecode {
  static constexpr const char* target = "sm_90a";
  int block_m = 16, row_tiles = 2, k_tiles = 2, warp_rows = 32, stages = 2;
  int split_k = 2;        // CTAs of a cluster
  int early_weights = 1;  // loads weights while the grid before may still run: it must not write them

  static auto space() {
    using K = HopperLowPrecisionDecode;
    return Space<K>()
        .choose<&K::block_m, &K::row_tiles, &K::k_tiles, &K::warp_rows, &K::stages, &K::split_k>(
            {{16, 2, 2, 32, 2, 2},
             {16, 2, 2, 32, 3, 2},
             {16, 1, 4, 32, 3, 1},
             {16, 2, 1, 32, 4, 1},
             {16, 2, 1, 32, 4, 2},
             {16, 2, 2, 64, 3, 2},
             {16, 1, 4, 16, 3, 1},
             {8, 2, 2, 32, 3, 2},
             {8, 1, 4, 32, 3, 1},
             {8, 2, 1, 32, 4, 1},
             {32, 2, 1, 32, 3, 2},
             {64, 2, 1, 16, 2, 2}})
        .choose<&K::early_weights>({1, 0});
  }

  /// `type` is that of the weights, `dtype` that of factors and C. `zero_points`: 1 where they follow the factors of
  /// each group, else 0. Rows of X begin at multiples of 16 bytes.
  void operator()(Int32 m_size, int n_size, int k_size, int group, int zero_points, DataType type,
                  DataType dtype, ActivationRows x_rows, Ptr<> words_ptr, Ptr<> scales_ptr, Ptr<> c_ptr,
                  MatrixStrides c_strides, PackedFinish finish) const {
    const int block_n = row_tiles * kWeightTileN, part_n = block_n / split_k;
    const int tiles = row_tiles * k_tiles, rows = tiles * kWeightTileN;  // of a stage, of all its sums
    require(part_n % 8 == 0, "{} rows of sums are divided among {} CTAs: a part is not a multiple of 8",
            block_n, split_k);
    const int tiles_n = cdiv(n_size, kWeightTileN), tiles_k = cdiv(k_size, kWeightTileK);
    const int groups = cdiv(k_size, group) * (1 + zero_points), words_rows = 2 * type.bits();
    const int stage_k = k_tiles * kWeightTileK, groups_per_tile = std::max(1, kWeightTileK / group);
    const int values = groups_per_tile * (1 + zero_points);  // of a row of a tile
    warps(rows / warp_rows);
    grid(split_k * cdiv(n_size, block_n), cdiv(m_size, block_m));
    cluster(split_k);
    Int32 rank = split_k > 1 ? Int32(cluster_rank()) : Int32(0);
    Int32 tile_n = block_idx.x / split_k * row_tiles, offset_m = block_m * block_idx.y;
    const int stages_each = cdiv(tiles_k, split_k * k_tiles);
    Int32 first = rank * stages_each, end = min(first + stages_each, cdiv(tiles_k, k_tiles));
    const StageShares shares{tiles, k_tiles, warp_rows, block_m};
    Int32 warp_k = shares.first_block();

    const bool x_by_blocks = k_size % 64 == 0;  // 64 of k, those of all rows: one TMA instruction
    auto g_x = x_by_blocks ? x_rows.blocks(m_size, k_size)
                           : x_rows.strides.view(x_rows.pointer, x_rows.dtype, 1, m_size, k_size);
    auto g_words = global_view(words_ptr, uint32, {tiles_n, tiles_k, words_rows, 256});
    auto g_scales = global_view(scales_ptr, dtype, {tiles_n, groups, kWeightTileN});
    auto g_c = matrix_view(c_ptr, dtype, c_strides, m_size, n_size);
    auto s_x = shared_tensor(x_rows.dtype, {stages, stage_k / 64, block_m, 64});
    auto s_words = shared_tensor(uint32, {stages, row_tiles, k_tiles, words_rows, 256});
    auto s_scales = shared_tensor(dtype, {stages, row_tiles, k_tiles * values, kWeightTileN});
    auto arrived = mbarrier::alloc(std::vector<int64_t>(static_cast<size_t>(stages), 1));
    const SumsOfCluster parts(split_k, 32 * shares.warps(), block_m, part_n);
    parts.begin();
    griddepcontrol::launch_dependents();

    // Starts loading stage number `at` of k; one thread.
    const auto load_weights = [&](const Int32& at, const ScalarArg& stage) {
      auto words = s_words[stage];
      auto scales = s_scales[stage];
      mbarrier::arrive_and_expect_tx(arrived[stage], words.nbytes() + scales.nbytes() + s_x[stage].nbytes());
      // They are read once and need not stay in the L2 cache.
      const tma::LoadOptions once{.cache_policy = tma::CachePolicy::kEvictFirst};
      tma::global_to_shared(g_words, words, {tile_n, at * k_tiles, 0, 0}, arrived[stage], once);
      if (group <= kWeightTileK || k_tiles == 1) {
        tma::global_to_shared(g_scales, scales,
                              {tile_n, first_group(at * k_tiles, group) * (1 + zero_points), 0},
                              arrived[stage], once);
      } else {
        for (int k = 0; k < k_tiles; ++k)
          tma::global_to_shared(g_scales, scales.slice({0, k * values, 0}, {row_tiles, values, kWeightTileN}),
                                {tile_n, first_group(at * k_tiles + k, group) * (1 + zero_points), 0},
                                arrived[stage], once);
      }
    };
    const auto load_x = [&](const Int32& at, const ScalarArg& stage) {
      auto x = s_x[stage];
      const tma::LoadOptions again{.cache_policy = tma::CachePolicy::kEvictLast};  // by the other clusters
      if (x_by_blocks) {
        tma::global_to_shared(g_x, x, {at * (stage_k / 64), offset_m, 0}, arrived[stage], again);
      } else {
        for (int i = 0; i < stage_k / 64; ++i)
          tma::global_to_shared(g_x, x.slice({i, 0, 0}, {1, block_m, 64}),
                                {0, offset_m, at * stage_k + 64 * i}, arrived[stage], again);
      }
    };
    const auto fill = [&](const auto& load) {
      if (auto thread = single_thread())
        for (int i = 0; i < stages; ++i)
          if (auto has = when(first + i < end)) load(Int32(first + i), i);
    };
    if (!early_weights) griddepcontrol::wait();
    fill(load_weights);
    if (early_weights) griddepcontrol::wait();  // the grid before may still write X, or read C
    fill(load_x);
    RegisterTensor acc = zeros(float32, {rows, block_m});
    Int32 stage = 0;
    UInt32 phase = 0;
    for (Int32 at : range(first, end)) {
      mbarrier::wait(arrived[stage], phase);
      const PackedTile weights(s_words[stage].reshape({tiles, words_rows, 256}), shares.warps(), type, dtype);
      sum_stage(acc, shares, weights, s_scales[stage], s_x[stage], warp_k, group, zero_points, dtype);
      fence::proxy_async();  // what was read may be overwritten by TMA
      sync();
      if (auto has = when(at + stages < end))
        if (auto thread = single_thread()) {
          load_weights(Int32(at + stages), stage);
          load_x(Int32(at + stages), stage);
        }
      stage = select(stage == stages - 1, 0, stage + 1);
      phase ^= stage == 0;
    }

    free_shared(s_words);  // all stages have been read
    free_shared(s_x);
    auto s_sums = shared_tensor(float32, {block_m, row_tiles, k_tiles, kWeightTileN});
    store_shared(s_sums.reshape({block_m, rows}), acc.transpose());
    store_sums(s_sums, parts, rank, {m_size, n_size, dtype, offset_m, tile_n * kWeightTileN}, finish, g_c);
  }
};

}  // namespace imbrex::kernels
