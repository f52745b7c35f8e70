// SPDX-License-Identifier: Apache-2.0
// Ampere matmul, step 0: one thread per element of C. For every product it loads an element of A and one of B
// from global memory; only the caches reduce the traffic.
#pragma once

#include "imbrex/lang.h"

namespace imbrex::kernels {

/// C[m, n] = A[m, k] * B[n, k]^T, all of `dtype` (float16 or bfloat16), summed in float32.
struct AmpereMatmulV0 {
  static constexpr const char* target = "sm_80";
  int block_m = 8, block_n = 32;  // one element for each of 256 threads

  void operator()(Int32 m_size, int n_size, int k_size, DataType dtype, Ptr<> a_ptr, Ptr<> b_ptr,
                  Ptr<> c_ptr) const {
    grid(cdiv(n_size, block_n), cdiv(m_size, block_m));
    warps(block_m * block_n / 32);

    Int32 offset_m = block_m * block_idx.y;
    Int32 offset_n = block_n * block_idx.x;

    auto g_a = global_view(a_ptr, dtype, {m_size, k_size});
    auto g_b = global_view(b_ptr, dtype, {n_size, k_size});
    auto g_c = global_view(c_ptr, dtype, {m_size, n_size});

    RegisterTensor acc = zeros(float32, {block_m, block_n});
    for (Int32 k : range(0, k_size, 1)) {
      auto a = load_global(g_a, {offset_m, k}, {block_m, 1});
      auto b = load_global(g_b, {offset_n, k}, {block_n, 1});
      acc += a.to(float32) * b.transpose().to(float32);  // a column times a row
    }
    store_global(g_c, acc.to(dtype), {offset_m, offset_n});
  }
};

}  // namespace imbrex::kernels
