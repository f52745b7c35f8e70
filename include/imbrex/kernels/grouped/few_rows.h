// SPDX-License-Identifier: Apache-2.0
// Gated products and results in float8 for few rows of A. B gives wgmma its rows and A its columns, as few as 8: tiles are
// computed transposed. CTAs with 64 columns of a block of 128 tell each other the largest magnitudes they have, and the
// CTAs of a cluster may divide k, so that every multiprocessor reads a part of B.
#pragma once

#include <optional>

#include "imbrex/kernels/parts/cluster_sum.h"
#include "imbrex/kernels/parts/epilogue.h"
#include "imbrex/kernels/parts/fused_results.h"
#include "imbrex/kernels/parts/multicast_share.h"
#include "imbrex/kernels/parts/pipeline.h"
#include "imbrex/kernels/parts/product_sizes.h"
#include "imbrex/lang.h"

namespace imbrex::kernels {

/// C = steps(A B^T), see epilogue.h; GatedBy and QuantiseBlocks among them are carried out.
template <class... Steps>
struct HopperFewRows {
  static constexpr const char* target = "sm_90a";
  int block_m = 16, block_n = 64, block_k = 64, stages = 6;  // of a CTA
  int cluster_n = 2;  // CTAs of a cluster, side by side along n, that load A for each other
  int split_k = 1;    // CTAs of a cluster that divide k

  static auto space() {
    return Space<HopperFewRows>()
        .template choose<&HopperFewRows::block_m, &HopperFewRows::block_n, &HopperFewRows::stages,
                         &HopperFewRows::cluster_n, &HopperFewRows::split_k>({{16, 64, 9, 2, 1},
                                                                              {16, 128, 5, 1, 1},
                                                                              {16, 64, 6, 2, 2},
                                                                              {32, 64, 8, 2, 1},
                                                                              {64, 64, 7, 2, 1},
                                                                              {64, 128, 4, 1, 2},
                                                                              {64, 64, 5, 4, 1}});
  }

