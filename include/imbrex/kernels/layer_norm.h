// SPDX-License-Identifier: Apache-2.0
// Layer normalisation over the rows of a matrix, with scale and shift. The kernel here is the simplest: each CTA holds `rows` whole rows in
// registers. The variance is that of the centred values, not a difference of squares, which would cancel.
#pragma once

#include "imbrex/lang.h"
#include "imbrex/runtime/device_tensor.h"
#include "imbrex/runtime/stream.h"

namespace imbrex {

/// y = (x - mean) / sqrt(variance + epsilon) * weight + bias along the last dimension. x and y [rows, columns] or
/// [batch, rows, columns], weight and bias [columns], dense; each float16, bfloat16 or float32. y may be x. Otherwise as
/// softmax() (rows/norm_rows.h).
LaunchReport layer_norm(const DeviceTensor& x, const DeviceTensor& weight, const DeviceTensor& bias,
                        const DeviceTensor& y, float epsilon = 1e-5f, const Stream& stream = {},
                        SourceLocation where = SourceLocation::current());

/// The gradients of layer_norm(): from dy, that of y, those of x, weight and bias, of which any may be null.
///
///   dx = r * (g - mean(g) - normal * mean(g * normal)),   g = dy * weight,   r = 1 / sqrt(variance + epsilon)
///   dweight = the sum over all rows of dy * normal,   dbias = the sum over all rows of dy,   normal = (x - mean) * r
///
/// Shapes and types as there, dx as x, dweight and dbias as weight; at most 16384 columns. dx may be dy or x. Results have
/// the same bits in every run on devices with as many multiprocessors.
LaunchReport layer_norm_backward(const DeviceTensor& dy, const DeviceTensor& x, const DeviceTensor& weight,
                                 const DeviceTensor& dx, const DeviceTensor& dweight,
                                 const DeviceTensor& dbias, float epsilon = 1e-5f, const Stream& stream = {},
                                 SourceLocation where = SourceLocation::current());

namespace kernels {

struct LayerNorm {
  int rows = 4;

  static auto space() { return Space<LayerNorm>().choose<&LayerNorm::rows>({4, 1, 2, 8}); }

  /// y = (x - mean) / sqrt(variance + epsilon) * weight + bias, for each row of x[m, n].
  void operator()(Int32 m_size, int n_size, Float32 epsilon, Ptr<float32> x_ptr, Ptr<float32> weight_ptr,
                  Ptr<float32> bias_ptr, Ptr<float32> y_ptr) const {
    require(n_size <= 16384, "layer_norm holds whole rows in registers: n_size is {}, at most 16384", n_size);
    grid(cdiv(m_size, rows));
    warps(4);
    auto g_x = global_view(x_ptr, {m_size, n_size}), g_y = global_view(y_ptr, {m_size, n_size});
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

}  // namespace kernels
}  // namespace imbrex
