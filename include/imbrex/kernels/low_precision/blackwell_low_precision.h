// SPDX-License-Identifier: Apache-2.0
// Many rows of activations times packed weights on Blackwell: C[m, n] = X[m, k] * W[n, k]^T.
//
// As in prefill_matmul.h, W gives the tensor cores their rows: a warp group converts its codes, multiplies them by their
// factors and stores them to tensor memory, in the arrangement in which they come out of the packing, while the products of
// the block before run. X comes by TMA in stages of 64 of k, W in tiles of 256; the sums, C transposed, stay in tensor
// memory.
#pragma once

#include <optional>

#include "imbrex/kernels/low_precision/group_sums.h"
#include "imbrex/kernels/parts/pipeline.h"
#include "imbrex/kernels/parts/tile_order.h"
#include "imbrex/lang.h"

namespace imbrex::kernels {

struct BlackwellLowPrecision {
  static constexpr const char* target = "sm_100a";
  static constexpr int kRowTiles = 2, kRows = kRowTiles * kWeightTileN, kBlockK = 64;
  int block_m = 256, stages = 4, weight_stages = 2;
  int swizzle_size = 8;

  static auto space() {
    using K = BlackwellLowPrecision;
    return Space<K>()
        .choose<&K::block_m, &K::stages, &K::weight_stages>({{256, 4, 2}, {128, 6, 2}, {64, 8, 3}})
        .choose<&K::swizzle_size>({8, 16});
  }

