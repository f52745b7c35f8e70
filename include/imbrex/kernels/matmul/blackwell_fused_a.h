// SPDX-License-Identifier: Apache-2.0
// Blackwell matmul that changes A while it is loaded: C[m, n] = steps(A[m, k]) * B[n, k]^T. A stage of A goes
// from shared memory into registers, where the steps of epilogue.h work on it, one row per thread, and from
// there into tensor memory, from which the tensor core can read its left operand as well: writing it back to
// shared memory would cost a proxy fence, a swizzle and bandwidth that B needs. The changed A never goes
// through global memory, as it would between two kernels; and A may be stored in fewer bits than it is
// multiplied in. While the steps work on one stage, the products of the previous one run.
#pragma once

#include "imbrex/kernels/parts/epilogue.h"
#include "imbrex/kernels/parts/pipeline.h"
#include "imbrex/kernels/parts/tile_order.h"
#include "imbrex/lang.h"

namespace imbrex::kernels {

template <class... Steps>
struct BlackwellMatmulFusedA {
  static constexpr const char* target = "sm_100a";
  // Two CTAs fit a multiprocessor: one's products run while the other stores its tile.
  int block_m = 128, block_n = 128, e_block_n = 16, block_k = 64, stages = 3, swizzle_size = 8;

  /// A is of `a_type`; B, C and the products of `dtype` (float16 or bfloat16).
  void operator()(Int32 m_size, int n_size, int k_size, DataType a_type, DataType dtype, Ptr<> a_ptr,
                  Ptr<> b_ptr, Ptr<> c_ptr, Epilogue<Steps...> change) const {
    static_assert(!Epilogue<Steps...>::kReducesRows, "only a part of A's rows is loaded at a time");
    Int32 num_m_blocks = cdiv(m_size, block_m);
    const int num_n_blocks = cdiv(n_size, block_n);
    grid(num_m_blocks * num_n_blocks);
    warps(8);

    auto [m_block, n_block] = compute_block_coord(block_idx.x, num_m_blocks, num_n_blocks, swizzle_size);
    Int32 offset_m = m_block * block_m;
    Int32 offset_n = n_block * block_n;

    auto g_a = global_view(a_ptr, a_type, {m_size, k_size});
    auto g_b = global_view(b_ptr, dtype, {n_size, k_size});
    auto g_c = global_view(c_ptr, dtype, {m_size, n_size});
    auto s_a = shared_tensor(a_type, {stages, block_m, block_k});
    auto s_b = shared_tensor(dtype, {stages, block_n, block_k});
    auto s_c = shared_tensor(dtype, {block_m, e_block_n});
    // The smaller allocation first: whichever CTAs of the multiprocessor hold it, one has room for its sums.
    auto t_a = tcgen05::alloc(dtype, {stages, block_m, block_k});
    auto t_acc = tcgen05::alloc(float32, {block_m, block_n});

    // A stage is loaded, then changed, then multiplied. It is empty, in shared and in tensor memory, when its
    // products, the last of these, are complete.
    Pipeline pipe(stages);
    auto changed_barriers = mbarrier::alloc(std::vector<int64_t>(static_cast<size_t>(stages), 4 * 32));
    auto flush_barrier = mbarrier::alloc(1);
    sync();

    if (auto tma_warp = single_warp(0)) {
      for (Int32 offset_k : range(0, k_size, block_k, {.unroll = stages})) {
        pipe.producer_acquire();
        auto s_a_stage = s_a[pipe.producer_stage];
        auto s_b_stage = s_b[pipe.producer_stage];
        if (auto thread = single_thread())
          mbarrier::arrive_and_expect_tx(pipe.producer_barrier(), s_a_stage.nbytes() + s_b_stage.nbytes());
        tma::global_to_shared(g_a, s_a_stage, {offset_m, offset_k}, pipe.producer_barrier());
        tma::global_to_shared(g_b, s_b_stage, {offset_n, offset_k}, pipe.producer_barrier());
        pipe.producer_advance();
      }
    }

    if (auto mma_warp = single_warp(1)) {
      for (Int32 offset_k : range(0, k_size, block_k, {.unroll = stages})) {
        pipe.consumer_acquire();  // B is here
        mbarrier::wait(changed_barriers[pipe.consumer_stage], pipe.consumer_phase);
        tcgen05::mma(t_a[pipe.consumer_stage], s_b[pipe.consumer_stage].transpose(), t_acc,
                     {.enable_input_d = offset_k != 0});
        tcgen05::commit(pipe.consumer_barrier());
        pipe.consumer_advance();
      }
      // all MMAs are done
      tcgen05::commit(flush_barrier);
      mbarrier::wait(flush_barrier, 0);
    }

    if (auto changers = warp_group(4, 4)) {
      for (Int32 offset_k : range(0, k_size, block_k, {.unroll = stages})) {
        pipe.consumer_acquire();
        auto loaded = load_shared(s_a[pipe.consumer_stage]);
        tcgen05::store(t_a[pipe.consumer_stage],
                       change(loaded.to(float32), {m_size, k_size, dtype, offset_m, offset_k}));
        tcgen05::wait_store();
        mbarrier::arrive(changed_barriers[pipe.consumer_stage]);
        pipe.consumer_advance();
      }
    }
    sync();

    if (auto epilogue = warp_group(4, 4)) {
      // tensor memory -> registers -> shared memory -> global memory, e_block_n columns at a time
      for (Int32 e_offset_n : range(0, block_n, e_block_n)) {
        auto r_acc = tcgen05::load(t_acc.slice({0, e_offset_n}, {block_m, e_block_n}));
        tcgen05::wait_load();
        store_shared(s_c, r_acc.to(dtype));
        fence::proxy_async();  // what was written becomes visible to TMA
        sync();
        if (auto warp = single_warp()) {
          tma::shared_to_global(s_c, g_c, {offset_m, offset_n + e_offset_n});
          tma::commit_group();
          tma::wait_group(0, {.read = true});  // s_c may be written again
        }
        sync();
      }
    }

    sync();
    tcgen05::dealloc(t_acc);
    tcgen05::dealloc(t_a);
  }
};

}  // namespace imbrex::kernels
