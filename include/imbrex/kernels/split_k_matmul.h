// SPDX-License-Identifier: Apache-2.0
// A product whose inner dimension is split among CTAs: for few rows and columns and a long k, where the tiles of the
// result alone would leave most of the GPU idle. The CTAs of one tile add their sums in float32, in the order of their
// parts of k, so that the result does not depend on who is first: a semaphore per tile says whose turn it is. The last
// one writes the result and sets the semaphore to 0 for the next launch.
#pragma once

#include "imbrex/lang.h"

namespace imbrex::kernels {

/// C[m, n] = A[m, k] * B[n, k]^T, all of `dtype` (float16 or bfloat16), summed in float32.
struct SplitKMatmul {
  static constexpr const char* target = "sm_80";
  int block_m = 64, block_n = 64, block_k = 64, num_warps = 4, stages = 3, parts = 4;

  static auto space() {
    return Space<SplitKMatmul>()
        .choose<&SplitKMatmul::block_m, &SplitKMatmul::block_n, &SplitKMatmul::num_warps,
                &SplitKMatmul::stages>({{64, 64, 4, 3}, {16, 128, 4, 4}, {128, 128, 8, 3}})
        .choose<&SplitKMatmul::parts>({4, 2, 8, 16});
  }

  /// `sums` is [m, n], of any contents; `turns` has an element per tile, cdiv(m, block_m) * cdiv(n, block_n), which are
  /// zero, and are so again at the end.
  void operator()(Int32 m_size, int n_size, int k_size, DataType dtype, Ptr<> a_ptr, Ptr<> b_ptr,
                  Ptr<float32> sum_ptr, Ptr<int32> turn_ptr, Ptr<> c_ptr) const {
    // Parts vary slowest: a CTA waits for those of lower parts, which come before it in the grid.
    grid(cdiv(n_size, block_n), cdiv(m_size, block_m), parts);
    warps(num_warps);
    Int32 offset_m = block_m * block_idx.y;
    Int32 offset_n = block_n * block_idx.x;
    Int32 part = block_idx.z;
    const int64_t k_per_part = cdiv(cdiv(k_size, parts), block_k) * block_k;
    Int32 begin_k = k_per_part * part;

    auto g_a = global_view(a_ptr, dtype, {m_size, k_size});
    auto g_b = global_view(b_ptr, dtype, {n_size, k_size});
    auto g_sums = global_view(sum_ptr, {m_size, n_size});
    auto g_c = global_view(c_ptr, dtype, {m_size, n_size});
    auto turn = global_view(turn_ptr, {grid_dim.x * grid_dim.y})[block_idx.y * grid_dim.x + block_idx.x];
    auto s_a = shared_tensor(dtype, {stages, block_m, block_k});
    auto s_b = shared_tensor(dtype, {stages, block_n, block_k});

    const auto start_stage = [&](const ScalarArg& stage, const ScalarArg& offset_k) {
      copy_async(g_a, s_a[stage], {offset_m, offset_k});
      copy_async(g_b, s_b[stage], {offset_n, offset_k});
      copy_async_commit_group();
    };
    for (int i = 0; i < stages - 1; ++i) start_stage(i, begin_k + i * block_k);

    RegisterTensor acc = zeros(float32, {block_m, block_n});
    Int32 stage = 0;
    for (Int32 offset_k : range(begin_k, min(begin_k + k_per_part, k_size), block_k)) {
      copy_async_wait_group(stages - 2);
      sync_threads();
      start_stage((stage + stages - 1) % stages, offset_k + (stages - 1) * block_k);
      for (int k = 0; k < block_k; k += 16) {
        auto a = load_shared(s_a[stage].slice({0, k}, {block_m, 16}));
        auto b = load_shared(s_b[stage].slice({0, k}, {block_n, 16}));
        acc = mma(a, b.transpose(), acc);
      }
      stage = (stage + 1) % stages;
    }
    copy_async_wait_all();

    semaphore::wait(turn, part);
    if (auto later = when(part > 0)) acc += load_global(g_sums, {offset_m, offset_n}, {block_m, block_n});
    if (auto last = when(part == parts - 1)) {
      store_global(g_c, acc.to(dtype), {offset_m, offset_n});
    }
    if (auto others = otherwise()) {
      store_global(g_sums, acc, {offset_m, offset_n});
    }
    semaphore::release(turn, select(part == parts - 1, 0, part + 1));
  }
};

}  // namespace imbrex::kernels
