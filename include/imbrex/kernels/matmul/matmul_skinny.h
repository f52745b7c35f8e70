// SPDX-License-Identifier: Apache-2.0
// Hopper matmul for few rows of A, as in decoding: C[m, n] = A[m, k] * B[n, k]^T is bound by reading B once.
// Operands are swapped: B gives wgmma its 64 rows and A its columns, which may be as few as 8, so that the
// tile of C is computed transposed. A CTA keeps many bytes of B in flight and goes through all of k, so that
// there are no partial sums. All CTAs read the same rows of A; those of a cluster load a share each, for all.
#pragma once

#include "imbrex/kernels/parts/epilogue.h"
#include "imbrex/kernels/parts/multicast_share.h"
#include "imbrex/kernels/parts/operand.h"
#include "imbrex/kernels/parts/pipeline.h"
#include "imbrex/kernels/parts/product_sizes.h"
#include "imbrex/lang.h"

namespace imbrex::kernels {

/// C = steps(A B^T), see epilogue.h.
template <class... Steps>
struct HopperMatmulSkinny {
  static constexpr const char* target = "sm_90a";
  int block_m = 16, block_n = 64, block_k = 128, stages = 9;
  int cluster_n = 2;  // CTAs of a cluster, side by side along n, that load A for each other
  bool a_is_km = false, b_is_kn = false;  // A is [k, m], B is [k, n] in memory

  static auto space() {
    return Space<HopperMatmulSkinny>()
        .template choose<&HopperMatmulSkinny::block_m, &HopperMatmulSkinny::block_k,
                         &HopperMatmulSkinny::stages, &HopperMatmulSkinny::cluster_n>({{16, 128, 9, 2},
                                                                                       {16, 128, 9, 1},
                                                                                       {8, 128, 10, 1},
                                                                                       {32, 128, 8, 2},
                                                                                       {64, 128, 6, 2},
                                                                                       {64, 128, 6, 4},
                                                                                       {128, 128, 4, 2},
                                                                                       {128, 64, 8, 2},
                                                                                       {128, 64, 8, 4},
                                                                                       {256, 64, 5, 2}});
  }

  void operator()(ProductSizes sizes, DataType dtype, Ptr<> a_ptr, Ptr<> b_ptr, Ptr<> c_ptr,
                  Epilogue<Steps...> finish) const {
    static_assert(!Epilogue<Steps...>::kReducesRows, "a tile need not have whole rows");
    const Batch* batch = finish.batch();
    grid(cdiv(sizes.n(), block_n * cluster_n) * cluster_n, cdiv(sizes.m, block_m),
         batch ? ScalarArg(batch->matrices) : ScalarArg(1));
    cluster(cluster_n);
    warps(5);
    Int32 rank = cluster_rank();
    const MulticastShare share_a(a_is_km, block_m, block_k, {cluster_n}, rank, rank);
    Int32 offset_n = block_n * block_idx.x;
    Int32 offset_m = block_m * block_idx.y;

    const ScalarArg matrix = block_idx.z;  // of the batch
    const auto of_matrix = [&](const GlobalTensor& all) { return matrix_of(batch, all, matrix); };
    auto g_a = of_matrix(operand_view(a_ptr, dtype, sizes.m, sizes.k, a_is_km, batch, &Batch::a));
    auto g_b = of_matrix(operand_view(b_ptr, dtype, sizes.n(), sizes.k, b_is_kn, batch, &Batch::b));
    const DataType c_type = finish.output_type(dtype);
    auto g_c = of_matrix(result_view(c_ptr, c_type, sizes.m, sizes.n(), batch));
    auto s_a = operand_stages(dtype, stages, block_m, block_k, a_is_km);
    auto s_b = operand_stages(dtype, stages, block_n, block_k, b_is_kn);
    Pipeline pipe(stages, 1, cluster_n);
    cluster_sync();
    griddepcontrol::wait();  // the grid before may still write A and B, or read C
    griddepcontrol::launch_dependents();

    if (auto producer = single_warp(4)) {
      for (Int32 offset_k : range(0, sizes.k, block_k)) {
        pipe.producer_acquire();  // empty in all CTAs
        auto s_a_stage = s_a[pipe.producer_stage];
        auto s_b_stage = s_b[pipe.producer_stage];
        if (auto thread = single_thread())
          mbarrier::arrive_and_expect_tx(pipe.producer_barrier(), s_a_stage.nbytes() + s_b_stage.nbytes());
        // B is read once and need not stay in the L2 cache; every CTA reads A
        tma::global_to_shared(g_b, s_b_stage, {offset_n, offset_k}, pipe.producer_barrier(),
                              {.cache_policy = tma::CachePolicy::kEvictFirst});
        share_a.load(g_a, s_a_stage, offset_m, offset_k, pipe.producer_barrier(),
                     tma::CachePolicy::kEvictLast);
        pipe.producer_advance();
      }
      if (cluster_n > 1) pipe.producer_drain();
    }

    const auto release = [&](const Int32& stage) {
      if (auto thread = single_thread())
        for (int cta = 0; cta < cluster_n; ++cta)
          mbarrier::arrive(remote_barrier(pipe.empty_barriers[stage], cta), {.sem = Sem::kRelaxed});
    };
    if (auto consumer = warp_group(0, 4)) {
      auto acc = wgmma::accumulator(sum_type(dtype), {block_n, block_m});
      Int32 last_stage = 0;
      for (Int32 offset_k : range(0, sizes.k, block_k)) {
        pipe.consumer_acquire();
        wgmma::fence();
        wgmma::mma(s_b[pipe.consumer_stage], s_a[pipe.consumer_stage].transpose(), acc,
                   {.scale_d = offset_k != 0});
        wgmma::commit_group();
        wgmma::wait_group(1);
        if (auto later = when(offset_k != 0)) release(last_stage);
        last_stage = pipe.consumer_stage;
        pipe.consumer_advance();
      }
      wgmma::wait_group(0);
      release(last_stage);
      store_global(
          g_c, finish(as_float(acc).transpose(), {sizes.m, sizes.n(), c_type, offset_m, offset_n, matrix}),
          {offset_m, offset_n});
    }
  }
};

}  // namespace imbrex::kernels
