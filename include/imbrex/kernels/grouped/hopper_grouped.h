// SPDX-License-Identifier: Apache-2.0
// Hopper matmul of groups: the experts of a mixture. It is step H7 (hopper_matmul/matmul_h7.h) with a tile order that
// the device computes from the sizes of the groups, which the host does not know: persistent clusters walk over the tiles
// of all groups. A tile that reaches beyond its group computes rows of the next one, and does not store them.
#pragma once

#include <vector>

#include "imbrex/kernels/grouped/group_tiles.h"
#include "imbrex/kernels/parts/epilogue.h"
#include "imbrex/kernels/parts/fused_results.h"
#include "imbrex/kernels/parts/multicast_share.h"
#include "imbrex/kernels/parts/operand.h"
#include "imbrex/kernels/parts/pipeline.h"
#include "imbrex/kernels/parts/product_sizes.h"
#include "imbrex/lang.h"

namespace imbrex::kernels {

/// Scales of float8 operands, one per 128 of k: of each row of A, and of 128 rows of B. A kernel takes them as a step of its
/// epilogue, which changes no element: it adds up sums of 128 products each, scaled, in float32. (The tensor cores' own
/// sums of float8 keep about 14 bits.)
struct BlockScales {
  static constexpr int kBlock = 128;
  using Parameters = ParameterList<Ptr<float32>, Int64, Ptr<float32>>;
  Ptr<float32> a;  ///< [k / 128, rows of A], rows of it `a_stride` apart
  Int64 a_stride;
  Ptr<float32> b;  ///< [groups, n / 128, k / 128]

  RegisterValue operator()(const RegisterBase& x, const OutputTile&) const {
    return RegisterValue(x.handle());
  }
};

/// Says that there is one group, which has all rows: a dense product. A step of the epilogue that changes nothing.
struct OneGroup {
  using Parameters = ParameterList<>;
  RegisterValue operator()(const RegisterBase& x, const OutputTile&) const {
    return RegisterValue(x.handle());
  }
};

/// x * scale[g, j] in column j of group g.
struct GroupColumnScale {
  using Parameters = ParameterList<Int32, Ptr<float32>>;
  Int32 groups;
  Ptr<float32> scale;

  RegisterValue operator()(const RegisterBase& x, const OutputTile& at) const {
    return x * load_global(global_view(scale, {groups, at.columns})[at.matrix], {at.column}, {x.shape(1)});
  }
};

/// C[i, :] = steps(A[i, :] B[g]^T) for each row i of each group g; see epilogue.h.
template <class... Steps>
struct HopperGroupedMatmul {
  static constexpr const char* target = "sm_90a";
  static constexpr bool kScaled = (std::is_same_v<Steps, BlockScales> || ...),
                        kQuantised = (std::is_same_v<Steps, QuantiseBlocks> || ...);
  int block_m = 128, block_n = kScaled ? 128 : 256, block_k = kScaled ? 128 : 64;  // of a CTA
  int stages = kScaled ? 6 : 4, consumers = 2;
  int cluster_m = 1, cluster_n = 2;  // CTAs of a cluster with tiles below and beside each other (multicast)
  int store_stages = 2;              // slices of a consumer
  int band = 8;

