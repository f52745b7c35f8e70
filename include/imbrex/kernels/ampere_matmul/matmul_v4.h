// SPDX-License-Identifier: Apache-2.0
// Ampere matmul, step 4: nothing waits. The fragments of the next 16 columns of k are loaded while the tensor
// cores multiply the current ones, across stage boundaries too; every such step copies an equal part of a
// later stage, so that traffic to shared memory is even; CTAs take tiles in an order that keeps what they
// share in the L2 cache; the result goes through shared memory and is stored in whole lines; and tiles and
// stages are tuned.
#pragma once

#include "imbrex/kernels/parts/epilogue.h"
#include "imbrex/kernels/parts/tile_order.h"
#include "imbrex/lang.h"

namespace imbrex::kernels {

/// C[m, n] = steps(A[m, k] * B[n, k]^T), see epilogue.h; A and B of `dtype` (float16 or bfloat16), summed in
/// float32.
template <class... Steps>
struct AmpereMatmulV4 {
  static constexpr const char* target = "sm_80";
  static constexpr bool kPlain = sizeof...(Steps) == 0;  // steps need registers: shorter stages leave some
  int block_m = 128, block_n = 256, warps_m = 2, warps_n = 4;
  int block_k = kPlain ? 64 : 32, stages = kPlain ? 3 : 4, swizzle_size = 8;

  static auto space() {
    return Space<AmpereMatmulV4>()
        .template choose<&AmpereMatmulV4::block_m, &AmpereMatmulV4::block_n, &AmpereMatmulV4::warps_m,
                         &AmpereMatmulV4::warps_n>({{128, 256, 2, 4},
                                                    {256, 128, 4, 2},
                                                    {128, 128, 2, 2},
                                                    {64, 64, 2, 2},
                                                    {128, 64, 2, 2},
                                                    {64, 128, 2, 2}})
        .template choose<&AmpereMatmulV4::block_k, &AmpereMatmulV4::stages>(
            {{kPlain ? 64 : 32, kPlain ? 3 : 4}, {kPlain ? 32 : 64, kPlain ? 4 : 3}, {32, 6}})
        .template choose<&AmpereMatmulV4::swizzle_size>({8, 4, 16});
  }

  void operator()(Int32 m_size, int n_size, int k_size, DataType dtype, Ptr<> a_ptr, Ptr<> b_ptr, Ptr<> c_ptr,
                  Epilogue<Steps...> finish) const {
    finish.check(n_size, block_n);
    const int num_n_blocks = cdiv(n_size, block_n);
    grid(cdiv(m_size, block_m) * num_n_blocks);
    warps(warps_m * warps_n);

    BlockCoord block = compute_block_coord(block_idx.x, cdiv(m_size, block_m), num_n_blocks, swizzle_size);
    Int32 offset_m = block_m * block.m_block;
    Int32 offset_n = block_n * block.n_block;

    auto g_a = global_view(a_ptr, dtype, {m_size, k_size});
    auto g_b = global_view(b_ptr, dtype, {n_size, k_size});
    const DataType c_type = finish.output_type(dtype);
    auto g_c = global_view(c_ptr, c_type, {m_size, n_size});
    auto ring = shared_tensor(dtype, {stages, block_m + block_n, block_k});  // rows of A above rows of B
    const auto s_a = [&](const ScalarArg& stage) { return ring[stage].slice({0, 0}, {block_m, block_k}); };
    const auto s_b = [&](const ScalarArg& stage) {
      return ring[stage].slice({block_m, 0}, {block_n, block_k});
    };

    const int steps = block_k / 16;
    const auto copy_part = [&](int part, const ScalarArg& stage, const ScalarArg& offset_k) {
      const int rows_a = block_m / steps, rows_b = block_n / steps;
      copy_async(g_a, s_a(stage).slice({part * rows_a, 0}, {rows_a, block_k}),
                 {offset_m + part * rows_a, offset_k});
      copy_async(g_b, s_b(stage).slice({part * rows_b, 0}, {rows_b, block_k}),
                 {offset_n + part * rows_b, offset_k});
    };
    for (int i = 0; i < stages - 1; ++i) {
      for (int part = 0; part < steps; ++part) copy_part(part, i, i * block_k);
      copy_async_commit_group();
    }
    copy_part(0, stages - 1, (stages - 1) * block_k);

    const auto load_a = [&](const ScalarArg& stage, int k) {
      return load_shared(s_a(stage).slice({0, k}, {block_m, 16}));
    };
    const auto load_b = [&](const ScalarArg& stage, int k) {
      return load_shared(s_b(stage).slice({0, k}, {block_n, 16})).transpose();
    };
    copy_async_wait_group(stages - 2);
    sync();
    RegisterTensor a = load_a(0, 0);
    RegisterTensor b = load_b(0, 0);
    RegisterTensor acc = zeros(float32, {block_m, block_n});

    Int32 stage = 0;
    // unrolled by stages, so that stage numbers become constants
    for (Int32 offset_k : range(0, k_size, block_k, {.unroll = stages})) {
      Int32 next_stage = (stage + 1) % stages;
      for (int step = 0; step < steps; ++step) {
        const bool is_last = step + 1 == steps;
        if (is_last) {
          copy_async_commit_group();
          copy_async_wait_group(stages - 2);
          sync();  // the next stage has arrived, and no warp reads this one any more
        }
        auto next_a = is_last ? load_a(next_stage, 0) : load_a(stage, 16 * (step + 1));
        auto next_b = is_last ? load_b(next_stage, 0) : load_b(stage, 16 * (step + 1));
        if (is_last)
          copy_part(0, stage, offset_k + stages * block_k);
        else
          copy_part(step + 1, (stage + stages - 1) % stages, offset_k + (stages - 1) * block_k);
        acc = mma(a, b, acc, {.warps_m = warps_m, .warps_n = warps_n});
        a = next_a;
        b = next_b;
      }
      stage = next_stage;
    }
    copy_async_wait_all();
    sync();

    const ScalarArg first_column = num_n_blocks == 1 ? ScalarArg(0) : ScalarArg(offset_n);
    auto tile = finish(acc, {m_size, n_size, c_type, offset_m, first_column});
    if (c_type != dtype) {  // does not fit the ring
      store_global(g_c, tile, {offset_m, offset_n});
      return;
    }
    // registers -> shared memory, in panels of block_k columns one above the other -> global memory
    const int panels = block_n / block_k;
    auto rows = ring.reshape({stages * (block_m + block_n), block_k});
    store_shared(
        rows.slice({0, 0}, {panels * block_m, block_k}),
        tile.reshape({block_m, panels, block_k}).permute({1, 0, 2}).reshape({panels * block_m, block_k}));
    sync();
    for (int i = 0; i < panels; ++i)
      store_global(g_c, load_shared(rows.slice({i * block_m, 0}, {block_m, block_k})),
                   {offset_m, offset_n + i * block_k});
  }
};

}  // namespace imbrex::kernels
