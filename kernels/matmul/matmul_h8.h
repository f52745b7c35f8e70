// SPDX-License-Identifier: Apache-2.0
// Hopper matmul, step 8: any shape. Where tiles are fewer than multiprocessors, the CTAs of a cluster divide
// k and add up what each has computed; clusters may be of one CTA, tiles have one to three consumers; C may
// have rows that begin anywhere; and a tile may be computed transposed, so that its height is that of
// wgmma's columns, any multiple of 8, and its width that of wgmma's rows.
#pragma once

#include <optional>
#include <vector>

#include "imbrex/lang.h"
#include "parts/cluster_sum.h"
#include "parts/epilogue.h"
#include "parts/operand.h"
#include "parts/pipeline.h"
#include "parts/tile_order.h"

namespace imbrex::kernels {

/// C = steps(A B^T), see epilogue.h.
template <class... Steps>
struct HopperMatmulH8 {
  static constexpr const char* target = "sm_90a";
  int block_m = 128, block_n = 128, block_k = 64, stages = 5, consumers = 2;  // of a CTA
  int splits = 1;  // CTAs, of a tile, that divide k
  int pair = 1;    // CTAs, of tiles along wgmma's rows, that load what gives its columns for each other
  int across = 1;  // CTAs, of tiles along its columns, that load what gives its rows for each other
  bool is_transposed = false;
  int swizzle_size = 8, ctas = 132;
  bool a_is_km = false, b_is_kn = false;  // A is [k, m], B is [k, n] in memory

  static auto space() {
    return Space<HopperMatmulH8>()
        .template choose<&HopperMatmulH8::block_m, &HopperMatmulH8::block_n, &HopperMatmulH8::stages,
                         &HopperMatmulH8::consumers, &HopperMatmulH8::splits, &HopperMatmulH8::pair,
                         &HopperMatmulH8::across, &HopperMatmulH8::is_transposed>(
            {{64, 128, 8, 1, 1, 1, 1, false},  {128, 80, 7, 2, 1, 1, 1, false},
             {128, 128, 6, 2, 1, 1, 1, false}, {128, 176, 5, 2, 1, 1, 1, false},
             {128, 208, 4, 2, 1, 1, 1, false}, {128, 256, 4, 2, 1, 1, 1, false},
             {192, 128, 5, 3, 1, 1, 1, false}, {192, 160, 4, 3, 1, 1, 1, false},
             {128, 128, 6, 2, 1, 2, 1, false}, {128, 192, 5, 2, 1, 2, 1, false},
             {128, 224, 4, 2, 1, 2, 1, false}, {128, 112, 6, 2, 1, 2, 2, false},
             {128, 176, 5, 2, 1, 2, 2, false}, {64, 128, 6, 1, 2, 1, 1, false},
             {128, 224, 3, 2, 2, 1, 1, false}, {128, 96, 6, 2, 3, 1, 1, false},
             {64, 128, 6, 1, 4, 1, 1, false},  {128, 128, 5, 2, 2, 2, 1, false},
             {96, 64, 10, 1, 1, 1, 1, true},   {128, 64, 8, 1, 1, 1, 1, true},
             {200, 64, 6, 1, 1, 1, 1, true},   {80, 128, 8, 2, 1, 1, 1, true},
             {104, 128, 7, 2, 1, 1, 1, true},  {232, 128, 4, 2, 1, 1, 1, true},
             {104, 192, 5, 3, 1, 1, 1, true},  {64, 128, 8, 2, 1, 1, 2, true},
             {128, 128, 6, 2, 1, 1, 2, true},  {200, 128, 5, 2, 1, 1, 2, true},
             {128, 256, 4, 2, 1, 2, 1, true},  {80, 192, 6, 3, 1, 2, 2, true},
             {208, 128, 4, 2, 1, 2, 2, true},  {112, 192, 5, 3, 1, 2, 2, true},
             {96, 192, 5, 3, 1, 4, 2, true},   {64, 64, 8, 1, 2, 1, 1, true},
             {128, 128, 5, 2, 2, 1, 1, true}});
  }

