// SPDX-License-Identifier: Apache-2.0
// What a matmul asks of the step of its epilogue that stands for the other GPUs: in which order it takes tiles, where A comes
// from, where a tile of sums goes. Without such a step it is as a kernel that knows nothing of ranks (OneRank).
#pragma once

#include <type_traits>

#include "imbrex/kernels/parts/batch.h"
#include "imbrex/kernels/parts/epilogue.h"
#include "imbrex/kernels/parts/product_sizes.h"
#include "imbrex/kernels/parts/tile_order.h"
#include "imbrex/kernels/ranks/gathered_rows.h"
#include "imbrex/kernels/ranks/scattered_rows.h"
#include "imbrex/lang.h"

namespace imbrex::kernels {

/// A, B and C are this GPU's.
class OneRank {
 public:
  template <class Rows>
  const Rows& rows_of_a(const Rows& m) const {
    return m;
  }
  const ProductSizes& sizes_of_c(const ProductSizes& sizes) const { return sizes; }
  template <class Tiles>
  const Tiles& tiles(const Tiles& matrix_tiles) const {
    return matrix_tiles;
  }
  TileOfBatch tile(const Batch* batch, const ScalarArg& tile, const ScalarArg& matrix_tiles) const {
    return tile_of_batch(batch, tile, matrix_tiles);
  }
  BlockCoord block(const ScalarArg& tile, const ScalarArg& num_m_blocks, const ScalarArg& num_n_blocks,
                   int swizzle_size) const {
    return compute_block_coord(tile, num_m_blocks, num_n_blocks, swizzle_size);
  }
  struct SourceOfA {
    GlobalTensor a;
    const Int32& row;
    template <class Load>
    void operator()(const ScalarArg&, const Load& load) const {
      load(a, row);
    }
  };
  SourceOfA source_of_a(const GlobalTensor& a, const ScalarArg& /*matrix*/, const Int32& row) const {
    return {a, row};
  }
  template <class Store>
  void store(const Store& store, int group, const RegisterBase& sums, const Int32& row, const Int32& column,
             const ScalarArg& matrix, const TileOfBatch&, const Int32&) const {
    store(group, sums, row, column, matrix);
  }
  void between_blocks(const ScalarArg&) const {}
  void end_of_tiles(const Int32&, const Int32&, const Int32&, const ScalarArg&, const Int32&, int) const {}
  void begin() const {}
  void carry() const {}
  void end() const {}
};

/// The tiles of a kernel with these steps. The whole CTA executes it.
template <class... Steps>
auto tiles_of_ranks(const Epilogue<Steps...>& finish, const ProductSizes& sizes, const RankTileShape& shape) {
  if constexpr ((std::is_same_v<Steps, GatheredRows> || ...))
    return GatheredTiles(*finish.template find<GatheredRows>(), sizes, shape);
  else if constexpr ((std::is_same_v<Steps, ScatteredRows> || ...))
    return ScatteredTiles(*finish.template find<ScatteredRows>(), sizes, shape);
  else
    return OneRank();
}

}  // namespace imbrex::kernels
