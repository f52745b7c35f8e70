// SPDX-License-Identifier: Apache-2.0
// Blackwell matmul, step 0: C[m, n] = A[m, k] x B[n, k]^T in float16, accumulated in float32. The base of the
// ladder: cp.async copies tiles to shared memory, tcgen05 multiplies them into tensor memory, and an mbarrier
// signals when each product is complete. Nothing overlaps yet.
#pragma once

#include "imbrex/lang.h"

namespace imbrex::kernels {

struct BlackwellMatmulV0 {
  static constexpr const char* target = "sm_100a";
  int block_m = 128, block_n = 64, block_k = 16;

  static auto space() {
    return Space<BlackwellMatmulV0>()
        .choose<&BlackwellMatmulV0::block_m, &BlackwellMatmulV0::block_n>({{128, 64}, {128, 128}, {128, 256}})
        .choose<&BlackwellMatmulV0::block_k>({16, 32, 64});
  }

  void operator()(Int32 m_size, int n_size, int k_size, Ptr<float16> a_ptr, Ptr<float16> b_ptr,
                  Ptr<float16> c_ptr) const {
    grid(cdiv(m_size, block_m), cdiv(n_size, block_n));
    warps(4);

    // the CTA's tile of C
    Int32 offset_m = block_m * block_idx.x;
    Int32 offset_n = block_n * block_idx.y;

    auto g_a = global_view(a_ptr, float16, {m_size, k_size});
    auto g_b = global_view(b_ptr, float16, {n_size, k_size});

    auto s_a = shared_tensor(float16, {block_m, block_k});
    auto s_b = shared_tensor(float16, {block_n, block_k});

    // the accumulator in tensor memory, and the barrier that completes with each product
    auto t_acc = tcgen05::alloc(float32, {block_m, block_n});
    auto barriers = mbarrier::alloc({1});
    UInt32 phase = 0;
    sync();

    for (Int32 offset_k : range(0, k_size, block_k)) {
      copy_async(g_a, s_a, {offset_m, offset_k});
      copy_async(g_b, s_b, {offset_n, offset_k});
      copy_async_wait_all();
      sync();

      if (auto warp = single_warp()) {
        // D = A x B in the first iteration, D = A x B + D in the others
        tcgen05::mma(s_a, s_b.transpose(), t_acc, {.enable_input_d = offset_k != 0});
        tcgen05::commit(barriers[0]);
        mbarrier::wait(barriers[0], phase);
      }
      sync();
      phase ^= 1;
    }

    auto r_acc = tcgen05::load(t_acc);
    auto g_c = global_view(c_ptr, float16, {m_size, n_size});
    store_global(g_c, r_acc.to(float16), {offset_m, offset_n});

    // every warp's loads must be done before the tensor memory is freed
    sync();
    tcgen05::dealloc(t_acc);
  }
};

}  // namespace imbrex::kernels
