// SPDX-License-Identifier: Apache-2.0
// Blackwell matmul, step 2: a ring of `stages` shared tiles. While the tensor core works on one stage, TMA
// fills the others, so that loading and multiplying overlap.
#pragma once

#include "imbrex/lang.h"

namespace imbrex::kernels {

struct BlackwellMatmulV2 {
  static constexpr const char* target = "sm_100a";
  int block_m = 128, block_n = 64, e_block_n = 16, block_k = 16, stages = 2;

  static auto space() {
    return Space<BlackwellMatmulV2>()
        .choose<&BlackwellMatmulV2::block_m, &BlackwellMatmulV2::block_n, &BlackwellMatmulV2::e_block_n>(
            {{128, 64, 16}, {128, 128, 16}, {128, 256, 16}})
        .choose<&BlackwellMatmulV2::block_k>({16, 32, 64})
        .choose<&BlackwellMatmulV2::stages>({2, 3, 4});
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
    auto s_a = shared_tensor(float16, {stages, block_m, block_k});
    auto s_b = shared_tensor(float16, {stages, block_n, block_k});
    auto t_acc = tcgen05::alloc(float32, {block_m, block_n});

    // one barrier per stage for its loads
    auto tma_barriers = mbarrier::alloc(std::vector<int64_t>(static_cast<size_t>(stages), 1));
    auto mma_barrier = mbarrier::alloc(1);
    UInt32 tma_phase = 0;
    UInt32 mma_phase = 0;
    sync();

    const auto load_stage = [&](const ScalarArg& stage, const ScalarArg& offset_k) {
      if (auto thread = single_thread())
        mbarrier::arrive_and_expect_tx(tma_barriers[stage], s_a[stage].nbytes() + s_b[stage].nbytes());
      tma::global_to_shared(g_a, s_a[stage], {offset_m, offset_k}, tma_barriers[stage]);
      tma::global_to_shared(g_b, s_b[stage], {offset_n, offset_k}, tma_barriers[stage]);
    };

    // Prefill all stages but one. A load that no iteration waits for must not be started: it could still be
    // writing when the CTA has exited.
    if (auto warp = single_warp())
      for (int i = 0; i < stages - 1 && i * block_k < k_size; ++i) load_stage(i, i * block_k);

    Int32 current_stage = 0;
    Int32 preload_stage = stages - 1;

    // unrolled by stages, so that stage numbers become constants
    for (Int32 offset_k : range(0, k_size, block_k, {.unroll = stages})) {
      if (auto warp = single_warp()) {
        Int32 preload_k = offset_k + (stages - 1) * block_k;
        if (auto more = when(preload_k < k_size)) load_stage(preload_stage, preload_k);

        mbarrier::wait(tma_barriers[current_stage], tma_phase);
        tcgen05::mma(s_a[current_stage], s_b[current_stage].transpose(), t_acc,
                     {.enable_input_d = offset_k != 0});
        tcgen05::commit(mma_barrier);
        mbarrier::wait(mma_barrier, mma_phase);
      }
      // the next stages of the ring; a stage's phase flips each time around
      preload_stage = (preload_stage + 1) % stages;
      current_stage = (current_stage + 1) % stages;
      tma_phase ^= current_stage == 0;
      mma_phase ^= 1;
      sync();
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
