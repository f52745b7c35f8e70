// SPDX-License-Identifier: Apache-2.0
// Ampere matmul, step 3: a ring of `stages` tiles filled by cp.async, 16 bytes per copy, bypassing the registers.
// While the tensor cores work on one stage, the others are on their way. Two stages are double buffering.
#pragma once

#include "imbrex/lang.h"

namespace imbrex::kernels {

/// C[m, n] = A[m, k] * B[n, k]^T, all of `dtype` (float16 or bfloat16), summed in float32.
struct AmpereMatmulV3 {
  static constexpr const char* target = "sm_80";
  int block_m = 128, block_n = 128, block_k = 32, num_warps = 4, stages = 4;

  static auto space() {
    return Space<AmpereMatmulV3>()
        .choose<&AmpereMatmulV3::block_m, &AmpereMatmulV3::block_n, &AmpereMatmulV3::num_warps,
                &AmpereMatmulV3::block_k, &AmpereMatmulV3::stages>(
            {{128, 128, 4, 32, 4}, {128, 128, 4, 32, 2}, {128, 256, 8, 32, 4}, {64, 64, 4, 64, 2}});
  }

  void operator()(Int32 m_size, int n_size, int k_size, DataType dtype, Ptr<> a_ptr, Ptr<> b_ptr,
                  Ptr<> c_ptr) const {
    grid(cdiv(n_size, block_n), cdiv(m_size, block_m));
    warps(num_warps);

    Int32 offset_m = block_m * block_idx.y;
    Int32 offset_n = block_n * block_idx.x;

    auto g_a = global_view(a_ptr, dtype, {m_size, k_size});
    auto g_b = global_view(b_ptr, dtype, {n_size, k_size});
    auto g_c = global_view(c_ptr, dtype, {m_size, n_size});
    auto s_a = shared_tensor(dtype, {stages, block_m, block_k});
    auto s_b = shared_tensor(dtype, {stages, block_n, block_k});

    // One group of copies per stage. Beyond the end of A and B they write zeros, so that every iteration can
    // start a stage and the number of groups in flight is always the same.
    const auto start_stage = [&](const ScalarArg& stage, const ScalarArg& offset_k) {
      copy_async(g_a, s_a[stage], {offset_m, offset_k});
      copy_async(g_b, s_b[stage], {offset_n, offset_k});
      copy_async_commit_group();
    };
    for (int i = 0; i < stages - 1; ++i) start_stage(i, i * block_k);

    RegisterTensor acc = zeros(float32, {block_m, block_n});
    Int32 stage = 0;
    for (Int32 offset_k : range(0, k_size, block_k)) {
      copy_async_wait_group(stages - 2);
      sync();  // the stage has arrived, and all warps have finished with the one before it
      start_stage((stage + stages - 1) % stages, offset_k + (stages - 1) * block_k);
      for (int k = 0; k < block_k; k += 16) {
        auto a = load_shared(s_a[stage].slice({0, k}, {block_m, 16}));
        auto b = load_shared(s_b[stage].slice({0, k}, {block_n, 16}));
        acc = mma(a, b.transpose(), acc);
      }
      stage = (stage + 1) % stages;
    }
    copy_async_wait_all();
    store_global(g_c, acc.to(dtype), {offset_m, offset_n});
  }
};

}  // namespace imbrex::kernels
