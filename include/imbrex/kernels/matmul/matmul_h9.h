// SPDX-License-Identifier: Apache-2.0
// Hopper matmul, step 9: consumers take turns ("ping-pong"). Each of the two warp groups computes every other
// tile of the CTA; while one multiplies, the other runs its epilogue, so that steps and stores cost time only
// where they take longer than the products of a tile. The price: a stage serves one warp group instead of two,
// so that shared memory, which receives the stages and feeds the products, becomes the limit: 92 % of the
// tensor cores' rate with tiles of 128 x 192, 80 % with 64 x 256.
#pragma once

#include <vector>

#include "imbrex/kernels/parts/epilogue.h"
#include "imbrex/kernels/parts/multicast_share.h"
#include "imbrex/kernels/parts/operand.h"
#include "imbrex/kernels/parts/pipeline.h"
#include "imbrex/kernels/parts/tile_order.h"
#include "imbrex/lang.h"

namespace imbrex::kernels {

/// C = steps(A B^T), see epilogue.h.
template <class... Steps>
struct HopperMatmulH9 {
  static constexpr const char* target = "sm_90a";
  static constexpr int kConsumers = 2, kCtas = 2;              // CTAs of a cluster
  int block_m = 128, block_n = 128, block_k = 64, stages = 6;  // of a consumer
  int store_n = 64, store_stages = 1;                          // slices being stored
  int swizzle_size = 8, ctas = 132;
  bool a_is_km = false, b_is_kn = false;  // A is [k, m], B is [k, n] in memory

  static auto space() {
    return Space<HopperMatmulH9>()
        .template choose<&HopperMatmulH9::block_m, &HopperMatmulH9::block_n, &HopperMatmulH9::stages,
                         &HopperMatmulH9::store_stages>(
            {{128, 128, 6, 1}, {128, 192, 4, 1}, {128, 176, 4, 1}, {64, 256, 5, 1}, {64, 256, 4, 2}})
        .template choose<&HopperMatmulH9::swizzle_size>({8, 4})
        .template choose<&HopperMatmulH9::ctas>({132, 128});
  }

