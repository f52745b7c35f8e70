// SPDX-License-Identifier: Apache-2.0
// Transposing matrices in memory.
#pragma once

#include "imbrex/kernels/rows/row_tile.h"
#include "imbrex/runtime/device_tensor.h"
#include "imbrex/runtime/stream.h"

namespace imbrex {

/// y[j, i] = x[i, j], for each matrix of a batch: x [m, n] or [batch, m, n], y [n, m] or [batch, n, m], both of one type
/// whose elements have 8, 16 or 32 bits. Columns are neighbours in memory, the other strides may be any. x and y must
/// not share memory. (Where a view will do, use DeviceTensor::transpose(), which moves nothing.) Otherwise as rms_norm().
LaunchReport transpose(const DeviceTensor& x, const DeviceTensor& y, const Stream& stream = {},
                       SourceLocation where = SourceLocation::current());

namespace kernels {

struct Transpose {
  // Blocks of 16 bytes by as many elements, a thread's, that a CTA has below and beside each other: it loads rows of 16 *
  // right bytes and stores rows of 16 * down.
  int down = 16, right = 16;
  int tile_rows = 128, tile_columns = 64;  // that a CTA moves where rows do not consist of 16 bytes

  static auto space() {
    return Space<Transpose>().choose<&Transpose::down, &Transpose::right>(
        {{16, 16}, {16, 8}, {8, 16}, {32, 8}, {8, 8}});
  }

  /// y[matrix][j][i] = x[matrix][i][j], for m_units * m_unit rows and n_units * n_unit columns of x. `dtype` is any of as
  /// many bits as the elements have: they are moved, not read.
  void operator()(Int32 matrices, Int32 m_units, int m_unit, Int32 n_units, int n_unit, DataType dtype,
                  Ptr<> x_ptr, MatrixStrides x_strides, Ptr<> y_ptr, MatrixStrides y_strides) const {
    const int block = 16 / dtype.bytes();
    if (m_unit % block == 0 && n_unit % block == 0 && x_strides.unit % block == 0 &&
        y_strides.unit % block == 0)
      return move_blocks(matrices, m_units * (m_unit / block), n_units * (n_unit / block), dtype, x_ptr,
                         x_strides, y_ptr, y_strides);
    auto m = m_units * m_unit, n = n_units * n_unit;
    auto across = cdiv(n, tile_columns), tiles = cdiv(m, tile_rows) * across;
    grid(matrices * tiles);
    warps(8);
    const auto [matrix, in_matrix] = fast_divmod(block_idx.x, tiles);
    const auto [row, column] = fast_divmod(in_matrix, across);
    Int32 first_row = row * tile_rows, first_column = column * tile_columns;
    auto x = load_global(x_strides.view(x_ptr, dtype, matrices, m, n)[matrix], {first_row, first_column},
                         {tile_rows, tile_columns});
    auto g_y = y_strides.view(y_ptr, dtype, matrices, n, m)[matrix];
    store_global(g_y, relayout(x.transpose()), {first_column, first_row});
  }

 private:
  /// The same where all rows begin at multiples of 16 bytes and have a multiple of them. A thread loads the rows of a
  /// block and turns them into its columns, which go through shared memory, so that neighbouring threads store neighbours.
  void move_blocks(const Int32& matrices, const ScalarArg& blocks_down, const ScalarArg& blocks_right,
                   DataType dtype, const Ptr<>& x_ptr, const MatrixStrides& x_strides, const Ptr<>& y_ptr,
                   const MatrixStrides& y_strides) const {
    using layout::Axis;
    const int block = 16 / dtype.bytes(), threads = down * right;
    auto across = cdiv(blocks_right, right), tiles = cdiv(blocks_down, down) * across;
    grid(matrices * tiles);
    warps(threads / 32);
    const auto [matrix, in_matrix] = fast_divmod(block_idx.x, tiles);
    const auto [row, column] = fast_divmod(in_matrix, across);
    Int32 first_row = row * down, first_column = column * right;
    const auto row_of = [](const MatrixStrides& s) { return s.row * s.unit; };
    // [row in the block, block's row, block's column, column in the block]
    auto g_x = global_view(
        x_ptr, dtype, {matrices, block, blocks_down, blocks_right, block},
        {x_strides.batch * x_strides.unit, row_of(x_strides), row_of(x_strides) * block, block, 1})[matrix];
    auto x = load_global(g_x, {0, first_row, first_column, 0}, {block, down, right, block});
    annotate_layout(x, layout::local({block, 1, 1, 1}) * layout::spatial({1, down, right, 1}) *
                           layout::local({1, 1, 1, block}));
    // [column in the block, block's column, block's row, row in the block]
    auto turned = relayout(x.permute({3, 2, 1, 0}), layout::Layout({block, right, down, block},
                                                                   {{{block, block, Axis::kRegister}},
                                                                    {{right, 1, Axis::kThread}},
                                                                    {{down, right, Axis::kThread}},
                                                                    {{block, 1, Axis::kRegister}}},
                                                                   {}));
    auto s_y = shared_tensor(dtype, {block, right, down * block});
    store_shared(s_y, turned.reshape({block, right, down * block}));
    sync();
    auto y = load_shared(s_y);
    // threads = right * down: a row of blocks at a time
    annotate_layout(
        y, layout::local({block, 1, 1}) * layout::spatial({1, right, down}) * layout::local({1, 1, block}));
    auto g_y = global_view(
        y_ptr, dtype, {matrices, block, blocks_right, blocks_down * block},
        {y_strides.batch * y_strides.unit, row_of(y_strides), row_of(y_strides) * block, 1})[matrix];
    store_global(g_y, y, {0, first_column, first_row * block});
  }
};

}  // namespace kernels
}  // namespace imbrex
