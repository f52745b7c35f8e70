// SPDX-License-Identifier: Apache-2.0
// Copies matrices with any strides into rows that begin and end at multiples of 16 bytes, with zeros behind the columns, as
// TMA reads them: what a product does first with an operand that TMA cannot read where it is.
#pragma once

#include "imbrex/kernels/parts/batch.h"
#include "imbrex/lang.h"

namespace imbrex::kernels {

/// Which dimension of a matrix has stride 1.
enum class Contiguous { kColumns, kRows, kNeither };

struct Repack {
  int tile = 64;

  /// to[i, j, l] = from[i, j, l], or 0 from column `columns` on, for `matrices` matrices of [rows, columns]; those of `to`
  /// have `to_columns`. The strides of `from` are in elements, that of its contiguous dimension is not used; `to` has rows
  /// of neighbours.
  void operator()(Int32 matrices, Int32 rows, Int32 columns, Int32 to_columns, DataType dtype,
                  Contiguous contiguous, Ptr<> from_ptr, Int64 from_batch, Int64 from_row, Int64 from_column,
                  Ptr<> to_ptr, MatrixStrides to_strides) const {
    auto row_tiles = cdiv(rows, tile), column_tiles = cdiv(to_columns, tile);
    auto matrix_tiles = row_tiles * column_tiles;
    grid(matrices * matrix_tiles);
    warps(4);
    const auto [matrix, in_matrix] = fast_divmod(block_idx.x, matrix_tiles);
    const auto [row_tile, column_tile] = fast_divmod(in_matrix, column_tiles);
    Int32 row = row_tile * tile, column = column_tile * tile;
    const ScalarArg one = 1;
    auto from = global_view(from_ptr, dtype, {matrices, rows, columns},
                            {from_batch, contiguous == Contiguous::kRows ? one : ScalarArg(from_row),
                             contiguous == Contiguous::kColumns ? one : ScalarArg(from_column)});
    auto to = to_strides.view(to_ptr, dtype, matrices, rows, to_columns);
    auto staged = shared_tensor(dtype, {tile, tile});
    store_shared(staged, load_global(from[matrix], {row, column}, {tile, tile}));
    sync();
    store_global(to[matrix], load_shared(staged), {row, column});
  }
};

}  // namespace imbrex::kernels
