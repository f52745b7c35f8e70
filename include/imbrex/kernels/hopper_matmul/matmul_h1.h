// SPDX-License-Identifier: Apache-2.0
// Hopper matmul, step 1: a larger tile. Each loaded element of A is multiplied with twice as many of B and
// vice versa, so that a product costs half the loads; and two products of 64 rows share their columns of B.
#pragma once

#include "imbrex/lang.h"

namespace imbrex::kernels {

struct HopperMatmulH1 {
  static constexpr const char* target = "sm_90a";
  int block_m = 128, block_n = 128, block_k = 64;

  static auto space() {
    return Space<HopperMatmulH1>()
        .choose<&HopperMatmulH1::block_m, &HopperMatmulH1::block_n>({{128, 128}, {128, 64}, {192, 96}})
        .choose<&HopperMatmulH1::block_k>({64, 32});
  }

  void operator()(Int32 m_size, int n_size, int k_size, DataType dtype, Ptr<> a_ptr, Ptr<> b_ptr,
                  Ptr<> c_ptr) const {
    grid(cdiv(m_size, block_m), cdiv(n_size, block_n));
    warps(4);
    Int32 offset_m = block_m * block_idx.x;
    Int32 offset_n = block_n * block_idx.y;

    auto g_a = global_view(a_ptr, dtype, {m_size, k_size});
    auto g_b = global_view(b_ptr, dtype, {n_size, k_size});
    auto g_c = global_view(c_ptr, dtype, {m_size, n_size});
    auto s_a = shared_tensor(dtype, {block_m, block_k});
    auto s_b = shared_tensor(dtype, {block_n, block_k});
    auto loaded = mbarrier::alloc(1);
    UInt32 phase = 0;
    sync();

    auto acc = wgmma::accumulator(float32, {block_m, block_n});
    for (Int32 offset_k : range(0, k_size, block_k)) {
      if (auto warp = single_warp()) {
        if (auto thread = single_thread())
          mbarrier::arrive_and_expect_tx(loaded, s_a.nbytes() + s_b.nbytes());
        tma::global_to_shared(g_a, s_a, {offset_m, offset_k}, loaded);
        tma::global_to_shared(g_b, s_b, {offset_n, offset_k}, loaded);
      }
      mbarrier::wait(loaded, phase);
      phase ^= 1u;

      wgmma::fence();
      wgmma::mma(s_a, s_b.transpose(), acc, {.scale_d = offset_k != 0});
      wgmma::commit_group();
      wgmma::wait_group(0);
      sync();  // all warps have finished with the stage
    }
    store_global(g_c, acc.to(dtype), {offset_m, offset_n});
  }
};

}  // namespace imbrex::kernels
