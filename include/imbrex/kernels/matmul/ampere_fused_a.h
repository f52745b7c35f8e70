// SPDX-License-Identifier: Apache-2.0
// Ampere matmul that changes A while it is loaded: C[m, n] = steps(A[m, k]) * B[n, k]^T. The fragments of A
// that come from shared memory pass through the steps of epilogue.h on their way to the tensor cores. The
// changed A never goes through global memory, as it would between two kernels; and A may be stored in fewer
// bits than it is multiplied in.
#pragma once

#include "imbrex/kernels/parts/epilogue.h"
#include "imbrex/lang.h"

namespace imbrex::kernels {

template <class... Steps>
struct AmpereMatmulFusedA {
  static constexpr const char* target = "sm_80";
  int block_m = 128, block_n = 128, block_k = 32, num_warps = 8, stages = 4;

  /// A is of `a_type`; B, C and the products of `dtype` (float16 or bfloat16).
  void operator()(Int32 m_size, int n_size, int k_size, DataType a_type, DataType dtype, Ptr<> a_ptr,
                  Ptr<> b_ptr, Ptr<> c_ptr, Epilogue<Steps...> change) const {
    static_assert(!Epilogue<Steps...>::kReducesRows, "only a part of A's rows is loaded at a time");
    grid(cdiv(n_size, block_n), cdiv(m_size, block_m));
    warps(num_warps);

    Int32 offset_m = block_m * block_idx.y;
    Int32 offset_n = block_n * block_idx.x;

    auto g_a = global_view(a_ptr, a_type, {m_size, k_size});
    auto g_b = global_view(b_ptr, dtype, {n_size, k_size});
    auto g_c = global_view(c_ptr, dtype, {m_size, n_size});
    auto s_a = shared_tensor(a_type, {stages, block_m, block_k});
    auto s_b = shared_tensor(dtype, {stages, block_n, block_k});

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
        auto loaded = load_shared(s_a[stage].slice({0, k}, {block_m, 16}));
        auto a = change(loaded.to(float32), {m_size, k_size, dtype, offset_m, offset_k + k});
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
