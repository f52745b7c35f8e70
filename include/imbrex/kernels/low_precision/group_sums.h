// SPDX-License-Identifier: Apache-2.0
// What the products with packed weights share: their operands, and the products of a stage by mma.sync.
#pragma once

#include <algorithm>
#include <optional>
#include <tuple>

#include "imbrex/kernels/low_precision/dequantise.h"
#include "imbrex/kernels/low_precision/finish.h"
#include "imbrex/kernels/parts/batch.h"
#include "imbrex/lang.h"

namespace imbrex::kernels {

/// A matrix [rows, columns], of which only rows lie apart.
inline GlobalTensor matrix_view(const PtrArg& pointer, DataType dtype, const MatrixStrides& strides,
                                const ScalarArg& rows, const ScalarArg& columns) {
  return global_view(pointer, dtype, {rows, columns}, {strides.row * strides.unit, 1});
}

/// The rows X [m, k], of the type that weights become, or of 8 bits, int8 or float8_e4m3: these become that type, exactly, on
/// their way to the tensor cores.
struct ActivationRows {
  using Parameters = ParameterList<DataType, Ptr<>, MatrixStrides>;
  DataType dtype;
  Ptr<> pointer;
  MatrixStrides strides;

  GlobalTensor view(const ScalarArg& m, int k) const { return matrix_view(pointer, dtype, strides, m, k); }
  /// Blocks of 64 columns, [k / 64, m, 64], so that one copy fetches those of several.
  GlobalTensor blocks(const ScalarArg& m, int k) const {
    return global_view(pointer, dtype, {k / 64, m, 64}, {64, strides.row * strides.unit, 1});
  }
};
template <class Address = uint64_t>  // or const DeviceTensor&
struct ActivationRowsArguments {
  DataType dtype;
  Address address;
  MatrixStridesArguments strides;
  auto arguments() const { return std::tie(dtype, address, strides); }
};

/// The first group that a tile of k has a part of.
inline Expr first_group(const Int32& tile_k, int group) {
  return group > kWeightTileK ? tile_k * kWeightTileK / group : tile_k * (kWeightTileK / group);
}

/// How a stage of packed weights is shared by warps: `tiles` tiles of 64 rows, below each other and then along k, of which
/// each warp has `warp_rows` rows.
struct StageShares {
  int tiles, k_tiles, warp_rows, block_m;
  int rows() const { return tiles * kWeightTileN; }
  int warps() const { return rows() / warp_rows; }
  /// The first column of the warp's tile, in blocks of 64. It differs between warps.
  Int32 first_block() const {
    const int tile_threads = 32 * kWeightTileN / warp_rows;
    UInt32 tile =
        UInt32(thread_index()) / static_cast<uint32_t>(tile_threads) % static_cast<uint32_t>(k_tiles);
    return Int32(tile * (kWeightTileK / 64));
  }
};

/// Adds the products of a stage to acc [rows, block_m]: of the weights, of scales, and of x [blocks of k, block_m, 64].
/// Those of a group are summed as they are, and multiplied by its factor once, in float32.
inline void sum_stage(RegisterTensor& acc, const StageShares& shares, const PackedTile& tile,
                      const SharedTensor& scales, const SharedTensor& x, const Int32& first_block, int group,
                      int zero_points, DataType dtype) {
  const int groups_per_tile = std::max(1, kWeightTileK / group), steps = kWeightSteps / groups_per_tile;
  const int rows = shares.rows(), block_m = shares.block_m;
  // Factors, or zero points, of group `g` of the tiles, [rows, 1].
  auto of_tiles =
      scales.reshape({shares.tiles, groups_per_tile, 1 + zero_points, kWeightTileN}).permute({2, 1, 0, 3});
  const auto of_group = [&](int which, int g) { return load_shared(of_tiles[which][g].reshape({rows, 1})); };
  for (int g = 0; g < groups_per_tile; ++g) {
    std::optional<RegisterValue> zero;
    if (zero_points) zero.emplace(of_group(1, g));
    RegisterTensor part = zeros(float32, {rows, block_m});
    for (int step = g * steps; step < (g + 1) * steps; ++step) {
      auto at = x.slice({first_block + step / 4, 0, 16 * (step % 4)}, {1, block_m, 16});
      auto b = load_shared(at.reshape({block_m, 16})).transpose();
      part = mma(tile.weights(step, zero), x.dtype() == dtype ? RegisterValue(b) : b.to(dtype), part,
                 {.warps_m = shares.warps(), .warps_n = 1});
    }
    acc = fma(part, of_group(0, g).to(float32), acc);
  }
}

/// Every warp of the warp group has read the words. Without the fence loads that are still on their way, behind those of the
/// products, may find what TMA brings next: on the chip, the barrier alone holds back nothing but other threads' accesses.
inline void release_words(const Barrier& empty) {
  fence::proxy_async();
  for (int i = 0; i < 4; ++i)
    if (auto warp = single_warp(i)) {
      sync();
      if (auto thread = single_thread()) mbarrier::arrive(empty);
    }
}

/// The sums of the tiles of k added up: `columns` of the rows of W from `first_row` on, [block_m, columns]. They were
/// stored to s_sums [block_m, row_tiles, k_tiles, 64].
inline RegisterValue sum_of_tiles(const SharedTensor& s_sums, int first_row, int columns) {
  const int each = std::min(columns, kWeightTileN), count = columns / each;
  const int64_t block_m = s_sums.shape(0);
  const auto of = [&](int64_t k) {
    auto part =
        s_sums.slice({0, first_row / kWeightTileN, k, first_row % kWeightTileN}, {block_m, count, 1, each});
    return load_shared(part.reshape({block_m, columns}));
  };
  const auto up_to = [&](const auto& self, int64_t last) -> RegisterValue {
    if (last == 0) return of(0);
    return self(self, last - 1) + of(last);
  };
  return up_to(up_to, s_sums.shape(2) - 1);
}

/// Where the CTAs of a cluster, which divide k, give each other their sums: each gets those of a part of the rows of W.
/// The whole CTA makes it, and begins with it. Of two CTAs one may send what it has while the other is still at its products,
/// so that this memory is nothing else's, and waits for no more than what it adds: 0.1 to 0.4 us less than barriers of the
/// cluster before and after. Of more, which would each signal all others, those are faster: 8.2 to 7.5 us for four.
struct SumsOfCluster {
  SumsOfCluster(int split_k, int threads, int block_m, int part_n,
                SourceLocation where = SourceLocation::current())
      : split_k(split_k), part_n(part_n) {
    if (split_k == 1) return;
    s_parts.emplace(shared_tensor(float32, {split_k, block_m, part_n}, where));
    if (split_k == 2) received.emplace(mbarrier::alloc(int64_t{threads} * split_k, where));
  }