  /// A[m, k], B[n, k], C[m, n].
  void operator()(ProductSizes sizes, DataType dtype, Ptr<> a_ptr, Ptr<> b_ptr, Ptr<> c_ptr,
                  Epilogue<Steps...> finish) const {
    require(!finish.kReducesRows, "rows are reduced, which are wider than a tile");
    const GatedBy* gate = used_step<GatedBy>(finish);
    const QuantiseBlocks* quantise = used_step<QuantiseBlocks>(finish);
    const bool shares_blocks = quantise && block_n == 64 && cluster_n % 2 == 0;
    require(
        !quantise || block_n == QuantiseBlocks::kBlock || shares_blocks,
        "tiles of {} columns in clusters of {}; a scale belongs to 128 columns, of one CTA or of two with 64",
        block_n, cluster_n);
    // Where two CTAs share blocks, or some share sums, each hears from the others behind their last arrivals.
    const bool drains = cluster_n > 1 && split_k == 1 && !(shares_blocks && cluster_n == 2);
    const int block_x = gate ? 2 * block_n : block_n, part_m = block_m / split_k,
              cluster_ctas = cluster_n * split_k;
    const Expr n_size = sizes.n();
    Int32 num_k_blocks = cdiv(sizes.k, block_k), share = cdiv(num_k_blocks, split_k);
    grid(cdiv(n_size, block_n * cluster_n) * cluster_ctas, cdiv(sizes.m, block_m));
    cluster(cluster_ctas);
    warps(5);
    // The CTA's coordinates in the cluster: n varies fastest, then the part of k.
    Int32 rank = cluster_rank(), rank_n = rank % cluster_n, rank_k = rank / cluster_n;
    const MulticastShare share_a(false, block_m, block_k, {cluster_n, 1, cluster_ctas}, rank, rank_n);
    Int32 offset_n = (block_idx.x / cluster_ctas * cluster_n + rank_n) * block_n,
          offset_m = block_idx.y * block_m;

    auto g_a = global_view(a_ptr, dtype, {sizes.m, sizes.k});
    auto g_b = global_view(b_ptr, dtype, {n_size, sizes.k});
    const DataType c_type = finish.output_type(dtype);
    auto g_c = global_view(c_ptr, c_type, {sizes.m, n_size});
    auto s_a = shared_tensor(dtype, {stages, block_m, block_k});
    auto s_b = shared_tensor(dtype, {stages, block_x, block_k});
    Pipeline pipe(stages, 1, cluster_n);
    std::optional<ClusterSum> cluster_sum;
    if (split_k > 1)
      cluster_sum.emplace(split_k, rank_k, cluster_n, rank_n, 1, block_x, block_m, SourceLocation::current());
    std::optional<SharedTensor> s_largest;  // of the other CTA's columns
    std::optional<Barrier> largest_known;
    if (shares_blocks) {
      s_largest.emplace(shared_tensor(float32, {part_m, 1}));
      largest_known.emplace(mbarrier::alloc(128));
    }
    cluster_sync();
    griddepcontrol::wait();  // the grid before may still write A and B, or read C
    griddepcontrol::launch_dependents();
    // The CTA's blocks of k: one of zeros, if none is left.
    Int32 k_blocks = max(1, min(share, num_k_blocks - rank_k * share));

    if (auto producer = single_warp(4)) {
      for (Int32 k_block : range(0, k_blocks)) {
        Int32 offset_k = (rank_k * share + k_block) * block_k;
        pipe.producer_acquire();
        auto s_a_stage = s_a[pipe.producer_stage];
        auto s_b_stage = s_b[pipe.producer_stage];
        if (auto thread = single_thread())
          mbarrier::arrive_and_expect_tx(pipe.producer_barrier(), s_a_stage.nbytes() + s_b_stage.nbytes());
        // B is read once and need not stay in the L2 cache; every CTA reads A.
        const auto load = [&](const GlobalTensor& from, int row) {
          tma::global_to_shared(from, s_b_stage.slice({row, 0}, {block_n, block_k}), {offset_n, offset_k},
                                pipe.producer_barrier(), {.cache_policy = tma::CachePolicy::kEvictFirst});
        };
        load(g_b, 0);
        if (gate) load(gate->view(dtype, 1, n_size, sizes.k)[0], block_n);
        share_a.load(g_a, s_a_stage, offset_m, offset_k, pipe.producer_barrier(),
                     tma::CachePolicy::kEvictLast);
        pipe.producer_advance();
      }
      if (drains) pipe.producer_drain();
    }
    if (auto consumer = warp_group(0, 4)) {
      auto acc = wgmma::accumulator(float32, {block_x, block_m});
      Int32 last_stage = 0;
      const auto release = [&](const Int32& stage) {
        if (auto thread = single_thread())
          arrive_at_loaders(pipe.empty_barriers[stage], cluster_n, 1, rank, rank_n, rank_k);
      };
      for (Int32 k_block : range(0, k_blocks)) {
        pipe.consumer_acquire();
        wgmma::fence();
        wgmma::mma(s_b[pipe.consumer_stage], s_a[pipe.consumer_stage].transpose(), acc,
                   {.scale_d = k_block != 0});
        wgmma::commit_group();
        wgmma::wait_group(1);
        if (auto later = when(k_block != 0)) release(last_stage);
        last_stage = pipe.consumer_stage;
        pipe.consumer_advance();
      }
      wgmma::wait_group(0);
      if (drains) release(last_stage);
      const RegisterTensor sums = cluster_sum ? (*cluster_sum)(0, acc) : RegisterTensor(acc);
      Int32 row = offset_m + rank_k * part_m;
      auto steps = finish.rows(part_m);
      // Of the product, or of what it is multiplied by.
      const auto part = [&](int factor) {
        const OutputTile place{sizes.m, gate ? ScalarArg(2 * n_size) : ScalarArg(n_size),
                               gate || quantise ? float32 : c_type, row,
                               factor == 0 ? ScalarArg(offset_n) : ScalarArg(offset_n + n_size)};
        return steps(sums.slice({factor * block_n, 0}, {block_n, part_m}).transpose(), place);
      };
      RegisterTensor value = part(0);
      if (gate) value = gate->apply(value, part(1));
      if (quantise) {
        RegisterTensor largest = QuantiseBlocks::largest_of(value);
        if (shares_blocks) {
          const Expr other = rank ^ 1;
          store_remote_shared(*s_largest, largest, other);
          mbarrier::arrive(remote_barrier(*largest_known, other));
          mbarrier::wait(*largest_known, mbarrier::consumer_initial_phase, {.scope = Scope::kCluster});
          largest = max(largest, load_shared(*s_largest));
          if (auto first = when(rank_n % 2 == 0)) quantise->store(largest, sizes.m, n_size, row, offset_n);
        } else {
          quantise->store(largest, sizes.m, n_size, row, offset_n);
        }
        value = value * QuantiseBlocks::factor_of(largest);
      }
      store_global(g_c, value.to(c_type), {row, offset_n});
    }
    if (split_k > 1) cluster_sync();  // no CTA exits while another may still read its sums
  }
};

}  // namespace imbrex::kernels