  static auto space() {
    using Tiles = std::initializer_list<std::tuple<int, int, int, int, int, int, int>>;
    const Tiles plain{{128, 256, 4, 2, 1, 2, 2}, {128, 256, 4, 2, 2, 1, 2}, {256, 128, 4, 2, 1, 2, 1},
                      {128, 192, 5, 2, 1, 2, 1}, {128, 256, 4, 2, 1, 1, 2}, {128, 128, 6, 2, 1, 2, 2},
                      {64, 256, 5, 1, 1, 1, 2},  {64, 128, 8, 1, 1, 2, 2},  {64, 128, 8, 1, 1, 1, 2},
                      {192, 128, 5, 3, 1, 1, 1}, {64, 64, 10, 1, 1, 1, 1}};
    const Tiles scaled{{128, 128, 6, 2, 1, 2, 2}, {192, 128, 5, 3, 1, 1, 1}, {192, 128, 5, 3, 1, 2, 1},
                       {192, 128, 4, 3, 1, 1, 2}, {128, 128, 6, 2, 2, 1, 2}, {128, 128, 6, 2, 1, 1, 2},
                       {64, 128, 8, 1, 1, 2, 2},  {64, 128, 8, 1, 1, 1, 2}};
    const Tiles quantised{{128, 256, 4, 2, 1, 2, 2}, {128, 256, 4, 2, 2, 1, 2}, {64, 256, 5, 1, 1, 1, 2},
                          {256, 128, 4, 2, 2, 1, 1}, {192, 128, 5, 3, 1, 2, 1}, {128, 128, 6, 2, 1, 2, 1},
                          {128, 128, 6, 2, 2, 1, 1}, {64, 128, 8, 1, 1, 1, 1}};
    return Space<HopperGroupedMatmul>()
        .template choose<&HopperGroupedMatmul::block_m, &HopperGroupedMatmul::block_n,
                         &HopperGroupedMatmul::stages, &HopperGroupedMatmul::consumers,
                         &HopperGroupedMatmul::cluster_m, &HopperGroupedMatmul::cluster_n,
                         &HopperGroupedMatmul::store_stages>(kScaled      ? scaled
                                                             : kQuantised ? quantised
                                                                          : plain)
        .template choose<&HopperGroupedMatmul::band>({8, 16, 4});
  }

