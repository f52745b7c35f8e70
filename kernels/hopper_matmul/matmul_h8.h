// SPDX-License-Identifier: Apache-2.0
// Hopper matmul, step 8: any shape. Where tiles are fewer than multiprocessors, the CTAs of a cluster divide
// k and add up what each has computed; clusters may be of one CTA, tiles have one to three consumers; and C
// may have rows that begin anywhere.
#pragma once

#include <optional>
#include <vector>

#include "cluster_sum.h"
#include "epilogue.h"
#include "imbrex/imbrex.h"
#include "operand.h"
#include "pipeline.h"
#include "tile_order.h"

namespace imbrex::kernels {

/// C = steps(A B^T), see epilogue.h.
template <class... Steps>
struct HopperMatmulH8 {
  static constexpr const char* target = "sm_90a";
  int block_m = 128, block_n = 128, block_k = 64, stages = 5, consumers = 2;  // of a CTA
  int pair = 1;    // CTAs, of tiles one below the other, that load B for each other
  int splits = 1;  // CTAs, of a tile, that divide k
  int swizzle_size = 8, ctas = 132;
  bool a_is_km = false, b_is_kn = false;  // A is [k, m], B is [k, n] in memory

  static auto space() {
    return Space<HopperMatmulH8>()
        .template choose<&HopperMatmulH8::block_m, &HopperMatmulH8::block_n, &HopperMatmulH8::stages,
                         &HopperMatmulH8::consumers, &HopperMatmulH8::splits, &HopperMatmulH8::pair>(
            {{128, 128, 6, 2, 1, 1}, {128, 144, 5, 2, 1, 1}, {128, 160, 5, 2, 1, 1}, {128, 176, 5, 2, 1, 1},
             {128, 192, 5, 2, 1, 1}, {128, 208, 4, 2, 1, 1}, {128, 256, 4, 2, 1, 1}, {192, 128, 5, 3, 1, 1},
             {192, 160, 4, 3, 1, 1}, {192, 192, 4, 3, 1, 1}, {256, 128, 4, 2, 1, 1}, {64, 128, 8, 1, 1, 1},
             {128, 128, 6, 2, 1, 2}, {128, 192, 5, 2, 1, 2}, {128, 128, 5, 2, 2, 1}, {64, 128, 6, 1, 2, 1},
             {192, 128, 3, 3, 2, 1}, {192, 160, 3, 3, 2, 1}, {128, 224, 3, 2, 2, 1}, {128, 96, 6, 2, 3, 1},
             {64, 128, 6, 1, 4, 1},  {128, 128, 5, 2, 2, 2}, {128, 128, 5, 2, 4, 2}});
  }