  void operator()(Int32 m_size, int n_size, int k_size, DataType dtype, Ptr<> a_ptr, Ptr<> b_ptr, Ptr<> c_ptr,
                  Epilogue<Steps...> finish) const {
    const int k_blocks = cdiv(k_size, block_k);
    finish.check(n_size, block_n);
    Int32 num_m_blocks = cdiv(m_size, kCtas * block_m);  // of a cluster
    const int num_n_blocks = cdiv(n_size, block_n);
    Int32 num_tiles = num_m_blocks * num_n_blocks;
    grid(min(kCtas * num_tiles, ctas));
    cluster(kCtas);
    warps(4 + 4 * kConsumers);
    Int32 rank = cluster_rank();
    const MulticastShare share_b(b_is_kn, block_n, block_k, {kCtas}, rank, rank);
    Int32 first_tile = block_idx.x / kCtas, num_clusters = grid_dim.x / kCtas;

    auto g_a = operand_view(a_ptr, dtype, m_size, k_size, a_is_km);
    auto g_b = operand_view(b_ptr, dtype, n_size, k_size, b_is_kn);
    const DataType c_type = finish.output_type(dtype);
    auto g_c = global_view(c_ptr, c_type, {m_size, n_size});
    auto s_a = operand_stages(dtype, stages, block_m, block_k, a_is_km);
    auto s_b = operand_stages(dtype, stages, block_n, block_k, b_is_kn);
    const std::vector<Slice> slices = slices_of(c_type);
    Pipeline pipe(stages, 1, kCtas);  // a stage is released by the one consumer that uses it, in each CTA
    auto turns = mbarrier::alloc(std::vector<int64_t>(kConsumers, 4));  // a consumer's turn to multiply
    cluster_sync();
    // Where a tile has a multiple of the ring's stages, stage numbers are constants.
    const int unroll = k_blocks % stages == 0 ? stages : 1;

    if (auto producer = warp_group(0, 4)) {
      setmaxnreg(24);
      if (auto warp = single_warp()) {
        for (Int32 tile : range(first_tile, num_tiles, num_clusters)) {  // for the two consumers in turn
          auto [m_block, n_block] = compute_block_coord(tile, num_m_blocks, num_n_blocks, swizzle_size);
          Int32 offset_m = (m_block * kCtas + rank) * block_m;
          Int32 offset_n = n_block * block_n;
          for (Int32 offset_k : range(0, k_size, block_k, {.unroll = unroll})) {
            pipe.producer_acquire();  // empty in both CTAs
            auto s_a_stage = s_a[pipe.producer_stage];
            auto s_b_stage = s_b[pipe.producer_stage];
            if (auto thread = single_thread())
              mbarrier::arrive_and_expect_tx(pipe.producer_barrier(),
                                             s_a_stage.nbytes() + s_b_stage.nbytes());
            tma::global_to_shared(g_a, s_a_stage, {offset_m, offset_k}, pipe.producer_barrier());
            share_b.load(g_b, s_b_stage, offset_n, offset_k, pipe.producer_barrier());  // for both CTAs
            pipe.producer_advance();
          }
        }
        pipe.producer_drain();
      }
    }

    // One thread of a consumer signals both CTAs, as both write to the stage. Relaxed: only its products have
    // read the stage, and they are complete.
    const auto release = [&](const Int32& stage) {
      if (auto thread = single_thread())
        for (int cta = 0; cta < kCtas; ++cta)
          mbarrier::arrive(remote_barrier(pipe.empty_barriers[stage], cta), {.sem = Sem::kRelaxed});
    };
    for (int i = 0; i < kConsumers; ++i) {
      if (auto consumer = warp_group(4 + 4 * i, 4)) {
        setmaxnreg(240);
        pipe.consumer_skip(i * k_blocks);  // those of the first consumer
        UInt32 turn_phase = i == 0 ? mbarrier::producer_initial_phase : mbarrier::consumer_initial_phase;
        for (Int32 tile : range(first_tile + i * num_clusters, num_tiles, kConsumers * num_clusters)) {
          auto [m_block, n_block] = compute_block_coord(tile, num_m_blocks, num_n_blocks, swizzle_size);
          auto acc = wgmma::accumulator(float32, {block_m, block_n});
          Int32 last_stage = stages - 1;
          mbarrier::wait(turns[i], turn_phase);
          turn_phase ^= 1;
          for (Int32 offset_k : range(0, k_size, block_k, {.unroll = unroll})) {
            pipe.consumer_acquire();
            wgmma::fence();
            wgmma::mma(s_a[pipe.consumer_stage], s_b[pipe.consumer_stage].transpose(), acc,
                       {.scale_d = offset_k != 0});
            wgmma::commit_group();
            wgmma::wait_group(1);
            if (auto later = when(offset_k != 0)) release(last_stage);
            last_stage = pipe.consumer_stage;
            pipe.consumer_advance();
          }
          // The last stage has been filled: the phases that the other consumer waits for now are its tile's.
          arrive_each_warp(turns[(i + 1) % kConsumers], 4);
          wgmma::wait_group(0);
          release(last_stage);
          pipe.consumer_skip((kConsumers - 1) * k_blocks);

          Int32 offset_m = (m_block * kCtas + rank) * block_m;
          auto rows = finish.rows(block_m);
          const auto part = [&](int n, int columns) { return acc.slice({0, n}, {block_m, columns}); };
          const auto place = [&, &n_block = n_block](int n) {  // Clang 14 captures no binding
            if (num_n_blocks == 1) return OutputTile{m_size, n_size, c_type, offset_m, n};
            return OutputTile{m_size, n_size, c_type, offset_m, n_block * block_n + n};
          };
          // Columns that the steps take at a time: few where the sums leave few registers.
          const int most = (finish.kEmpty || block_m * block_n <= 16384 ? 4096 : 1024) / block_m;
          for (const Slice& slice : slices)
            for (int n = 0; finish.kReducesRows && n < slice.columns; n += most)
              rows.look(part(slice.first + n, min(most, slice.columns - n)), place(slice.first + n));
          for (const Slice& slice : slices) {
            auto s_slice = slice.s_c[i];
            if (auto warp = single_warp()) tma::wait_group(store_stages - 1, {.read = true});
            sync();  // the slice that was here has been stored
            for (int n = 0; n < slice.columns; n += most) {
              const int columns = min(most, slice.columns - n);
              store_shared(s_slice.slice({0, n}, {block_m, columns}),
                           rows(part(slice.first + n, columns), place(slice.first + n)));
            }
            fence::proxy_async();  // what was written becomes visible to TMA
            sync();
            if (auto warp = single_warp()) {
              tma::shared_to_global(s_slice, g_c, {offset_m, n_block * block_n + slice.first});
              tma::commit_group();
            }
          }
        }
        if (auto warp = single_warp()) tma::wait_group(0, {.read = true});
      }
    }
  }

 private:
  /// Columns of a tile that are stored together.
  struct Slice {
    int first, columns;
    SharedTensor s_c;  // of each consumer
  };
  /// Slices of `store_n` columns (128 bytes, the widest swizzle) as far as they go; then of half as many, and
  /// so on.
  std::vector<Slice> slices_of(DataType c_type) const {
    std::vector<Slice> slices;
    int columns = store_n;
    for (int first = 0; first < block_n; first += columns) {
      while (columns > block_n - first) columns /= 2;
      const auto turn = static_cast<size_t>(store_stages);
      const bool is_new = slices.size() < turn || slices[slices.size() - turn].columns != columns;
      slices.push_back({first, columns,
                        is_new ? shared_tensor(c_type, {kConsumers, block_m, columns})
                               : slices[slices.size() - turn].s_c});
    }
    require(slices.size() % store_stages == 0, "{} slices of a tile are not a multiple of store_stages = {}",
            slices.size(), store_stages);
    return slices;
  }
};

}  // namespace imbrex::kernels
