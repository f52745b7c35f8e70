// SPDX-License-Identifier: Apache-2.0
// The product of decode_matmul.h with weights that go from global memory straight to registers.
//
// No weight is read by two threads, so shared memory adds nothing but a way and a barrier per stage. Here each warp has
// the words of its next tiles of k under way in registers and waits for nobody: X, or the CTA's part of k of it, and the
// factors stay in shared memory from the beginning to the end. That a CTA has a part of k and twice the rows of W halves
// what all of them read of X.
#pragma once

#include <algorithm>
#include <vector>

#include "imbrex/kernels/low_precision/group_sums.h"
#include "imbrex/lang.h"

namespace imbrex::kernels {

struct HopperLowPrecisionDirect {
  static constexpr const char* target = "sm_90a";
  int block_m = 16, row_tiles = 2, k_tiles = 2, warp_rows = 32;
  int ahead = 1;          // tiles of k of a warp that are under way
  int split_k = 2;        // CTAs of a cluster
  int early_weights = 1;  // loads weights while the grid before may still run: it must not write them

  static auto space() {
    using K = HopperLowPrecisionDirect;
    return Space<K>()
        .choose<&K::block_m, &K::row_tiles, &K::k_tiles, &K::warp_rows, &K::ahead, &K::split_k>(
            {{16, 2, 2, 32, 1, 2},
             {16, 2, 2, 32, 2, 2},
             {16, 2, 2, 16, 1, 2},
             {8, 1, 4, 32, 1, 1},
             {8, 1, 8, 32, 1, 1},
             {8, 2, 2, 32, 1, 2}})
        .choose<&K::early_weights>({1, 0});
  }

