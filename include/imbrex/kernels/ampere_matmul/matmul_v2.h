// SPDX-License-Identifier: Apache-2.0
// Ampere matmul, step 2: tensor cores. The tiles in shared memory go to registers as the fragments that
// mma.sync takes (load_shared becomes ldmatrix, and the tiles are swizzled so that it meets no bank
// conflict); each warp multiplies its box of the tile.
#pragma once

#include "imbrex/lang.h"

namespace imbrex::kernels {

/// C[m, n] = A[m, k] * B[n, k]^T, all of `dtype` (float16 or bfloat16), summed in float32.
struct AmpereMatmulV2 {
  static constexpr const char* target = "sm_80";
  int block_m = 128, block_n = 128, block_k = 32, num_warps = 4;

  static auto space() {
    return Space<AmpereMatmulV2>()
        .choose<&AmpereMatmulV2::block_m, &AmpereMatmulV2::block_n, &AmpereMatmulV2::num_warps>(
            {{128, 128, 4}, {128, 128, 8}, {64, 64, 4}})
        .choose<&AmpereMatmulV2::block_k>({32, 64});
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
    auto s_a = shared_tensor(dtype, {block_m, block_k});
    auto s_b = shared_tensor(dtype, {block_n, block_k});

    RegisterTensor acc = zeros(float32, {block_m, block_n});
    for (Int32 offset_k : range(0, k_size, block_k)) {
      store_shared(s_a, load_global(g_a, {offset_m, offset_k}, {block_m, block_k}));
      store_shared(s_b, load_global(g_b, {offset_n, offset_k}, {block_n, block_k}));
      sync();
      for (int k = 0; k < block_k; k += 16) {  // as much as one mma.sync takes
        auto a = load_shared(s_a.slice({0, k}, {block_m, 16}));
        auto b = load_shared(s_b.slice({0, k}, {block_n, 16}));
        acc = mma(a, b.transpose(), acc);
      }
      sync();  // the tiles may be overwritten
    }
    store_global(g_c, acc.to(dtype), {offset_m, offset_n});
  }
};

}  // namespace imbrex::kernels