  void operator()(Int32 m_size, int n_size, int k_size, DataType dtype, Ptr<> a_ptr, Ptr<> b_ptr, Ptr<> c_ptr,
                  Epilogue<Steps...> finish) const {
    const int consumer_m = block_m / consumers, part_n = block_n / splits;
    const int cluster_ctas = pair * splits;
    const int num_k_blocks = cdiv(k_size, block_k), split_blocks = cdiv(num_k_blocks, splits);
    finish.check(n_size, part_n);
    Int32 num_m_blocks = cdiv(m_size, pair * block_m);
    const int num_n_blocks = cdiv(n_size, block_n);
    Int32 num_tiles = num_m_blocks * num_n_blocks;  // of a cluster
    grid(min(cluster_ctas * num_tiles, ctas / cluster_ctas * cluster_ctas));
    cluster(cluster_ctas);
    warps(4 + 4 * consumers);
    Int32 rank = cluster_rank();
    Int32 split = 0, member = rank;
    if (splits > 1) split = rank / pair, member = rank % pair;
    Int32 first_tile = block_idx.x / cluster_ctas, num_clusters = grid_dim.x / cluster_ctas;
    // A CTA's share of the loads of B, in whole lines of memory.
    const int share_n = b_is_kn ? block_n : block_n / pair, share_k = b_is_kn ? block_k / pair : block_k;
    const ScalarArg first_n = b_is_kn ? ScalarArg(0) : ScalarArg(member * share_n);
    const ScalarArg first_k = b_is_kn ? ScalarArg(member * share_k) : ScalarArg(0);

    auto g_a = operand_view(a_ptr, dtype, m_size, k_size, a_is_km);
    auto g_b = operand_view(b_ptr, dtype, n_size, k_size, b_is_kn);
    const DataType c_type = finish.output_type(dtype);
    auto g_c = global_view(c_ptr, c_type, {m_size, n_size});
    auto s_a = operand_stages(dtype, stages, block_m, block_k, a_is_km);
    auto s_b = operand_stages(dtype, stages, block_n, block_k, b_is_kn);
    const std::vector<Slice> slices = slices_of(part_n, consumer_m, c_type);
    Pipeline pipe(stages, 1, pair * consumers);
    std::optional<ClusterSum> cluster_sum;
    if (splits > 1) cluster_sum.emplace(splits, split, pair, member, consumers, consumer_m, block_n);
    cluster_sync();

    // Where every CTA has the same number of blocks of k, and the ring comes round, stages are numbers.
    const bool is_even = num_k_blocks % splits == 0;
    const int unroll = is_even && split_blocks % stages == 0 ? stages : 1;
    Int32 k_blocks = split_blocks;
    if (!is_even)
      k_blocks = max(1, min(split_blocks, num_k_blocks - split * split_blocks));  // zeros, if none is left

    if (auto producer = warp_group(0, 4)) {
      if (consumers > 1) setmaxnreg(consumers == 2 ? 40 : 32);
      if (auto warp = single_warp()) {
        for (Int32 tile : range(first_tile, num_tiles, num_clusters)) {
          auto [m_block, n_block] = compute_block_coord(tile, num_m_blocks, num_n_blocks, swizzle_size);
          Int32 offset_m = (m_block * pair + member) * block_m;
          Int32 offset_n = n_block * block_n + first_n;
          for (Int32 k_block : range(0, k_blocks, {.unroll = unroll})) {
            Int32 offset_k = (split * split_blocks + k_block) * block_k;
            pipe.producer_acquire();  // empty in both CTAs of a pair
            auto s_a_stage = s_a[pipe.producer_stage];
            auto s_b_stage = s_b[pipe.producer_stage];
            auto s_b_share = s_b_stage.slice({first_n, first_k}, {share_n, share_k});
            if (auto thread = single_thread())
              mbarrier::arrive_and_expect_tx(pipe.producer_barrier(),
                                             s_a_stage.nbytes() + s_b_stage.nbytes());
            tma::global_to_shared(g_a, s_a_stage, {offset_m, offset_k}, pipe.producer_barrier());
            for (int s = 0; s < (pair == 1 ? 1 : splits); ++s)  // a mask is a number
              if (auto here = when(pair == 1 ? ScalarArg(true) : ScalarArg(split == s)))
                tma::global_to_shared(g_b, s_b_share, {offset_n, offset_k + first_k}, pipe.producer_barrier(),
                                      {.multicast_mask = pair == 1 ? 0 : ((1 << pair) - 1) << s * pair});
            pipe.producer_advance();
          }
        }
      }
    }

    const auto release = [&](const Int32& stage) {
      if (auto thread = single_thread())
        for (int cta = 0; cta < pair; ++cta)
          mbarrier::arrive(remote_barrier(pipe.empty_barriers[stage], split * pair + cta),
                           {.sem = Sem::kRelaxed});
    };
    // Slices of C leave by TMA where its rows begin at multiples of 16 bytes, else in rows of a slice.
    const bool has_tma_rows = n_size * c_type.bits() % 128 == 0;
    const auto store = [&](int i, const auto& sums, const Int32& offset_m, const Int32& offset_n) {
      auto rows = finish.rows(consumer_m);
      const auto part = [&](const Slice& s) { return sums.slice({0, s.first}, {consumer_m, s.columns}); };
      const auto place = [&](const Slice& s) {
        if (num_n_blocks == 1 && splits == 1) return OutputTile{m_size, n_size, c_type, offset_m, s.first};
        return OutputTile{m_size, n_size, c_type, offset_m, offset_n + s.first};
      };
      if (finish.kReducesRows)
        for (const Slice& s : slices) rows.look(part(s), place(s));
      for (const Slice& s : slices) {
        auto s_slice = s.s_c[i];
        if (has_tma_rows)
          if (auto warp = single_warp()) tma::wait_group(0, {.read = true});
        sync();  // what was here before has left
        // Steps take fewer columns at a time, for want of registers.
        const int step_n =
            finish.kEmpty ? s.columns : min(s.columns, (consumers > 2 ? 512 : 2048) / consumer_m);
        for (int j = 0; j < s.columns; j += step_n) {
          const Slice step{s.first + j, min(step_n, s.columns - j), s.s_c};
          store_shared(s_slice.slice({0, j}, {consumer_m, step.columns}), rows(part(step), place(step)));
        }
        if (has_tma_rows) fence::proxy_async();  // what was written becomes visible to TMA
        sync();
        if (!has_tma_rows) {
          store_global(g_c, load_shared(s_slice), {offset_m, offset_n + s.first});
        } else if (auto warp = single_warp()) {
          tma::shared_to_global(s_slice, g_c, {offset_m, offset_n + s.first});
          tma::commit_group();
        }
      }
    };
    for (int i = 0; i < consumers; ++i) {
      if (auto consumer = warp_group(4 + 4 * i, 4)) {
        if (consumers > 1) setmaxnreg(consumers == 2 ? 232 : 160);
        for (Int32 tile : range(first_tile, num_tiles, num_clusters)) {
          auto [m_block, n_block] = compute_block_coord(tile, num_m_blocks, num_n_blocks, swizzle_size);
          auto acc = wgmma::accumulator(float32, {consumer_m, block_n});
          Int32 last_stage = stages - 1;
          for (Int32 k_block : range(0, k_blocks, {.unroll = unroll})) {
            pipe.consumer_acquire();
            wgmma::fence();
            wgmma::mma(s_a[pipe.consumer_stage].slice({i * consumer_m, 0}, {consumer_m, block_k}),
                       s_b[pipe.consumer_stage].transpose(), acc, {.scale_d = k_block != 0});
            wgmma::commit_group();
            wgmma::wait_group(1);
            if (auto later = when(k_block != 0)) release(last_stage);
            last_stage = pipe.consumer_stage;
            pipe.consumer_advance();
          }
          wgmma::wait_group(0);
          release(last_stage);
          Int32 offset_m = (m_block * pair + member) * block_m + i * consumer_m;
          Int32 offset_n = n_block * block_n + split * part_n;
          if (cluster_sum)
            store(i, (*cluster_sum)(i, acc), offset_m, offset_n);
          else
            store(i, acc, offset_m, offset_n);
        }
        if (has_tma_rows)
          if (auto warp = single_warp()) tma::wait_group(0, {.read = true});
      }
    }
    cluster_sync();  // no CTA ends while another may still send it something
  }

 private:
  /// Columns of a part of C that are stored together.
  struct Slice {
    int first, columns;
    SharedTensor s_c;  // of each consumer
  };
  /// Rows of a slice are as long as a swizzle: 128 bytes as far as they go, then 64, 32 and 16.
  std::vector<Slice> slices_of(int part_n, int rows, DataType c_type) const {
    std::vector<Slice> slices;
    int columns = 1024 / c_type.bits();
    for (int first = 0; first < part_n; first += columns) {
      while (columns > part_n - first) columns /= 2;
      const bool is_new = slices.empty() || slices.back().columns != columns;
      slices.push_back(
          {first, columns, is_new ? shared_tensor(c_type, {consumers, rows, columns}) : slices.back().s_c});
    }
    return slices;
  }
};

}  // namespace imbrex::kernels