  /// A[m, k], B[groups, n, k], C[m, n]; rows_ptr: see GroupRows. `most_groups`: a number that `groups` does not exceed.
  void operator()(ProductSizes sizes, Int32 groups, int most_groups, bool masked, Int32 room, DataType dtype,
                  Ptr<int32> rows_ptr, Ptr<> a_ptr, Ptr<> b_ptr, Ptr<> c_ptr,
                  Epilogue<Steps...> finish) const {
    const Int32 &m_size = sizes.m, &k_size = sizes.k;
    const Expr n_size = sizes.n();
    const GatedBy* gate = used_step<GatedBy>(finish);
    const QuantiseBlocks* quantise = used_step<QuantiseBlocks>(finish);
    // Columns of a slice of C that is stored at once, and of a tile of C: gated, half of its columns are factors.
    const int tile_n = gate ? block_n / 2 : block_n;
    const int store_n = quantise           ? QuantiseBlocks::kBlock
                        : tile_n % 64 == 0 ? 64
                        : tile_n % 32 == 0 ? 32
                                           : 16;
    const int consumer_m = block_m / consumers, slices = tile_n / store_n,
              cluster_ctas = cluster_m * cluster_n;
    require(tile_n % store_n == 0 && slices % min(store_stages, slices) == 0,
            "{} columns of a tile are not a multiple of {} x store_stages = {}", tile_n, store_n,
            store_stages);
    require(!finish.kReducesRows, "rows are reduced, which are wider than a tile");
    const int stored = min(store_stages, slices);
    Int32 num_n_blocks = cdiv(n_size, cluster_n * tile_n);  // of a cluster
    // Each group may end with a tile that is not full.
    grid(min(cluster_ctas * num_n_blocks * (cdiv(m_size, cluster_m * block_m) + groups),
             sizes.ctas / cluster_ctas * cluster_ctas));
    cluster(cluster_ctas);
    warps(4 + 4 * consumers);
    Int32 rank = cluster_rank();
    Int32 rank_m = rank, rank_n = 0;
    if (cluster_n > 1) rank_n = rank / cluster_m, rank_m = rank % cluster_m;
    Int32 first_tile = block_idx.x / cluster_ctas, num_clusters = grid_dim.x / cluster_ctas;
    const MulticastShare share_a(false, block_m, block_k, {cluster_n, cluster_m, cluster_ctas}, rank, rank_n),
        share_b(false, tile_n, block_k, {cluster_m, 1, cluster_ctas}, rank, rank_m);

    auto g_a = global_view(a_ptr, dtype, {m_size, k_size});
    auto g_b = global_view(b_ptr, dtype, {groups, n_size, k_size});
    const BlockScales* scales = finish.template find<BlockScales>();
    require(scales == nullptr || (block_k == BlockScales::kBlock && block_n == BlockScales::kBlock),
            "tiles of {} columns and {} of k have no scale of their own; they are {} each", block_n, block_k,
            BlockScales::kBlock);
    const DataType c_type = finish.output_type(dtype);
    auto g_c = global_view(c_ptr, c_type, {m_size, n_size});
    auto s_a = shared_tensor(dtype, {stages, block_m, block_k});
    auto s_b = shared_tensor(dtype, {stages, block_n, block_k});
    auto s_c = shared_tensor(c_type, {consumers, stored, consumer_m, store_n});
    Pipeline pipe(stages, 1, (cluster_m + cluster_n - 1) * consumers);
    griddepcontrol::wait();  // the grid before may still write A, B and the groups, or read C
    const GroupRows rows(rows_ptr, groups, most_groups, masked, room,
                         finish.template find<OneGroup>() ? &m_size : nullptr);
    cluster_sync();
    griddepcontrol::launch_dependents();

    if (auto producer = warp_group(0, 4)) {
      if (consumers > 1) setmaxnreg(consumers == 2 ? 40 : 32);
      if (auto warp = single_warp()) {
        GroupTiles tiles(rows, cluster_m * block_m, num_n_blocks, band);
        Int32 tile = first_tile;
        for (Loop loop : forever()) {
          tiles.find(tile);
          loop.break_if(tiles.at_end());
          Int32 offset_m = tiles.begin + (tiles.m_block * cluster_m + rank_m) * block_m;
          Int32 offset_n = (tiles.n_block * cluster_n + rank_n) * tile_n;
          each_k_block(sizes, [&](const ScalarArg& k_block) {
            Int32 offset_k = k_block * block_k;
            pipe.producer_acquire();  // empty in all CTAs that receive it
            auto s_a_stage = s_a[pipe.producer_stage];
            auto s_b_stage = s_b[pipe.producer_stage];
            if (auto thread = single_thread())
              mbarrier::arrive_and_expect_tx(pipe.producer_barrier(),
                                             s_a_stage.nbytes() + s_b_stage.nbytes());
            share_a.load(g_a, s_a_stage, offset_m, offset_k, pipe.producer_barrier());
            share_b.load(g_b[tiles.group], s_b_stage.slice({0, 0}, {tile_n, block_k}), offset_n, offset_k,
                         pipe.producer_barrier());
            if (gate)
              share_b.load(gate->view(dtype, groups, n_size, k_size)[tiles.group],
                           s_b_stage.slice({tile_n, 0}, {tile_n, block_k}), offset_n, offset_k,
                           pipe.producer_barrier());
            pipe.producer_advance();
          });
          tile += num_clusters;
        }
        if (cluster_ctas > 1) pipe.producer_drain();
      }
    }

    // Signals all CTAs that load a share of the stage. Relaxed: only products have read it, and they are complete.
    const auto release = [&](const Int32& stage) {
      if (auto thread = single_thread()) {
        const auto arrive = [&](const ScalarArg& cta) {
          mbarrier::arrive(remote_barrier(pipe.empty_barriers[stage], cta), {.sem = Sem::kRelaxed});
        };
        for (int i = 0; i < cluster_m; ++i) arrive(rank - rank_m + i);
        for (int i = 1; i < cluster_n; ++i)
          arrive(rank - rank_n * cluster_m +
                 select(rank_n + i < cluster_n, rank_n + i, rank_n + i - cluster_n) * cluster_m);
      }
    };
    for (int i = 0; i < consumers; ++i) {
      if (auto consumer = warp_group(4 + 4 * i, 4)) {
        if (consumers > 1) setmaxnreg(consumers == 2 ? 232 : 160);
        GroupTiles tiles(rows, cluster_m * block_m, num_n_blocks, band);
        Int32 tile = first_tile;
        for (Loop loop : forever()) {
          tiles.find(tile);
          loop.break_if(tiles.at_end());
          Int32 offset_m = tiles.begin + (tiles.m_block * cluster_m + rank_m) * block_m + i * consumer_m;
          Int32 offset_n = (tiles.n_block * cluster_n + rank_n) * tile_n;
          RegisterTensor acc = scales ? RegisterTensor(zeros(float32, {consumer_m, block_n}))
                                      : wgmma::accumulator(float32, {consumer_m, block_n});
          const auto compute = [&, i = i] {
            if (scales)
              multiply_scaled(*scales, ScaledPlace{sizes, groups, tiles.group, offset_m, offset_n}, pipe,
                              s_a.slice({0, i * consumer_m, 0}, {stages, consumer_m, block_k}), s_b, acc,
                              release);
            else
              multiply(sizes, pipe, s_a.slice({0, i * consumer_m, 0}, {stages, consumer_m, block_k}), s_b,
                       acc, release);

            Int32 is_full = cast<int32>(offset_m + consumer_m <= tiles.end);
            auto g_group = global_view(c_ptr, c_type, {tiles.end, n_size});
            auto steps = finish.rows(consumer_m);
            for (int j = 0; j < slices; ++j) {
              auto s_slice = s_c[i][j % stored];
              // Of `columns` of the slice from column `first` on: of the product, or of what it is multiplied by.
              const auto part = [&](int factor, int first, int columns, DataType type) {
                const ScalarArg column = offset_n + j * store_n + first;
                const OutputTile place{
                    m_size,   gate ? ScalarArg(2 * n_size) : ScalarArg(n_size),  type,
                    offset_m, factor == 0 ? column : ScalarArg(column + n_size), tiles.group};
                return steps(acc.slice({0, factor * tile_n + j * store_n + first}, {consumer_m, columns}),
                             place);
              };
              if (auto warp = single_warp()) tma::wait_group(stored - 1, {.read = true});
              sync();  // the slice that was here has been stored
              if (!gate && !quantise) {
                store_shared(s_slice, part(0, 0, store_n, c_type));
              } else {
                // Steps need registers: they take fewer columns at a time where much is held until the scales are known.
                const int columns = quantise ? 16 : store_n;
                std::vector<RegisterTensor> values;
                for (int first = 0; first < store_n; first += columns) {
                  RegisterTensor value = part(0, first, columns, float32);
                  if (gate) value = gate->apply(value, part(1, first, columns, float32));
                  values.push_back(value);
                }
                if (quantise) {
                  RegisterTensor magnitudes = abs(values.front());
                  for (const RegisterTensor& value : values) magnitudes = max(magnitudes, abs(value));
                  const RegisterTensor largest = QuantiseBlocks::largest_of(magnitudes);
                  quantise->store(largest, tiles.end, n_size, offset_m, offset_n + j * store_n);
                  const RegisterTensor factor = QuantiseBlocks::factor_of(largest);
                  for (RegisterTensor& value : values) value = value * factor;
                }
                for (size_t at = 0; at < values.size(); ++at)
                  store_shared(s_slice.slice({0, static_cast<int64_t>(at) * columns}, {consumer_m, columns}),
                               values[at].to(c_type));
              }
              fence::proxy_async();  // what was written becomes visible to TMA
              sync();
              if (auto warp = single_warp()) {
                if (auto full = when(is_full != 0))
                  tma::shared_to_global(s_slice, g_c, {offset_m, offset_n + j * store_n});
                tma::commit_group();  // where it is empty too: what is waited for is a number of groups
              }
              // Rows of the next group are not written.
              if (auto ragged = when(is_full == 0))
                store_global(g_group, load_shared(s_slice), {offset_m, offset_n + j * store_n});
            }
          };
          // Where all of the consumer's rows are beyond the group, the other consumers have the tensor cores. The first one of
          // a tile has some.
          if (i == 0 && cluster_m == 1) {
            compute();
          } else {
            if (auto idle = when(offset_m >= tiles.end)) {
              for ([[maybe_unused]] auto k_block : range(cdiv(k_size, block_k))) {
                pipe.consumer_acquire();
                sync();  // one thread releases for all: a warp that is late for its wait could miss the phase
                release(pipe.consumer_stage);
                pipe.consumer_advance();
              }
            }
            if (auto busy = otherwise()) compute();
          }
          tile += num_clusters;
        }
        if (auto warp = single_warp()) tma::wait_group(0, {.read = true});
      }
    }
  }