  /// The CTA's barriers are ready, and the other's.
  void begin() const {
    if (received)
      cluster_sync();
    else
      sync_threads();
  }

  /// Sends every CTA of the cluster its part of s_sums, as above, and gives the sum of what all have sent.
  RegisterTensor operator()(const SharedTensor& s_sums, const Int32& rank) const {
    if (received)
      sync_threads();
    else
      cluster_sync();  // the others have started
    for (int part = 0; part < split_k; ++part) {
      store_remote_shared((*s_parts)[rank], sum_of_tiles(s_sums, part * part_n, part_n), part);
      if (received) mbarrier::arrive(remote_barrier(*received, part));
    }
    if (received)
      mbarrier::wait(*received, 0, {.scope = Scope::kCluster});
    else
      cluster_sync();
    RegisterTensor sum = load_shared((*s_parts)[0]);
    for (int i = 1; i < split_k; ++i) sum += load_shared((*s_parts)[i]);
    return sum;
  }

  int split_k, part_n;

 private:
  std::optional<SharedTensor> s_parts;  // [CTA that sends, block_m, part_n]
  std::optional<Barrier> received;
};

/// Stores what the CTA at `at` has summed, s_sums as above; of a cluster, a part of the rows of W.
inline void store_sums(const SharedTensor& s_sums, const SumsOfCluster& cluster, const Int32& rank,
                       const OutputTile& at, const PackedFinish& finish, const GlobalTensor& g_c) {
  const int part_n = cluster.part_n;
  if (cluster.split_k == 1) {
    sync_threads();
    store_global(g_c, finish(sum_of_tiles(s_sums, 0, part_n), at), {at.row, at.column});
    return;
  }
  const RegisterTensor sum = cluster(s_sums, rank);
  auto column = at.column + rank * part_n;
  store_global(g_c, finish(sum, {at.rows, at.columns, at.dtype, at.row, column}), {at.row, column});
}

}  // namespace imbrex::kernels
