// SPDX-License-Identifier: Apache-2.0
// Packed weights times activations on every target from sm_80 on: C[m, n] = X[m, k] * W[n, k]^T with W of 1 to 8 bits and a
// factor for every group of k of a row.
//
// The products are those of decode_matmul.h, for few rows and, in tiles of 64 rows, for many. Stages arrive by
// cp.async; a CTA has all of k.
#pragma once

#include "imbrex/kernels/low_precision/group_sums.h"
#include "imbrex/kernels/parts/tile_order.h"
#include "imbrex/lang.h"

namespace imbrex::kernels {

struct AmpereLowPrecision {
  static constexpr const char* target = "sm_80";
  int block_m = 16, row_tiles = 1, k_tiles = 2, warp_rows = 32, stages = 3;
  int swizzle_size = 8;

  static auto space() {
    using K = AmpereLowPrecision;
    return Space<K>()
        .choose<&K::block_m, &K::row_tiles, &K::k_tiles, &K::warp_rows, &K::stages>({{16, 1, 2, 32, 3},
                                                                                     {16, 1, 2, 16, 3},
                                                                                     {16, 1, 4, 32, 2},
                                                                                     {8, 1, 2, 32, 4},
                                                                                     {32, 1, 2, 16, 2},
                                                                                     {64, 2, 1, 16, 2},
                                                                                     {64, 4, 1, 32, 2}})
        .choose<&K::swizzle_size>({8, 16});
  }

  /// As HopperLowPrecisionDecode.
  void operator()(Int32 m_size, int n_size, int k_size, int group, int zero_points, DataType type,
                  DataType dtype, ActivationRows x_rows, Ptr<> words_ptr, Ptr<> scales_ptr, Ptr<> c_ptr,
                  MatrixStrides c_strides, PackedFinish finish) const {
    const int tiles = row_tiles * k_tiles, block_n = row_tiles * kWeightTileN,
              stage_k = k_tiles * kWeightTileK;
    const StageShares shares{tiles, k_tiles, warp_rows, block_m};
    const int tiles_n = cdiv(n_size, kWeightTileN), tiles_k = cdiv(k_size, kWeightTileK),
              words_rows = 2 * type.bits();
    const int groups = cdiv(k_size, group) * (1 + zero_points),
              groups_per_tile = std::max(1, kWeightTileK / group),
              values = groups_per_tile * (1 + zero_points);
    const int num_n_blocks = cdiv(n_size, block_n);
    Int32 num_m_blocks = cdiv(m_size, block_m);
    warps(shares.warps());
    grid(num_m_blocks * num_n_blocks);
    auto [m_block, n_block] = compute_block_coord(block_idx.x, num_m_blocks, num_n_blocks, swizzle_size);
    Int32 offset_m = m_block * block_m, tile_n = n_block * row_tiles, warp_k = shares.first_block();

    auto g_x = x_rows.view(m_size, k_size);
    auto g_words = global_view(words_ptr, uint32, {tiles_n, tiles_k, words_rows, 256});
    auto g_scales = global_view(scales_ptr, dtype, {tiles_n, groups, kWeightTileN});
    auto g_c = matrix_view(c_ptr, dtype, c_strides, m_size, n_size);
    auto s_x = shared_tensor(x_rows.dtype, {stages, stage_k / 64, block_m, 64});
    auto s_words = shared_tensor(uint32, {stages, row_tiles, k_tiles, words_rows, 256});
    auto s_scales = shared_tensor(dtype, {stages, row_tiles, k_tiles * values, kWeightTileN});

    // Beyond the ends of k and of the rows there are zeros.
    const auto load = [&](const Int32& at, const ScalarArg& stage) {
      copy_async(g_words, s_words[stage], {tile_n, at * k_tiles, 0, 0});
      auto scales = s_scales[stage];
      for (int k = 0; k < k_tiles; ++k)
        copy_async(g_scales, scales.slice({0, k * values, 0}, {row_tiles, values, kWeightTileN}),
                   {tile_n, first_group(at * k_tiles + k, group) * (1 + zero_points), 0});
      for (int i = 0; i < stage_k / 64; ++i)
        copy_async(g_x, s_x[stage][i], {offset_m, at * stage_k + 64 * i});
      copy_async_commit_group();
    };
    for (int i = 0; i < stages - 1; ++i) load(i, i);
    RegisterTensor acc = zeros(float32, {shares.rows(), block_m});
    Int32 stage = 0;
    for (Int32 at : range(cdiv(tiles_k, k_tiles))) {
      copy_async_wait_group(stages - 2);
      sync();  // this stage has arrived, and no warp reads the one before any more
      load(at + stages - 1, select(stage == 0, stages - 1, stage - 1));
      const PackedTile weights(s_words[stage].reshape({tiles, words_rows, 256}), shares.warps(), type, dtype);
      sum_stage(acc, shares, weights, s_scales[stage], s_x[stage], warp_k, group, zero_points, dtype);
      stage = select(stage == stages - 1, 0, stage + 1);
    }
    copy_async_wait_all();
    sync();

    free_shared(s_words);
    free_shared(s_x);
    auto s_sums = shared_tensor(float32, {block_m, row_tiles, k_tiles, kWeightTileN});
    store_shared(s_sums.reshape({block_m, shares.rows()}), acc.transpose());
    sync();
    auto sum =
        finish(sum_of_tiles(s_sums, 0, block_n), {m_size, n_size, dtype, offset_m, tile_n * kWeightTileN});
    store_global(g_c, sum, {offset_m, tile_n * kWeightTileN});
  }
};

}  // namespace imbrex::kernels
