// SPDX-License-Identifier: Apache-2.0
// Layer normalisation over the rows of a matrix, with scale and shift: each CTA holds `rows` whole rows in
// registers. The variance is that of the centred values, not a difference of squares, which would cancel.
#pragma once

#include "imbrex/kernels/parts/batch.h"
#include "imbrex/lang.h"
#include "imbrex/runtime/device_tensor.h"
#include "imbrex/runtime/stream.h"

namespace imbrex {

/// y = (x - mean) / sqrt(variance + epsilon) * weight + bias along the last dimension: float32, x and y [rows, columns]
/// or [batch, rows, columns], at most 16384 columns, which are neighbours in memory; the other strides may be any;
/// weight and bias [columns], dense. y may be x. Otherwise as softmax().
LaunchReport layer_norm(const DeviceTensor& x, const DeviceTensor& weight, const DeviceTensor& bias,
                        const DeviceTensor& y, float epsilon = 1e-5f, const Stream& stream = {},
                        SourceLocation where = SourceLocation::current());

namespace kernels {

struct LayerNorm {
  int rows = 4;

  static auto space() { return Space<LayerNorm>().choose<&LayerNorm::rows>({4, 1, 2, 8}); }

  /// y = (x - mean) / sqrt(variance + epsilon) * weight + bias, for each row of x[m, n].
  void operator()(Int32 m_size, int n_size, Float32 epsilon, Ptr<float32> x_ptr, Ptr<float32> weight_ptr,
                  Ptr<float32> bias_ptr, Ptr<float32> y_ptr) const {
    grid(cdiv(m_size, rows));
    normalise(n_size, epsilon, global_view(x_ptr, {m_size, n_size}), weight_ptr, bias_ptr,
              global_view(y_ptr, {m_size, n_size}));
  }

 protected:
  void normalise(int n_size, const Float32& epsilon, const GlobalTensor& g_x, const Ptr<float32>& weight_ptr,
                 const Ptr<float32>& bias_ptr, const GlobalTensor& g_y) const {
    require(n_size <= 16384, "layer_norm holds whole rows in registers: n_size is {}, at most 16384", n_size);
    warps(4);
    int columns = 128;  // the row rounded up to a power of two: whole vectors for every thread
    while (columns < n_size) columns *= 2;
    Int32 row = rows * block_idx.x;
    auto x = load_global(g_x, {row, 0}, {rows, columns});
    auto weight = load_global(global_view(weight_ptr, {n_size}), {0}, {columns});
    auto bias = load_global(global_view(bias_ptr, {n_size}), {0}, {columns});

    auto mean = sum(x, {.axis = 1, .keep = true}) / n_size;
    // Columns beyond the row were loaded as 0 and would add mean^2 to the variance.
    auto in_row = register_tensor(boolean, {rows, columns}, [&](auto, auto j) { return j < n_size; });
    auto centred = select(in_row, x - mean, 0.0f);
    auto variance = sum(centred * centred, {.axis = 1, .keep = true}) / n_size;
    store_global(g_y, centred * rsqrt(variance + epsilon) * weight + bias, {row, 0});
  }
};

/// LayerNorm of tensors with strides: `matrices` of [m, n].
struct StridedLayerNorm : LayerNorm {
  void operator()(Int32 matrices, Int32 m_size, int n_size, Float32 epsilon, Ptr<float32> x_ptr,
                  MatrixStrides x_strides, Ptr<float32> weight_ptr, Ptr<float32> bias_ptr, Ptr<float32> y_ptr,
                  MatrixStrides y_strides) const {
    grid(cdiv(m_size, rows), matrices);
    Int32 matrix = block_idx.y;
    normalise(n_size, epsilon, x_strides.view(x_ptr, float32, matrices, m_size, n_size)[matrix], weight_ptr,
              bias_ptr, y_strides.view(y_ptr, float32, matrices, m_size, n_size)[matrix]);
  }
};

}  // namespace kernels
}  // namespace imbrex
