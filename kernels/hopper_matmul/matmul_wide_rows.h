// SPDX-License-Identifier: Apache-2.0
// Hopper matmul whose steps reduce rows wider than a tile: the CTAs of a cluster have one row of tiles, each
// its own columns, and tell each other what they found in their part of a row (cluster_rows.h). The product
// never leaves the registers before it is finished. All need the same rows of A: each loads a part of them,
// for all.
#pragma once

#include "cluster_rows.h"
#include "epilogue.h"
#include "imbrex/imbrex.h"
#include "pipeline.h"

namespace imbrex::kernels {

/// C = steps(A B^T), see epilogue.h; rows of up to ctas * block_n columns, 2048 with the default tiles and
/// eight CTAs, the most that every cluster may have.
template <class... Steps>
struct HopperMatmulWideRows {
  static constexpr const char* target = "sm_90a";
  static constexpr int kConsumers = 2;
  int block_m = 128, block_n = 256, block_k = 64, stages = 4;  // of a CTA
  int ctas = 4;                                                // of a cluster

  void operator()(Int32 m_size, int n_size, int k_size, DataType dtype, Ptr<> a_ptr, Ptr<> b_ptr, Ptr<> c_ptr,
                  Epilogue<Steps...> finish) const {
    const int consumer_m = block_m / kConsumers;
    const int share_m = block_m / ctas;    // rows of A that a CTA loads
    const int store_n = min(block_n, 32);  // steps take the tile in slices, for want of registers
    const int all_ctas = (1 << ctas) - 1;
    require(ctas >= 2 && ctas <= 8, "{} CTAs in a cluster: 2 to 8", ctas);
    require(share_m % 8 == 0 && share_m * ctas == block_m,
            "{} rows of A, loaded by {} CTAs: each loads a multiple of 8", block_m, ctas);
    finish.check(n_size, ctas * block_n);
    static_assert(Epilogue<Steps...>::kReducesRows, "for other steps there are faster kernels");
    grid(cdiv(m_size, block_m) * ctas);
    cluster(ctas);
    warps(4 + 4 * kConsumers);
    Int32 rank = cluster_rank();
    Int32 offset_m = block_idx.x / ctas * block_m, offset_n = rank * block_n;

    auto g_a = global_view(a_ptr, dtype, {m_size, k_size});
    auto g_b = global_view(b_ptr, dtype, {n_size, k_size});
    const DataType c_type = finish.output_type(dtype);
    auto g_c = global_view(c_ptr, c_type, {m_size, n_size});
    auto s_a = shared_tensor(dtype, {stages, block_m, block_k});
    auto s_b = shared_tensor(dtype, {stages, block_n, block_k});
    Pipeline pipe(stages, 1, ctas * kConsumers);
    ClusterRows cluster_rows(ctas, rank, kConsumers, consumer_m, finish.kRowParts);
    cluster_sync();

    if (auto producer = warp_group(0, 4)) {
      setmaxnreg(40);
      if (auto warp = single_warp()) {
        for (Int32 offset_k : range(0, k_size, block_k)) {
          pipe.producer_acquire();  // empty in all CTAs
          auto s_a_stage = s_a[pipe.producer_stage];
          auto s_b_stage = s_b[pipe.producer_stage];
          if (auto thread = single_thread())
            mbarrier::arrive_and_expect_tx(pipe.producer_barrier(), s_a_stage.nbytes() + s_b_stage.nbytes());
          tma::global_to_shared(g_a, s_a_stage.slice({rank * share_m, 0}, {share_m, block_k}),
                                {offset_m + rank * share_m, offset_k}, pipe.producer_barrier(),
                                {.multicast_mask = all_ctas});
          tma::global_to_shared(g_b, s_b_stage, {offset_n, offset_k}, pipe.producer_barrier());
          pipe.producer_advance();
        }
      }
    }

    // One thread of a consumer tells all CTAs, as all write to the stage. Its products have read it, and
    // nothing else is to be ordered.
    const auto release = [&](const Int32& stage) {
      if (auto thread = single_thread())
        for (int cta = 0; cta < ctas; ++cta)
          mbarrier::arrive(remote_barrier(pipe.empty_barriers[stage], cta), {.sem = Sem::kRelaxed});
    };
    for (int i = 0; i < kConsumers; ++i) {
      if (auto consumer = warp_group(4 + 4 * i, 4)) {
        setmaxnreg(232);
        auto acc = wgmma::accumulator(float32, {consumer_m, block_n});
        Int32 last_stage = 0;
        for (Int32 offset_k : range(0, k_size, block_k)) {
          pipe.consumer_acquire();
          wgmma::fence();
          wgmma::mma(s_a[pipe.consumer_stage].slice({i * consumer_m, 0}, {consumer_m, block_k}),
                     s_b[pipe.consumer_stage].transpose(), acc, {.scale_d = offset_k != 0});
          wgmma::commit_group();
          wgmma::wait_group(1);
          if (auto later = when(offset_k != 0)) release(last_stage);
          last_stage = pipe.consumer_stage;
          pipe.consumer_advance();
        }
        wgmma::wait_group(0);
        release(last_stage);
        Int32 first_row = offset_m + i * consumer_m;
        auto rows = finish.rows(consumer_m);
        const auto slice = [&](int j) { return acc.slice({0, j}, {consumer_m, store_n}); };
        const auto place = [&](int j) { return OutputTile{m_size, n_size, c_type, first_row, offset_n + j}; };
        for (int j = 0; j < block_n; j += store_n) rows.look(slice(j), place(j));
        rows.gather(cluster_rows.group(i));
        for (int j = 0; j < block_n; j += store_n)
          store_global(g_c, rows(slice(j), place(j)), {first_row, offset_n + j});
      }
    }
    cluster_sync();  // no CTA ends while another may still send it something
  }
};

}  // namespace imbrex::kernels