  void operator()(Int32 m_size, int n_size, int k_size, DataType dtype, Ptr<> a_ptr, Ptr<> b_ptr, Ptr<> c_ptr,
                  Epilogue<Steps...> finish) const {
    // X gives wgmma its rows, Y its columns: A and B, or B and A.
    const int block_x = is_transposed ? block_n : block_m, block_y = is_transposed ? block_m : block_n;
    const int consumer_x = block_x / consumers, part_y = block_y / splits;
    const int cluster_ctas = pair * across * splits;
    const int num_k_blocks = cdiv(k_size, block_k), split_blocks = cdiv(num_k_blocks, splits);
    require(!is_transposed || !finish.kReducesRows, "rows are reduced, tiles are computed transposed");
    finish.check(n_size, part_y);
    Int32 num_m_blocks = cdiv(m_size, (is_transposed ? across : pair) * block_m);  // of a cluster
    const int num_n_blocks = cdiv(n_size, (is_transposed ? pair : across) * block_n);
    Int32 num_tiles = num_m_blocks * num_n_blocks;
    grid(min(cluster_ctas * num_tiles, ctas / cluster_ctas * cluster_ctas));
    cluster(cluster_ctas);
    warps(4 + 4 * consumers);
    Int32 rank = cluster_rank();
    // Its place: ranks count places along X first, then along Y, then splits.
    Int32 split = 0, at_x = rank, at_y = 0;
    if (splits > 1) split = rank / (pair * across), at_x = rank % (pair * across);
    if (across > 1) at_y = at_x / pair, at_x = at_x % pair;
    Int32 first_tile = block_idx.x / cluster_ctas, num_clusters = grid_dim.x / cluster_ctas;
    // A CTA's share of the loads of X and Y, in whole lines of memory.
    const bool x_is_km = is_transposed ? b_is_kn : a_is_km, y_is_km = is_transposed ? a_is_km : b_is_kn;
    const Share of_x(x_is_km, block_x, block_k, across, pair, cluster_ctas, rank, at_y),
        of_y(y_is_km, block_y, block_k, pair, 1, cluster_ctas, rank, at_x);

    auto g_a = operand_view(a_ptr, dtype, m_size, k_size, a_is_km);
    auto g_b = operand_view(b_ptr, dtype, n_size, k_size, b_is_kn);
    const auto &g_x = is_transposed ? g_b : g_a, &g_y = is_transposed ? g_a : g_b;
    const DataType c_type = finish.output_type(dtype);
    auto g_c = global_view(c_ptr, c_type, {m_size, n_size});
    auto s_x = operand_stages(dtype, stages, block_x, block_k, x_is_km);
    auto s_y = operand_stages(dtype, stages, block_y, block_k, y_is_km);
    const std::vector<Slice> slices = slices_of(part_y, consumer_x, c_type);
    Pipeline pipe(stages, 1, (pair + across - 1) * consumers);
    std::optional<ClusterSum> cluster_sum;
    if (splits > 1)
      cluster_sum.emplace(splits, split, pair * across, at_y * pair + at_x, consumers, consumer_x, block_y);
    cluster_sync();
    griddepcontrol::wait();  // what came before may have written A and B, and may read C
    griddepcontrol::launch_dependents();

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
          Int32 offset_x = ((is_transposed ? n_block : m_block) * pair + at_x) * block_x;
          Int32 offset_y = ((is_transposed ? m_block : n_block) * across + at_y) * block_y;
          for (Int32 k_block : range(0, k_blocks, {.unroll = unroll})) {
            Int32 offset_k = (split * split_blocks + k_block) * block_k;
            pipe.producer_acquire();  // empty in all CTAs that it is loaded for
            auto s_x_stage = s_x[pipe.producer_stage];
            auto s_y_stage = s_y[pipe.producer_stage];
            if (auto thread = single_thread())
              mbarrier::arrive_and_expect_tx(pipe.producer_barrier(),
                                             s_x_stage.nbytes() + s_y_stage.nbytes());
            const auto load = [&](const Share& share, const GlobalTensor& from, const SharedTensor& stage,
                                  const Int32& offset) {
              for (int first : share.places())
                if (auto here = when(share.is_at(first)))
                  tma::global_to_shared(from, share.of(stage), {offset + share.row, offset_k + share.k},
                                        pipe.producer_barrier(), {.multicast_mask = share.mask(first)});
            };
            load(of_x, g_x, s_x_stage, offset_x);
            load(of_y, g_y, s_y_stage, offset_y);
            pipe.producer_advance();
          }
        }
      }
    }

    // To all CTAs that load something of the stage.
    const auto release = [&](const Int32& stage) {
      if (auto thread = single_thread()) {
        const auto arrive = [&](const ScalarArg& cta) {
          mbarrier::arrive(remote_barrier(pipe.empty_barriers[stage], cta), {.sem = Sem::kRelaxed});
        };
        for (int i = 0; i < pair; ++i) arrive(rank - at_x + i);
        for (int i = 1; i < across; ++i)
          arrive(rank - at_y * pair + select(at_y + i < across, at_y + i, at_y + i - across) * pair);
      }
    };
    // Slices of C leave by TMA where its rows begin at multiples of 32 bytes, the L2 cache's sectors, else in
    // rows of a slice.
    const bool has_tma_rows = n_size * c_type.bits() % 256 == 0;
    const auto store = [&](int i, const auto& sums, const Int32& offset_m, const Int32& offset_n) {
      auto rows = finish.rows(consumer_x);
      const auto part = [&](const Slice& s) {
        return is_transposed ? sums.slice({s.column, s.row}, {s.columns, s.rows}).transpose()
                             : sums.slice({s.row, s.column}, {s.rows, s.columns});
      };
      const auto place = [&](const Slice& s) {
        if (num_n_blocks == 1 && splits == 1 && !is_transposed)
          return OutputTile{m_size, n_size, c_type, offset_m, s.column};
        return OutputTile{m_size, n_size, c_type, offset_m + s.row, offset_n + s.column};
      };
      if (finish.kReducesRows)
        for (const Slice& s : slices) rows.look(part(s), place(s));
      for (const Slice& s : slices) {
        auto s_slice = s.s_c[i].slice({0, 0}, {s.rows, s.columns});
        if (has_tma_rows)
          if (auto warp = single_warp()) tma::wait_group(0, {.read = true});
        sync();  // what was here before has left
        // Steps take fewer of wgmma's columns at a time, for want of registers.
        const int along = is_transposed ? s.rows : s.columns;
        const int step = finish.kEmpty ? along : min(along, (consumers > 2 ? 512 : 2048) / consumer_x);
        for (int j = 0; j < along; j += step) {
          const int size = min(step, along - j);
          const Slice now = is_transposed ? Slice{s.row + j, s.column, size, s.columns, s.s_c}
                                          : Slice{s.row, s.column + j, s.rows, size, s.s_c};
          store_shared(s_slice.slice({now.row - s.row, now.column - s.column}, {now.rows, now.columns}),
                       rows(part(now), place(now)));
        }
        if (has_tma_rows) fence::proxy_async();  // what was written becomes visible to TMA
        sync();
        if (!has_tma_rows) {
          store_global(g_c, load_shared(s_slice), {offset_m + s.row, offset_n + s.column});
        } else if (auto warp = single_warp()) {
          tma::shared_to_global(s_slice, g_c, {offset_m + s.row, offset_n + s.column});
          tma::commit_group();
        }
      }
    };
    for (int i = 0; i < consumers; ++i) {
      if (auto consumer = warp_group(4 + 4 * i, 4)) {
        if (consumers > 1) setmaxnreg(consumers == 2 ? 232 : 160);
        for (Int32 tile : range(first_tile, num_tiles, num_clusters)) {
          auto [m_block, n_block] = compute_block_coord(tile, num_m_blocks, num_n_blocks, swizzle_size);
          auto acc = wgmma::accumulator(float32, {consumer_x, block_y});
          Int32 last_stage = stages - 1;
          for (Int32 k_block : range(0, k_blocks, {.unroll = unroll})) {
            pipe.consumer_acquire();
            wgmma::fence();
            wgmma::mma(s_x[pipe.consumer_stage].slice({i * consumer_x, 0}, {consumer_x, block_k}),
                       s_y[pipe.consumer_stage].transpose(), acc, {.scale_d = k_block != 0});
            wgmma::commit_group();
            wgmma::wait_group(1);
            if (auto later = when(k_block != 0)) release(last_stage);
            last_stage = pipe.consumer_stage;
            pipe.consumer_advance();
          }
          wgmma::wait_group(0);
          release(last_stage);
          Int32 offset_x = ((is_transposed ? n_block : m_block) * pair + at_x) * block_x + i * consumer_x;
          Int32 offset_y = ((is_transposed ? m_block : n_block) * across + at_y) * block_y + split * part_y;
          const Int32 &offset_m = is_transposed ? offset_y : offset_x,
                      &offset_n = is_transposed ? offset_x : offset_y;
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
  /// What a CTA loads of a stage, for itself and the others that need it: rows of it, or, where memory has k
  /// first, a part of k.
  struct Share {
    int ctas, stride, cluster_ctas;  // those that share have ranks first, first + stride, ...
    int rows, columns;
    ScalarArg row = 0, k = 0, first = 0;

    Share(bool is_km, int all_rows, int all_k, int ctas, int stride, int cluster_ctas, const Int32& rank,
          const Int32& number)
        : ctas(ctas),
          stride(stride),
          cluster_ctas(cluster_ctas),
          rows(is_km ? all_rows : all_rows / ctas),
          columns(is_km ? all_k / ctas : all_k) {
      require(rows % 8 == 0 && columns % 8 == 0,
              "{} rows of {} in shares of {} CTAs, of which each is a multiple of 8", all_rows, all_k, ctas);
      if (ctas == 1) return;
      (is_km ? k : row) = ScalarArg(number * (is_km ? columns : rows));
      first = ScalarArg(rank - number * stride);
    }
    SharedTensor of(const SharedTensor& stage) const { return stage.slice({row, k}, {rows, columns}); }
    /// To whom a copy goes is a number in its instruction, so that there is one copy for each `first`.
    std::vector<int> places() const {
      std::vector<int> firsts{0};
      for (int i = 1; ctas > 1 && i < cluster_ctas; ++i)
        if (i / stride % ctas == 0) firsts.push_back(i);
      return firsts;
    }
    ScalarArg is_at(int place) const { return places().size() == 1 ? ScalarArg(true) : first == place; }
    int mask(int place) const {
      int mask = 0;
      for (int i = 0; ctas > 1 && i < ctas; ++i) mask |= 1 << (place + i * stride);
      return mask;
    }
  };
  /// A piece of a consumer's part of C that is stored at once.
  struct Slice {
    int row, column, rows, columns;
    SharedTensor s_c;  // of each consumer
  };
  /// `part_y` of wgmma's columns in slices, of `consumer_x` of its rows.
  std::vector<Slice> slices_of(int part_y, int consumer_x, DataType c_type) const {
    std::vector<Slice> slices;
    if (is_transposed) {  // a product's rows are not to be cut, and slices are to be alike
      constexpr int kColumns = 64;
      const int count = cdiv(part_y * c_type.bits(), 1024), rows = cdiv(part_y, 8 * count) * 8;
      auto s_c = shared_tensor(c_type, {consumers, rows, kColumns});
      for (int row = 0; row < part_y; row += rows)
        for (int column = 0; column < consumer_x; column += kColumns)
          slices.push_back({row, column, min(rows, part_y - row), kColumns, s_c});
      return slices;
    }
    int columns = 1024 / c_type.bits();  // rows of a slice are as long as the widest swizzle
    for (int first = 0; first < part_y; first += columns) {  // then 64, 32 and 16 bytes
      while (columns > part_y - first) columns /= 2;
      const bool is_new = slices.empty() || slices.back().columns != columns;
      slices.push_back(
          {0, first, consumer_x, columns,
           is_new ? shared_tensor(c_type, {consumers, consumer_x, columns}) : slices.back().s_c});
    }
    return slices;
  }
};

}  // namespace imbrex::kernels
