// SPDX-License-Identifier: Apache-2.0
// Kernels that add up something over all rows: a CTA takes many tiles of rows, one after the other, and writes its sum,
// one element for each column, once; another kernel adds up the sums of the CTAs, always in the same order.
#pragma once

#include "imbrex/kernels/rows/row_tile.h"

namespace imbrex::kernels {

/// All tiles of a call, matrix by matrix, which the CTAs take in turn.
class PersistentRows {
 public:
  static constexpr int kWide = 8192;  ///< wider tiles leave no registers for what can be elsewhere
  /// Of a multiprocessor, with as many registers as there are for them; a CTA has no more.
  static constexpr int kThreads = 512;
  static RowTile tile(const RowShape& shape, int bytes, int thread_bytes) {
    return RowTile(shape, bytes, thread_bytes, kThreads);
  }

  PersistentRows(const RowTile& tile, const RowShape& shape)
      : tile_(tile), tiles_(tile.count()), count_(shape.matrices * tiles_) {
    max_registers(65536 / kThreads);
  }
  const RowTile& tile() const { return tile_; }
  const Expr& count() const { return count_; }
  RowPlace place(const ScalarArg& i) const {
    const auto [matrix, tile] = fast_divmod(i, tiles_);
    return {tile * tile_.rows, matrix};
  }

 private:
  const RowTile& tile_;
  Expr tiles_, count_;
};

/// A tensor's tiles, each loaded while the CTA works on the one before it; of wide tiles, which leave no registers for
/// that, when they are needed.
class AheadRows {
 public:
  AheadRows(const PersistentRows& rows, const RowOperand& operand, const RowShape& shape)
      : rows_(rows), operand_(operand), shape_(shape) {
    if (rows.tile().columns <= PersistentRows::kWide) ahead_.emplace(load(block_idx.x));
  }

  /// Tile i, as float32, after which that of the CTA's next turn is loaded.
  RegisterValue take(const ScalarArg& i) {
    if (!ahead_) return load(i).to(float32);
    RegisterTensor now = *ahead_;
    *ahead_ = load(min(i + grid_dim.x, rows_.count() - 1));  // in the last turn one that is not used
    return now.to(float32);
  }

 private:
  RegisterValue load(const ScalarArg& i) const {
    const RowPlace at = rows_.place(i);
    return load_global(operand_.view(shape_, at.matrix), {at.row, 0},
                       {rows_.tile().rows, rows_.tile().columns});
  }
  const PersistentRows& rows_;
  const RowOperand& operand_;
  const RowShape& shape_;
  std::optional<RegisterTensor> ahead_;
};

/// A CTA's sum over its rows, one element for each column; of wide tiles, which leave no registers for it, in shared
/// memory.
class ColumnSum {
 public:
  explicit ColumnSum(const RowTile& tile) {
    const Shape shape{tile.rows, tile.columns};
    if (tile.columns <= PersistentRows::kWide) {
      registers_.emplace(zeros(float32, shape));
    } else {
      shared_.emplace(shared_tensor(float32, shape));
      store_shared(*shared_, zeros(float32, shape));
    }
  }
  void add(const RegisterBase& values) {
    if (registers_)
      *registers_ += values;
    else
      store_shared(*shared_, load_shared(*shared_) + values);
  }
  /// Stores it as row block_idx.x of parts [ctas, columns].
  void store(const RowShape& shape, const Ptr<float32>& parts_ptr) const {
    auto all = registers_ ? RegisterValue(registers_->handle()) : load_shared(*shared_);
    store_global(global_view(parts_ptr, {grid_dim.x, shape.columns()}), sum(all, {.axis = 0, .keep = true}),
                 {block_idx.x, 0});
  }

 private:
  std::optional<RegisterTensor> registers_;
  std::optional<SharedTensor> shared_;
};

/// y[j] = the sum of parts[:, j].
struct SumOfParts {
  int columns = 32, rows = 32;  // of a tile

  void operator()(Int32 parts, Int32 column_units, int column_unit, Ptr<float32> parts_ptr, DataType dtype,
                  Ptr<> y_ptr) const {
    auto size = column_units * column_unit;
    grid(cdiv(size, columns));
    warps(8);
    auto g_parts = global_view(parts_ptr, {parts, size});
    Int32 column = block_idx.x * columns;
    RegisterTensor total = zeros(float32, {rows, columns});
    for (Int32 row : range(0, parts, rows, {.unroll = 2}))
      total += load_global(g_parts, {row, column}, {rows, columns});
    store_global(global_view(y_ptr, dtype, {size}), sum(total, {.axis = 0}).to(dtype), {column});
  }
};

}  // namespace imbrex::kernels
