// SPDX-License-Identifier: Apache-2.0
// Softmax over the rows of a matrix: each CTA holds `rows` whole rows in registers, so memory is read and
// written once. The maximum is subtracted first, which keeps exp from overflowing.
#pragma once

#include <limits>

#include "imbrex/kernels/parts/batch.h"
#include "imbrex/lang.h"
#include "imbrex/runtime/device_tensor.h"
#include "imbrex/runtime/stream.h"

namespace imbrex {

/// y = softmax of x along the last dimension: float32, [rows, columns] or [batch, rows, columns], at most 16384
/// columns, which are neighbours in memory; the other strides may be any. y may be x. On a CUDA GPU it returns
/// without waiting; the first call of each number of columns compiles. LaunchError names the condition that a call
/// does not meet.
LaunchReport softmax(const DeviceTensor& x, const DeviceTensor& y, const Stream& stream = {},
                     SourceLocation where = SourceLocation::current());

namespace kernels {

struct Softmax {
  int rows = 4;

  static auto space() { return Space<Softmax>().choose<&Softmax::rows>({4, 1, 2, 8}); }

  /// y[m, n] = softmax of x[m, n] along n.
  void operator()(Int32 m_size, int n_size, Ptr<float32> x_ptr, Ptr<float32> y_ptr) const {
    grid(cdiv(m_size, rows));
    normalise(n_size, global_view(x_ptr, {m_size, n_size}), global_view(y_ptr, {m_size, n_size}));
  }

 protected:
  void normalise(int n_size, const GlobalTensor& g_x, const GlobalTensor& g_y) const {
    require(n_size <= 16384, "softmax holds whole rows in registers: n_size is {}, at most 16384", n_size);
    warps(4);
    int columns = 128;  // the row rounded up to a power of two: whole vectors for every thread
    while (columns < n_size) columns *= 2;
    Int32 row = rows * block_idx.x;
    // Columns beyond the row count as -infinity: they change neither the maximum nor the sum.
    auto x = load_global(g_x, {row, 0}, {rows, columns}, {.other = -std::numeric_limits<float>::infinity()});
    auto e = exp(x - max(x, {.axis = 1, .keep = true}));
    store_global(g_y, e / sum(e, {.axis = 1, .keep = true}), {row, 0});
  }
};

/// Softmax of tensors with strides: `matrices` of [m, n].
struct StridedSoftmax : Softmax {
  void operator()(Int32 matrices, Int32 m_size, int n_size, Ptr<float32> x_ptr, MatrixStrides x_strides,
                  Ptr<float32> y_ptr, MatrixStrides y_strides) const {
    grid(cdiv(m_size, rows), matrices);
    Int32 matrix = block_idx.y;
    normalise(n_size, x_strides.view(x_ptr, float32, matrices, m_size, n_size)[matrix],
              y_strides.view(y_ptr, float32, matrices, m_size, n_size)[matrix]);
  }
};

}  // namespace kernels
}  // namespace imbrex
