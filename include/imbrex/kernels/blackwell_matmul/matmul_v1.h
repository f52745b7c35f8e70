// SPDX-License-Identifier: Apache-2.0
// Blackwell matmul, step 1: TMA. One thread starts the copy of a whole tile and a barrier counts its bytes,
// so that no thread spends instructions on addresses; the result leaves by TMA too, in slices through shared
// memory. Still nothing overlaps.
#pragma once

#include "imbrex/lang.h"

namespace imbrex::kernels {

struct BlackwellMatmulV1 {
  static constexpr const char* target = "sm_100a";
  int block_m = 128, block_n = 64, e_block_n = 16, block_k = 16;

  static auto space() {
    return Space<BlackwellMatmulV1>()
        .choose<&BlackwellMatmulV1::block_m, &BlackwellMatmulV1::block_n, &BlackwellMatmulV1::e_block_n>(
            {{128, 64, 16}, {128, 128, 16}, {128, 256, 16}})
        .choose<&BlackwellMatmulV1::block_k>({16, 32, 64});
  }

  void operator()(Int32 m_size, int n_size, int k_size, Ptr<float16> a_ptr, Ptr<float16> b_ptr,
                  Ptr<float16> c_ptr) const {
    grid(cdiv(m_size, block_m), cdiv(n_size, block_n));
    warps(4);

    Int32 offset_m = block_m * block_idx.x;
    Int32 offset_n = block_n * block_idx.y;

    auto g_a = global_view(a_ptr, float16, {m_size, k_size});
    auto g_b = global_view(b_ptr, float16, {n_size, k_size});
    auto g_c = global_view(c_ptr, float16, {m_size, n_size});
    auto s_a = shared_tensor(float16, {block_m, block_k});
    auto s_b = shared_tensor(float16, {block_n, block_k});
    auto t_acc = tcgen05::alloc(float32, {block_m, block_n});

    auto tma_barrier = mbarrier::alloc(1);
    auto mma_barrier = mbarrier::alloc(1);
    UInt32 phase = 0;
    sync();

    for (Int32 offset_k : range(0, k_size, block_k)) {
      if (auto warp = single_warp()) {
        // one arrival completes the phase once the bytes of both tiles are there as well
        if (auto thread = single_thread())
          mbarrier::arrive_and_expect_tx(tma_barrier, s_a.nbytes() + s_b.nbytes());
        tma::global_to_shared(g_a, s_a, {offset_m, offset_k}, tma_barrier);
        tma::global_to_shared(g_b, s_b, {offset_n, offset_k}, tma_barrier);
        mbarrier::wait(tma_barrier, phase);

        tcgen05::mma(s_a, s_b.transpose(), t_acc, {.enable_input_d = offset_k != 0});
        tcgen05::commit(mma_barrier);
        mbarrier::wait(mma_barrier, phase);
      }
      sync();
      phase ^= 1;
    }

    // tensor memory -> registers -> shared memory -> global memory, e_block_n columns at a time
    auto s_c = shared_tensor(float16, {block_m, e_block_n});
    for (Int32 e_offset_n : range(0, block_n, e_block_n)) {
      auto r_acc = tcgen05::load(t_acc.slice({0, e_offset_n}, {block_m, e_block_n}));
      tcgen05::wait_load();
      store_shared(s_c, r_acc.to(float16));
      fence::proxy_async();  // what was written becomes visible to TMA
      sync();
      if (auto warp = single_warp()) {
        tma::shared_to_global(s_c, g_c, {offset_m, offset_n + e_offset_n});
        tma::commit_group();
        tma::wait_group(0, {.read = true});  // s_c may be written again
      }
      sync();
    }

    tcgen05::dealloc(t_acc);
  }
};

}  // namespace imbrex::kernels
