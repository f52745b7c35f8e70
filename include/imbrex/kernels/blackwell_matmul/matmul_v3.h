// SPDX-License-Identifier: Apache-2.0
// Blackwell matmul, step 3: warp specialisation. Warp 0 only loads, warp 1 only issues MMAs; each runs ahead
// as far as the ring lets it. A stage has two barriers: `full` completes when its tiles have arrived, `empty`
// when the tensor core has read them.
#pragma once

#include "imbrex/lang.h"

namespace imbrex::kernels {

struct BlackwellMatmulV3 {
  static constexpr const char* target = "sm_100a";
  int block_m = 128, block_n = 64, e_block_n = 16, block_k = 16, stages = 2;

  static auto space() {
    return Space<BlackwellMatmulV3>()
        .choose<&BlackwellMatmulV3::block_m, &BlackwellMatmulV3::block_n, &BlackwellMatmulV3::e_block_n>(
            {{128, 64, 16}, {128, 128, 16}, {128, 256, 16}})
        .choose<&BlackwellMatmulV3::block_k>({16, 32, 64})
        .choose<&BlackwellMatmulV3::stages>({2, 3, 4});
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

    const std::vector<int64_t> one_arrival_each(static_cast<size_t>(stages), 1);
    auto full_barriers = mbarrier::alloc(one_arrival_each);
    auto empty_barriers = mbarrier::alloc(one_arrival_each);
    auto flush_barrier = mbarrier::alloc(1);
    sync();

    if (auto tma_warp = single_warp(0)) {
      Int32 stage = 0;
      UInt32 phase = mbarrier::producer_initial_phase;  // every stage is empty at first
      for (Int32 offset_k : range(0, k_size, block_k, {.unroll = stages})) {
        mbarrier::wait(empty_barriers[stage], phase);
        if (auto thread = single_thread())
          mbarrier::arrive_and_expect_tx(full_barriers[stage], s_a[stage].nbytes() + s_b[stage].nbytes());
        tma::global_to_shared(g_a, s_a[stage], {offset_m, offset_k}, full_barriers[stage]);
        tma::global_to_shared(g_b, s_b[stage], {offset_n, offset_k}, full_barriers[stage]);
        stage = (stage + 1) % stages;
        phase ^= stage == 0;
      }
    }

    if (auto mma_warp = single_warp(1)) {
      Int32 stage = 0;
      UInt32 phase = mbarrier::consumer_initial_phase;
      for (Int32 offset_k : range(0, k_size, block_k, {.unroll = stages})) {
        mbarrier::wait(full_barriers[stage], phase);
        tcgen05::mma(s_a[stage], s_b[stage].transpose(), t_acc, {.enable_input_d = offset_k != 0});
        tcgen05::commit(empty_barriers[stage]);
        stage = (stage + 1) % stages;
        phase ^= stage == 0;
      }
      // all MMAs are done
      tcgen05::commit(flush_barrier);
      mbarrier::wait(flush_barrier, 0);
    }
    sync();

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
