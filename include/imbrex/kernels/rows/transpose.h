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
  int tile = 64;  // rows and columns of x that a CTA moves

  static auto space() { return Space<Transpose>().choose<&Transpose::tile>({64, 32, 128}); }

  /// y[matrix][j][i] = x[matrix][i][j], for m_units * m_unit rows and n_units * n_unit columns of x. `dtype` is any of as
  /// many bits as the elements have: they are moved, not read.
  void operator()(Int32 matrices, Int32 m_units, int m_unit, Int32 n_units, int n_unit, DataType dtype,
                  Ptr<> x_ptr, MatrixStrides x_strides, Ptr<> y_ptr, MatrixStrides y_strides) const {
    auto m = m_units * m_unit, n = n_units * n_unit;
    auto across = cdiv(n, tile), tiles = cdiv(m, tile) * across;
    grid(matrices * tiles);
    warps(tile * tile * dtype.bytes() / 32 >= 256 ? 8 : 4);
    const auto [matrix, in_matrix] = fast_divmod(block_idx.x, tiles);
    const auto [down, right] = fast_divmod(in_matrix, across);
    Int32 row = down * tile, column = right * tile;
    auto x = load_global(x_strides.view(x_ptr, dtype, matrices, m, n)[matrix], {row, column}, {tile, tile});
    auto g_y = y_strides.view(y_ptr, dtype, matrices, n, m)[matrix];
    store_global(g_y, relayout(x.transpose()), {column, row});
  }
};

}  // namespace kernels
}  // namespace imbrex
