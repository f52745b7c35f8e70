// SPDX-License-Identifier: Apache-2.0
// Softmax over the rows of a matrix. The kernel here is the simplest: each CTA holds `rows` whole rows in registers, so memory is read and
// written once. The maximum is subtracted first, which keeps exp from overflowing.
#pragma once

#include <limits>

#include "imbrex/lang.h"
#include "imbrex/runtime/device_tensor.h"
#include "imbrex/runtime/stream.h"

namespace imbrex {

/// y = softmax of x along the last dimension. x and y [rows, columns] or [batch, rows, columns], each float16, bfloat16 or
/// float32; any number of columns, which are neighbours in memory; the other strides may be any. y may be x. On a CUDA
/// GPU it returns without waiting. What is compiled, at a first call, serves all numbers of rows, and of columns up to the
/// next power of two (rows/softmax_rows.h). LaunchError names the condition that a call does not meet.
LaunchReport softmax(const DeviceTensor& x, const DeviceTensor& y, const Stream& stream = {},
                     SourceLocation where = SourceLocation::current());

/// The gradient of softmax(): dx = y * (dy - the sum of y * dy along the row), from its result y and the gradient dy of
/// that. Shapes and types as there. dx may be dy or y.
LaunchReport softmax_backward(const DeviceTensor& dy, const DeviceTensor& y, const DeviceTensor& dx,
                              const Stream& stream = {}, SourceLocation where = SourceLocation::current());

namespace kernels {

struct Softmax {
  int rows = 4;

  static auto space() { return Space<Softmax>().choose<&Softmax::rows>({4, 1, 2, 8}); }

  /// y[m, n] = softmax of x[m, n] along n.
  void operator()(Int32 m_size, int n_size, Ptr<float32> x_ptr, Ptr<float32> y_ptr) const {
    require(n_size <= 16384, "softmax holds whole rows in registers: n_size is {}, at most 16384", n_size);
    grid(cdiv(m_size, rows));
    warps(4);
    auto g_x = global_view(x_ptr, {m_size, n_size}), g_y = global_view(y_ptr, {m_size, n_size});
    int columns = 128;  // the row rounded up to a power of two: whole vectors for every thread
    while (columns < n_size) columns *= 2;
    Int32 row = rows * block_idx.x;
    // Columns beyond the row count as -infinity: they change neither the maximum nor the sum.
    auto x = load_global(g_x, {row, 0}, {rows, columns}, {.other = -std::numeric_limits<float>::infinity()});
    auto e = exp(x - max(x, {.axis = 1, .keep = true}));
    store_global(g_y, e / sum(e, {.axis = 1, .keep = true}), {row, 0});
  }
};

}  // namespace kernels
}  // namespace imbrex