  /// As HopperLowPrecisionDecode, for groups of at most 256.
  void operator()(Int32 m_size, int n_size, int k_size, int group, int zero_points, DataType type,
                  DataType dtype, ActivationRows x_rows, Ptr<> words_ptr, Ptr<> scales_ptr, Ptr<> c_ptr,
                  MatrixStrides c_strides, PackedFinish finish) const {
    const int block_n = row_tiles * kWeightTileN, part_n = block_n / split_k;
    const int tiles = row_tiles * k_tiles, rows = tiles * kWeightTileN;
    require(part_n % 8 == 0, "{} rows of sums are divided among {} CTAs: a part is not a multiple of 8",
            block_n, split_k);
    require(group <= kWeightTileK, "groups of {} are longer than {}", group, kWeightTileK);
    const int tiles_n = cdiv(n_size, kWeightTileN), tiles_k = cdiv(k_size, kWeightTileK);
    const int values = kWeightTileK / group * (1 + zero_points);  // of a row of a tile
    const int groups = cdiv(k_size, group) * (1 + zero_points), bits = type.bits();
    const int turns = cdiv(tiles_k, split_k * k_tiles);  // of each warp
    const int stage_k = k_tiles * kWeightTileK, sixteens = warp_rows / 16;
    const StageShares shares{tiles, k_tiles, warp_rows, block_m};
    warps(shares.warps());
    grid(split_k * cdiv(n_size, block_n), cdiv(m_size, block_m));
    cluster(split_k);
    Int32 rank = split_k > 1 ? Int32(cluster_rank()) : Int32(0);
    Int32 tile_n = block_idx.x / split_k * row_tiles, offset_m = block_m * block_idx.y;
    Int32 first_tile = rank * (turns * k_tiles), warp_k = shares.first_block();

    const bool x_by_blocks = k_size % 64 == 0;  // 64 of k, those of all rows: one TMA instruction
    auto g_x = x_by_blocks ? x_rows.blocks(m_size, k_size)
                           : x_rows.strides.view(x_rows.pointer, x_rows.dtype, 1, m_size, k_size);
    auto g_scales = global_view(scales_ptr, dtype, {tiles_n, groups, kWeightTileN});
    auto g_c = matrix_view(c_ptr, dtype, c_strides, m_size, n_size);
    auto s_x = shared_tensor(x_rows.dtype, {turns * stage_k / 64, block_m, 64});
    auto s_scales = shared_tensor(dtype, {row_tiles, turns * k_tiles * values, kWeightTileN});
    auto arrived = mbarrier::alloc(std::vector<int64_t>(static_cast<size_t>(turns), 1));
    const SumsOfCluster parts(split_k, 32 * shares.warps(), block_m, part_n);
    parts.begin();
    griddepcontrol::launch_dependents();

    // Of each plane: [tile of rows, tile of k, warp of the tile, lane, sixteen rows of the warp, word].
    const int in_tile = 4 / sixteens;
    const Shape plane_shape{32 * shares.warps(), 4 * sixteens};
    auto g_words = global_view(words_ptr, uint32, {tiles_n, tiles_k, bits, in_tile, 32, sixteens, 4},
                               {tiles_k * bits * 512, bits * 512, 512, sixteens * 128, 4, 128, 1});
    const auto load_plane = [&](const Int32& tile_k, int plane) {
      return load_global(g_words, {tile_n, tile_k, plane, 0, 0, 0, 0},
                         {row_tiles, k_tiles, 1, in_tile, 32, sixteens, 4},
                         {.l1_priority = L1Priority::kNoAllocate, .cache_policy = CachePolicy::kEvictFirst})
          .reshape(plane_shape);
    };
    // Beyond the last turn nothing is read.
    const auto tile_of = [&](const Int32& turn) {
      return Int32(select(turn < turns, first_tile + turn * k_tiles, tiles_k));
    };
    if (!early_weights) griddepcontrol::wait();
    std::vector<std::vector<RegisterTensor>> coming;  // by turn, then plane
    for (int i = 0; i < ahead; ++i) {
      std::vector<RegisterTensor>& planes = coming.emplace_back();
      const Int32 tile_k = tile_of(i);
      for (int plane = 0; plane < bits; ++plane) planes.emplace_back(load_plane(tile_k, plane));
    }
    if (early_weights) griddepcontrol::wait();  // the grid before may still write X, or read C
    if (auto thread = single_thread()) {
      const tma::LoadOptions again{.cache_policy = tma::CachePolicy::kEvictLast};  // by the other clusters
      for (int turn = 0; turn < turns; ++turn) {
        const int first_block = turn * stage_k / 64;
        auto x = s_x.slice({first_block, 0, 0}, {stage_k / 64, block_m, 64});
        mbarrier::arrive_and_expect_tx(arrived[turn], x.nbytes() + (turn == 0 ? s_scales.nbytes() : 0));
        if (turn == 0)
          tma::global_to_shared(g_scales, s_scales, {tile_n, first_tile * values, 0}, arrived[0]);
        auto offset_k = first_tile * kWeightTileK + turn * stage_k;
        if (x_by_blocks) {
          tma::global_to_shared(g_x, x, {offset_k / 64, offset_m, 0}, arrived[turn], again);
        } else {
          for (int i = 0; i < stage_k / 64; ++i)
            tma::global_to_shared(g_x, x.slice({i, 0, 0}, {1, block_m, 64}), {0, offset_m, offset_k + 64 * i},
                                  arrived[turn], again);
        }
      }
    }

    RegisterTensor acc = zeros(float32, {rows, block_m});
    for (Int32 turn : range(turns)) {
      std::vector<RegisterValue> planes;
      for (const RegisterTensor& plane : coming[0]) planes.push_back(plane.reshape(plane_shape));
      for (int i = 0; i + 1 < ahead; ++i)
        for (size_t plane = 0; plane < planes.size(); ++plane)
          coming[static_cast<size_t>(i)][plane] = coming[static_cast<size_t>(i) + 1][plane];
      const Int32 tile_k = tile_of(turn + ahead);
      for (int plane = 0; plane < bits; ++plane)
        coming.back()[static_cast<size_t>(plane)] = load_plane(tile_k, plane);
      mbarrier::wait(arrived[turn], 0);
      sum_stage(
          acc, shares, PackedTile(planes, rows, type, dtype),
          s_scales.slice({0, turn * (k_tiles * values), 0}, {row_tiles, k_tiles * values, kWeightTileN}),
          s_x.slice({turn * (stage_k / 64), 0, 0}, {stage_k / 64, block_m, 64}), warp_k, group, zero_points,
          dtype);
    }

    auto s_sums = shared_tensor(float32, {block_m, row_tiles, k_tiles, kWeightTileN});
    store_shared(s_sums.reshape({block_m, rows}), acc.transpose());
    store_sums(s_sums, parts, rank, {m_size, n_size, dtype, offset_m, tile_n * kWeightTileN}, finish, g_c);
  }
};

}  // namespace imbrex::kernels
