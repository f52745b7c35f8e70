// SPDX-License-Identifier: Apache-2.0
// Hopper matmul, step 7: the last instructions. The loops over k are unrolled by the stages of the ring, so
// that stage numbers, and with them all descriptors, are constants; what is left is tuning. As the last step
// of the ladder it takes operands in either order of memory, and steps behind the product.
#pragma once

#include "imbrex/kernels/parts/epilogue.h"
#include "imbrex/kernels/parts/multicast_share.h"
#include "imbrex/kernels/parts/operand.h"
#include "imbrex/kernels/parts/pipeline.h"
#include "imbrex/kernels/parts/tile_order.h"
#include "imbrex/lang.h"

namespace imbrex::kernels {

/// C = steps(A B^T), see epilogue.h.
template <class... Steps>
struct HopperMatmulH7 {
  static constexpr const char* target = "sm_90a";
  static constexpr int kConsumers = 2, kCtas = 2;              // CTAs of a cluster
  int block_m = 128, block_n = 256, block_k = 64, stages = 4;  // of a CTA
  int store_n = 64, store_stages = 2;                          // slices of a consumer
  int swizzle_size = 8, ctas = 132;
  bool a_is_km = false, b_is_kn = false;  // A is [k, m], B is [k, n] in memory

  static auto space() {
    return Space<HopperMatmulH7>()
        .template choose<&HopperMatmulH7::block_m, &HopperMatmulH7::block_n, &HopperMatmulH7::stages,
                         &HopperMatmulH7::store_stages>({{128, 256, 4, 2},
                                                         {256, 128, 4, 1},
                                                         {128, 192, 5, 1},
                                                         {256, 192, 3, 1},
                                                         {128, 128, 5, 2},
                                                         {128, 64, 8, 1}})
        .template choose<&HopperMatmulH7::swizzle_size>({8, 16, 4})
        .template choose<&HopperMatmulH7::ctas>({132, 128});
  }

  void operator()(Int32 m_size, int n_size, int k_size, DataType dtype, Ptr<> a_ptr, Ptr<> b_ptr, Ptr<> c_ptr,
                  Epilogue<Steps...> finish) const {
    const int consumer_m = block_m / kConsumers, slices = block_n / store_n;
    require(slices % store_stages == 0, "{} slices of a tile are not a multiple of store_stages = {}", slices,
            store_stages);
    finish.check(n_size, block_n);
    Int32 num_m_blocks = cdiv(m_size, kCtas * block_m);  // of a cluster
    const int num_n_blocks = cdiv(n_size, block_n);
    const Batch* batch = finish.batch();
    auto matrix_tiles = num_m_blocks * num_n_blocks;
    Int32 num_tiles = batch ? batch->matrices * matrix_tiles : matrix_tiles;
    grid(min(kCtas * num_tiles, ctas));
    cluster(kCtas);
    warps(4 + 4 * kConsumers);
    Int32 rank = cluster_rank();
    const MulticastShare share_b(b_is_kn, block_n, block_k, {kCtas}, rank, rank);
    Int32 first_tile = block_idx.x / kCtas, num_clusters = grid_dim.x / kCtas;

    auto g_a = operand_view(a_ptr, dtype, m_size, k_size, a_is_km, batch, &Batch::a);
    auto g_b = operand_view(b_ptr, dtype, n_size, k_size, b_is_kn, batch, &Batch::b);
    const DataType c_type = finish.output_type(dtype);
    auto g_c = result_view(c_ptr, c_type, m_size, n_size, batch);
    auto s_a = operand_stages(dtype, stages, block_m, block_k, a_is_km);
    auto s_b = operand_stages(dtype, stages, block_n, block_k, b_is_kn);
    auto s_c = shared_tensor(c_type, {kConsumers, store_stages, consumer_m, store_n});
    Pipeline pipe(stages, 1, kCtas * kConsumers);
    cluster_sync();
    griddepcontrol::wait();  // the grid before may still write A and B, or read C
    griddepcontrol::launch_dependents();

    if (auto producer = warp_group(0, 4)) {
      setmaxnreg(40);
      if (auto warp = single_warp()) {
        for (Int32 tile : range(first_tile, num_tiles, num_clusters)) {
          const TileOfBatch at = tile_of_batch(batch, tile, matrix_tiles);
          auto [m_block, n_block] = compute_block_coord(at.tile, num_m_blocks, num_n_blocks, swizzle_size);
          Int32 offset_m = (m_block * kCtas + rank) * block_m;
          Int32 offset_n = n_block * block_n;
          for (Int32 offset_k : range(0, k_size, block_k, {.unroll = stages})) {
            pipe.producer_acquire();  // empty in both CTAs
            auto s_a_stage = s_a[pipe.producer_stage];
            auto s_b_stage = s_b[pipe.producer_stage];
            if (auto thread = single_thread())
              mbarrier::arrive_and_expect_tx(pipe.producer_barrier(),
                                             s_a_stage.nbytes() + s_b_stage.nbytes());
            tma::global_to_shared(matrix_of(batch, g_a, at.matrix), s_a_stage, {offset_m, offset_k},
                                  pipe.producer_barrier());
            share_b.load(matrix_of(batch, g_b, at.matrix), s_b_stage, offset_n, offset_k,
                         pipe.producer_barrier());  // for both CTAs
            pipe.producer_advance();
          }
        }
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
        setmaxnreg(232);
        for (Int32 tile : range(first_tile, num_tiles, num_clusters)) {
          const TileOfBatch at = tile_of_batch(batch, tile, matrix_tiles);
          auto [m_block, n_block] = compute_block_coord(at.tile, num_m_blocks, num_n_blocks, swizzle_size);
          auto acc = wgmma::accumulator(float32, {consumer_m, block_n});
          Int32 last_stage = stages - 1;
          for (Int32 offset_k : range(0, k_size, block_k, {.unroll = stages})) {
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

          Int32 offset_m = (m_block * kCtas + rank) * block_m + i * consumer_m;
          auto rows = finish.rows(consumer_m);
          const auto slice = [&](int j) { return acc.slice({0, j * store_n}, {consumer_m, store_n}); };
          const auto place = [&, &n_block = n_block](int j) {  // Clang 14 captures no binding
            if (num_n_blocks == 1)
              return OutputTile{m_size, n_size, c_type, offset_m, j * store_n, at.matrix};
            return OutputTile{m_size, n_size, c_type, offset_m, n_block * block_n + j * store_n, at.matrix};
          };
          for (int j = 0; finish.kReducesRows && j < slices; ++j) rows.look(slice(j), place(j));
          for (int j = 0; j < slices; ++j) {
            auto s_slice = s_c[i][j % store_stages];
            if (auto warp = single_warp()) tma::wait_group(store_stages - 1, {.read = true});
            sync();  // the slice that was here has been stored
            store_shared(s_slice, rows(slice(j), place(j)));
            fence::proxy_async();  // what was written becomes visible to TMA
            sync();
            if (auto warp = single_warp()) {
              tma::shared_to_global(s_slice, matrix_of(batch, g_c, at.matrix),
                                    {offset_m, n_block * block_n + j * store_n});
              tma::commit_group();
            }
          }
        }
        if (auto warp = single_warp()) tma::wait_group(0, {.read = true});
      }
    }
    cluster_sync();  // no CTA exits while the other may still write to it or signal it
  }
};

}  // namespace imbrex::kernels
