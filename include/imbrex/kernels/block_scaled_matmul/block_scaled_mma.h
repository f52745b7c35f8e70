// SPDX-License-Identifier: Apache-2.0
// C = A B^T of narrow floats with scale factors for blocks of k, for GeForce RTX 50 and RTX PRO Blackwell, whose tensor
// cores take operands from the registers of a warp: mma.sync with block scales. The formats are those of
// block_scaled_matmul.h. A ring of stages, filled by cp.async, holds as much as 99 KiB of shared memory allow; factors lie
// in it beside the rows that they belong to.
#pragma once

#include "imbrex/kernels/parts/tile_order.h"
#include "imbrex/lang.h"

namespace imbrex::kernels {

struct BlockScaledMmaMatmul {
  static constexpr const char* target = "sm_120a";
  int block_m = 128, block_n = 128, warps_m = 4, warps_n = 2, stages = 3, swizzle_size = 8;

  static auto space() {
    return Space<BlockScaledMmaMatmul>()
        .choose<&BlockScaledMmaMatmul::block_m, &BlockScaledMmaMatmul::block_n,
                &BlockScaledMmaMatmul::warps_m, &BlockScaledMmaMatmul::warps_n,
                &BlockScaledMmaMatmul::stages>(
            {{128, 128, 4, 2, 3}, {128, 128, 4, 4, 3}, {128, 128, 2, 4, 2}})
        .choose<&BlockScaledMmaMatmul::swizzle_size>({8, 4});
  }

  /// `element` is float8_e4m3 or float4_e2m1. Factors are laid out as imbrex/runtime/scale_factors.h says. Rows of A and B
  /// are multiples of 16 bytes.
  void operator()(Int32 m_size, int n_size, int k_size, DataType element, Ptr<> a_ptr, Ptr<> b_ptr,
                  Ptr<> scale_a_ptr, Ptr<> scale_b_ptr, Ptr<bfloat16> c_ptr) const {
    const bool is_nvf4 = element == float4_e2m1;
    const DataType scale = is_nvf4 ? float8_ue4m3 : float8_e8m0;
    const int scaled = is_nvf4 ? 16 : 32;  // elements that share a factor
    // Bytes of a row of A or B in a stage. Four bits have four times as many factors for as many bytes: more and smaller
    // stages hold what fits.
    const int row_part = is_nvf4 ? 64 : 128, depth = is_nvf4 ? 2 * stages - 1 : stages;
    constexpr int kTileRows = 128, kTileBytes = 512;  // of factors: 4 of each row
    const int block_k = 8 * row_part / element.bits(), k_tiles = block_k / (4 * scaled);
    const int row_bytes = k_size * element.bits() / 8, num_k_tiles = cdiv(k_size, 4 * scaled);

    const int num_n_blocks = cdiv(n_size, block_n);
    grid(cdiv(m_size, block_m) * num_n_blocks);
    warps(warps_m * warps_n);
    BlockCoord block = compute_block_coord(block_idx.x, cdiv(m_size, block_m), num_n_blocks, swizzle_size);
    Int32 offset_m = block_m * block.m_block, offset_n = block_n * block.n_block;

    auto g_a = global_view(a_ptr, uint8, {m_size, row_bytes});
    auto g_b = global_view(b_ptr, uint8, {n_size, row_bytes});
    auto g_scale_a = global_view(scale_a_ptr, scale, {cdiv(m_size, kTileRows), num_k_tiles, kTileBytes});
    auto g_scale_b = global_view(scale_b_ptr, scale, {cdiv(n_size, kTileRows), num_k_tiles, kTileBytes});
    auto g_c = global_view(c_ptr, {m_size, n_size});
    const int m_tiles = block_m / kTileRows, n_tiles = block_n / kTileRows;
    auto s_a = shared_tensor(uint8, {depth, block_m, row_part});
    auto s_b = shared_tensor(uint8, {depth, block_n, row_part});
    auto s_scale_a = shared_tensor(scale, {depth, m_tiles, k_tiles, kTileBytes});
    auto s_scale_b = shared_tensor(scale, {depth, n_tiles, k_tiles, kTileBytes});
    // Without padding, for which there is no room.
    annotate_layout(s_scale_a, layout::row_major({depth, m_tiles, k_tiles, kTileBytes}, 8));
    annotate_layout(s_scale_b, layout::row_major({depth, n_tiles, k_tiles, kTileBytes}, 8));

    const auto copy = [&](const ScalarArg& stage, Int32 step) {
      copy_async(g_a, s_a[stage], {offset_m, row_part * step});
      copy_async(g_b, s_b[stage], {offset_n, row_part * step});
      copy_async(g_scale_a, s_scale_a[stage], {m_tiles * block.m_block, k_tiles * step, 0});
      copy_async(g_scale_b, s_scale_b[stage], {n_tiles * block.n_block, k_tiles * step, 0});
      copy_async_commit_group();
    };
    // Of 128 rows, rows 32 apart lie side by side.
    const auto factors = [&](const SharedTensor& tiles, int count) {
      return load_shared(tiles.reshape({count, k_tiles, 32, 4, 4})
                             .permute({0, 3, 2, 1, 4})
                             .reshape({count * kTileRows, 4 * k_tiles}));
    };
    const int steps = cdiv(k_size, block_k);
    for (int i = 0; i < depth - 1; ++i) copy(i, i);
    RegisterTensor acc = zeros(float32, {block_m, block_n});
    Int32 stage = 0;
    for (Int32 step : range(0, steps, 1, {.unroll = depth})) {
      copy_async_wait_group(depth - 2);
      sync();  // this stage has arrived, and no warp reads any more what is overwritten next
      copy((stage + depth - 1) % depth, step + depth - 1);
      auto scale_a = factors(s_scale_a[stage], m_tiles);
      auto scale_b = factors(s_scale_b[stage], n_tiles).transpose();
      auto a = view(load_shared(s_a[stage]), element);
      auto b = view(load_shared(s_b[stage]), element).transpose();
      acc = mma_scaled(a, scale_a, b, scale_b, acc, {.warps_m = warps_m, .warps_n = warps_n});
      stage = (stage + 1) % depth;
    }
    copy_async_wait_all();
    store_global(g_c, acc.to(bfloat16), {offset_m, offset_n});
  }
};

}  // namespace imbrex::kernels