  /// As HopperLowPrecisionPrefill.
  void operator()(Int32 m_size, int n_size, int k_size, int group, int zero_points, DataType type,
                  DataType dtype, ActivationRows x_rows, Ptr<> words_ptr, Ptr<> scales_ptr, Ptr<> c_ptr,
                  MatrixStrides c_strides, PackedFinish finish) const {
    require(x_rows.dtype == dtype, "X is {}, weights become {}", x_rows.dtype, dtype);
    constexpr int kBlocks = kWeightTileK / kBlockK, kSteps = kBlockK / 16, kBuffers = 2;
    const int words_rows = 2 * type.bits(), tiles_n = cdiv(n_size, kWeightTileN),
              tiles_k = cdiv(k_size, kWeightTileK);
    const int groups = cdiv(k_size, group) * (1 + zero_points),
              groups_per_tile = std::max(1, kWeightTileK / group),
              values = groups_per_tile * (1 + zero_points);
    Int32 num_m_blocks = cdiv(m_size, block_m);
    const int num_n_blocks = cdiv(n_size, kRows);
    grid(num_m_blocks * num_n_blocks);
    warps(8);
    auto [m_block, n_block] = compute_block_coord(block_idx.x, num_m_blocks, num_n_blocks, swizzle_size);
    Int32 offset_m = m_block * block_m, tile_n = n_block * kRowTiles;

    auto g_x = x_rows.view(m_size, k_size);
    auto g_words = global_view(words_ptr, uint32, {tiles_n, tiles_k, words_rows, 256});
    auto g_scales = global_view(scales_ptr, dtype, {tiles_n, groups, kWeightTileN});
    auto g_c = matrix_view(c_ptr, dtype, c_strides, m_size, n_size);
    auto s_x = shared_tensor(dtype, {stages, block_m, kBlockK});
    auto s_words = shared_tensor(uint32, {weight_stages, kRowTiles, words_rows, 256});
    auto s_scales = shared_tensor(dtype, {weight_stages, kRowTiles, values, kWeightTileN});
    auto t_sums = tcgen05::alloc(float32, {kRows, block_m});
    auto t_weights = tcgen05::alloc(dtype, {kBuffers, kRows, kBlockK});
    Pipeline pipe(stages), weights(weight_stages, 1, 4), blocks(kBuffers);
    auto done = mbarrier::alloc(1);
    sync();

    if (auto others = warp_group(4, 4)) {
      if (auto warp = single_warp(0)) {
        for (Int32 k : range(0, tiles_k * kWeightTileK, kBlockK)) {
          pipe.producer_acquire();
          auto x = s_x[pipe.producer_stage];
          if (auto thread = single_thread())
            mbarrier::arrive_and_expect_tx(pipe.producer_barrier(), x.nbytes());
          tma::global_to_shared(g_x, x, {offset_m, k}, pipe.producer_barrier());
          pipe.producer_advance();
        }
      }
      if (auto warp = single_warp(1)) {
        for (Int32 tile_k : range(tiles_k)) {
          weights.producer_acquire();
          auto words = s_words[weights.producer_stage].reshape({kRowTiles, 1, words_rows, 256});
          auto scales = s_scales[weights.producer_stage];
          if (auto thread = single_thread())
            mbarrier::arrive_and_expect_tx(weights.producer_barrier(), words.nbytes() + scales.nbytes());
          tma::global_to_shared(g_words, words, {tile_n, tile_k, 0, 0}, weights.producer_barrier());
          tma::global_to_shared(g_scales, scales, {tile_n, first_group(tile_k, group) * (1 + zero_points), 0},
                                weights.producer_barrier());
          weights.producer_advance();
        }
      }
      if (auto warp = single_warp(2)) {
        for (Int32 block : range(tiles_k * kBlocks)) {
          blocks.consumer_acquire();
          pipe.consumer_acquire();
          tcgen05::mma(t_weights[blocks.consumer_stage], s_x[pipe.consumer_stage].transpose(), t_sums,
                       {.enable_input_d = block != 0});
          tcgen05::commit(pipe.consumer_barrier());
          tcgen05::commit(blocks.consumer_barrier());
          pipe.consumer_advance();
          blocks.consumer_advance();
        }
        tcgen05::commit(done);
      }
    }

    if (auto converters = warp_group(0, 4)) {
      // What a warp's tcgen05.st of 16 lanes by 128 bits takes of each 16 columns: the fragments that words hold.
      const layout::Layout fragments = layout::Layout::parse("[128: 4t32 2r8 2r2 8t4, 16: 2r4 4t1 2r1]");
      for (Int32 tile_k : range(tiles_k)) {
        (void)tile_k;
        weights.consumer_acquire();
        const PackedTile codes(s_words[weights.consumer_stage], 4, type, dtype);
        auto of_tile = s_scales[weights.consumer_stage].permute({1, 0, 2});
        const auto value = [&](int at) { return load_shared(of_tile[at].reshape({kRows, 1})); };
        for (int block = 0; block < kBlocks; ++block) {
          blocks.producer_acquire();
          for (int step = block * kSteps; step < (block + 1) * kSteps; ++step) {
            const int g = step * groups_per_tile / kWeightSteps;
            std::optional<RegisterValue> zero;
            if (zero_points) zero.emplace(value(2 * g + 1));
            auto a = codes.weights(step, zero) * value(g * (1 + zero_points));
            annotate_layout(a, fragments);
            tcgen05::store(t_weights[blocks.producer_stage].slice({0, 16 * (step % kSteps)}, {kRows, 16}), a);
          }
          sync();
          if (auto thread = single_thread()) mbarrier::arrive(blocks.producer_barrier());
          blocks.producer_advance();
        }
        release_words(weights.consumer_barrier());
        weights.consumer_advance();
      }
      mbarrier::wait(done, 0);
      constexpr int kSlice = 32;
      for (int row = 0; row < block_m; row += kSlice) {
        auto sums = tcgen05::load(t_sums.slice({0, row}, {kRows, kSlice})).transpose();
        store_global(g_c, finish(sums, {m_size, n_size, dtype, offset_m + row, tile_n * kWeightTileN}),
                     {offset_m + row, tile_n * kWeightTileN});
      }
    }
    sync();
    tcgen05::dealloc(t_weights);
    tcgen05::dealloc(t_sums);
  }
};

}  // namespace imbrex::kernels