  /// Elements of k that the stages hold.
  int64_t ring() const { return int64_t{block_k} * stages; }

 private:
  /// A consumer's sums over k.
  void multiply(const ProductSizes& sizes, Pipeline& pipe, const SharedTensor& s_a, const SharedTensor& s_b,
                RegisterTensor& acc, const auto& release) const {
    Int32 last_stage = stages - 1;
    each_k_block(sizes, [&](const ScalarArg& k_block) {
      pipe.consumer_acquire();
      wgmma::fence();
      wgmma::mma(s_a[pipe.consumer_stage], s_b[pipe.consumer_stage].transpose(), acc,
                 {.scale_d = k_block != 0});
      wgmma::commit_group();
      wgmma::wait_group(1);
      if (auto later = when(k_block != 0)) release(last_stage);
      last_stage = pipe.consumer_stage;
      pipe.consumer_advance();
    });
    wgmma::wait_group(0);
    release(last_stage);
  }

  struct ScaledPlace {
    const ProductSizes& sizes;
    const Int32 &groups, &group, &offset_m, &offset_n;
  };
  /// The same, each block of k scaled by itself. (Two sets of sums, one scaled while the other is computed, do not help:
  /// ptxas lets no product run while sums of another are read.)
  void multiply_scaled(const BlockScales& scales, const ScaledPlace& at, Pipeline& pipe,
                       const SharedTensor& s_a, const SharedTensor& s_b, RegisterTensor& acc,
                       const auto& release) const {
    const int64_t rows = s_a.shape(1);
    Int32 k_blocks = cdiv(at.sizes.k, block_k), n_blocks = cdiv(at.sizes.n(), block_n);
    auto g_scale_a = global_view(scales.a, {k_blocks, at.sizes.m}, {scales.a_stride, 1});
    auto g_scale_b = global_view(scales.b, {at.groups, n_blocks, k_blocks})[at.group];
    // Beyond the last column there are no scales; those elements are not stored.
    Int32 n_block = min(at.offset_n / block_n, n_blocks - 1);
    const auto load = [&](const ScalarArg& k_block) {
      return load_global(g_scale_a, {k_block, at.offset_m}, {rows}).reshape({rows, 1});
    };
    auto partial = wgmma::accumulator(float32, {rows, block_n});
    RegisterTensor scale_a = load(0);
    Float32 scale_b = g_scale_b.item({n_block, 0});
    each_k_block(at.sizes, [&](const ScalarArg& k_block) {
      pipe.consumer_acquire();
      wgmma::fence();
      wgmma::mma(s_a[pipe.consumer_stage], s_b[pipe.consumer_stage].transpose(), partial, {.scale_d = false});
      wgmma::commit_group();
      RegisterTensor scale = scale_a * scale_b;
      Int32 next = min(k_block + 1, k_blocks - 1);  // loaded one block ahead
      scale_a = load(next);
      scale_b = g_scale_b.item({n_block, next});
      wgmma::wait_group(0);
      release(pipe.consumer_stage);
      acc = fma(partial, scale, acc);
      pipe.consumer_advance();
    });
  }

  /// Runs body(k_block) for the blocks of k; written out for each stage where they fill rings.
  template <class Body>
  void each_k_block(const ProductSizes& sizes, const Body& body) const {
    if (sizes.k_fills_rings) {
      assume(sizes.k % (block_k * stages) == 0);
      for (Int32 ring : range(0, sizes.k / (block_k * stages)))
        for (int stage = 0; stage < stages; ++stage) body(ring * stages + stage);
    } else {
      for (Int32 k_block : range(0, cdiv(sizes.k, block_k))) body(k_block);
    }
  }
};

}  // namespace imbrex::kernels
