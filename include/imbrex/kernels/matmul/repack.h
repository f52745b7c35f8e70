// SPDX-License-Identifier: Apache-2.0
// Copies matrices with any strides into rows that begin and end at multiples of 16 bytes, with zeros behind the columns, as
// TMA reads them: what a product does first with operands that TMA cannot read where they are. Both in one launch.
#pragma once

#include "imbrex/kernels/parts/batch.h"
#include "imbrex/lang.h"

namespace imbrex::kernels {

/// Which dimension of a matrix has stride 1.
enum class Contiguous { kColumns, kRows, kNeither };

/// to[i, j, l] = from[i, j, l], or 0 from column `columns` on, for `matrices` matrices of [rows, columns]; those of `to`
/// have `to_columns`, which are neighbours.
struct RepackedMatrices {
  using Parameters = ParameterList<Int32, Int32, Int32, Int32, Contiguous, int, Ptr<>, Int64, Int64, Int64,
                                   Ptr<>, MatrixStrides>;
  /// The contiguous dimension of `from` counts units.
  Int32 matrices, row_count, column_count, to_columns;
  Contiguous contiguous;
  int unit;  ///< elements that strides, the contiguous extent and the address of `from` are multiples of
  Ptr<> from;
  Int64 batch, row, column;  ///< strides of `from`, in units; that of its contiguous dimension is not used
  Ptr<> to;
  MatrixStrides to_strides;

  ScalarArg rows() const {
    return contiguous == Contiguous::kRows ? ScalarArg(row_count * unit) : ScalarArg(row_count);
  }
  ScalarArg columns() const {
    return contiguous == Contiguous::kColumns ? ScalarArg(column_count * unit) : ScalarArg(column_count);
  }
  GlobalTensor source(DataType dtype) const {
    const ScalarArg one = 1;
    return global_view(from, dtype, {matrices, rows(), columns()},
                       {batch * unit, contiguous == Contiguous::kRows ? one : ScalarArg(row * unit),
                        contiguous == Contiguous::kColumns ? one : ScalarArg(column * unit)});
  }
};
/// What a launch passes for RepackedMatrices.
struct RepackedMatricesArguments {
  int64_t matrices, row_count, column_count, to_columns;
  Contiguous contiguous;
  int unit;
  uint64_t from;
  int64_t batch, row, column;
  uint64_t to;
  MatrixStridesArguments to_strides;
  auto arguments() const {
    return std::tie(matrices, row_count, column_count, to_columns, contiguous, unit, from, batch, row, column,
                    to, to_strides);
  }
};

/// `kOverlaps`: the product begins while it ends.
template <bool kOverlaps>
struct RepackOf {
  static constexpr const char* target = kOverlaps ? "sm_90" : "sm_80";
  int tile = 64;

  /// Copies x and, if `has_more`, y.
  void operator()(DataType dtype, RepackedMatrices x, bool has_more, RepackedMatrices y) const {
    auto x_tiles = tiles(x);
    if (has_more)
      grid(x_tiles + tiles(y));
    else
      grid(x_tiles);
    warps(kWarps);
    if (kOverlaps) {
      griddepcontrol::wait();  // the grid before may still write `from`, or read `to`
      griddepcontrol::launch_dependents();
    }
    auto staged = shared_tensor(dtype, {tile, tile});
    if (!has_more) return copy(x, dtype, staged, block_idx.x);
    if (auto is_first = when(block_idx.x < x_tiles)) copy(x, dtype, staged, block_idx.x);
    if (auto is_second = otherwise()) copy(y, dtype, staged, block_idx.x - x_tiles);
  }

 private:
  static constexpr int kWarps = 4;
  Expr tiles_across(const RepackedMatrices& x) const { return cdiv(x.to_columns, tile); }
  Expr tiles_of_matrix(const RepackedMatrices& x) const { return cdiv(x.rows(), tile) * tiles_across(x); }
  Expr tiles(const RepackedMatrices& x) const { return x.matrices * tiles_of_matrix(x); }

  void copy(const RepackedMatrices& x, DataType dtype, const SharedTensor& staged,
            const ScalarArg& number) const {
    const auto [matrix, in_matrix] = fast_divmod(number, tiles_of_matrix(x));
    const auto [row_tile, column_tile] = fast_divmod(in_matrix, tiles_across(x));
    Int32 row = row_tile * tile, column = column_tile * tile;
    auto part = load_global(x.source(dtype)[matrix], {row, column}, {tile, tile});
    if (x.contiguous == Contiguous::kColumns) annotate_layout(part, of_neighbours(x.unit));
    store_shared(staged, part);
    sync();
    store_global(x.to_strides.view(x.to, dtype, x.matrices, x.rows(), x.to_columns)[matrix],
                 load_shared(staged), {row, column});
  }
  /// Threads hold as many columns as one load has, next to those of their neighbours, so that a warp's loads are whole lines.
  layout::Layout of_neighbours(int unit) const {
    constexpr int kLanes = 32;
    const int units = tile / unit, beside = min(units, kLanes), below = kWarps * (kLanes / beside);
    return layout::local({tile / below, units / beside}) * layout::spatial({below, beside}) *
           layout::local({1, unit});
  }
};
using Repack = RepackOf<false>;
using HopperRepack = RepackOf<true>;

}  // namespace imbrex::kernels
