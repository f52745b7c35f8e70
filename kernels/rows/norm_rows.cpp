// SPDX-License-Identifier: Apache-2.0
#include "imbrex/kernels/rows/norm_rows.h"

#include <cmath>

#include "imbrex/kernels/layer_norm.h"
#include "imbrex/runtime/caller_line.h"
#include "kernel_of_device.h"
#include "rows/column_sums.h"
#include "rows/row_call.h"
#include "rows/row_case.h"

namespace imbrex {

LaunchReport layer_norm(const DeviceTensor& x, const DeviceTensor& weight, const DeviceTensor& bias,
                        const DeviceTensor& y, float epsilon, const Stream& stream, SourceLocation where) {
  const CallerLine caller(where);
  RowCall call("layer_norm", "x", x);
  const auto weights = call.column_operand("weight", weight), biases = call.column_operand("bias", bias);
  call.result("y", y);
  const kernels::RowShapeArguments shape = call.spanned_shape();
  return kernel_of_device<kernels::LayerNormRows>(x.device())
      .on(stream)(shape, call.is_whole(), shape.tile_columns == call.columns(), epsilon, call.arguments(x),
                  weights, biases, call.arguments(y));
}

LaunchReport layer_norm_backward(const DeviceTensor& dy, const DeviceTensor& x, const DeviceTensor& weight,
                                 const DeviceTensor& dx, const DeviceTensor& dweight,
                                 const DeviceTensor& dbias, float epsilon, const Stream& stream,
                                 SourceLocation where) {
  const CallerLine caller(where);
  RowCall call("layer_norm_backward", "dy", dy);
  call.operand("x", x);
  const auto weights = call.column_operand("weight", weight);
  if (!dx.is_null()) call.result("dx", dx);
  const ColumnSums sums(call, {{"dweight", &dweight}, {"dbias", &dbias}}, {&dy, &x},
                        kernels::LayerNormBackward().thread_bytes, stream);
  if (sums.are_wide())
    return sums.add_up(kernel_of_device<kernels::WideLayerNormBackward>(dy.device())
                           .on(stream)(call.row_shape(), call.row_shape().tile_columns == call.columns(),
                                       sums.ctas(), epsilon, call.arguments(dy), call.arguments(x), weights,
                                       !dx.is_null(), call.arguments(dx.is_null() ? x : dx), sums.has(0),
                                       sums.parts(0), sums.has(1), sums.parts(1)));
  const auto launch = [&](auto& kernel) {
    const kernels::RowShapeArguments shape = call.row_shape();
    return kernel.on(stream)(shape, shape.matrices == 1, shape.tile_columns == call.columns(), sums.ctas(),
                             sums.late_ctas(), sums.room(), epsilon, call.arguments(dy), call.arguments(x),
                             weights, !dx.is_null(), call.arguments(dx.is_null() ? x : dx), sums.has(0),
                             sums.parts(0), sums.has(1), sums.parts(1));
  };
  return sums.add_up(sums.overlaps() ? launch(kernel_of_device<kernels::HopperLayerNormBackward>(dy.device()))
                                     : launch(kernel_of_device<kernels::LayerNormBackward>(dy.device())));
}

namespace kernels {
namespace {

/// (x - mean) / sqrt(variance + epsilon) of a row, and the factor.
struct NormalRow {
  std::vector<double> values;
  double scale;
  NormalRow(const double* x, int64_t n, double epsilon) {
    double mean = 0, variance = 0;
    for (int64_t j = 0; j < n; ++j) mean += x[j] / static_cast<double>(n);
    for (int64_t j = 0; j < n; ++j) variance += (x[j] - mean) * (x[j] - mean) / static_cast<double>(n);
    scale = 1 / std::sqrt(variance + epsilon);
    for (int64_t j = 0; j < n; ++j) values.push_back((x[j] - mean) * scale);
  }
};

constexpr float kEpsilon = 1e-5f;

const KernelRegistration<LayerNormRows> forward{
    {"layer_norm_rows", "layer normalisation of each row, of any length and type", row_sizes(123, 1000)},
    [](Case& c, Kernel<LayerNormRows>& kernel) {
      const RowCase rows(c);
      DeviceTensor x = rows.input(), weight = c.input(rows.dtype, {rows.n}),
                   bias = c.input(rows.dtype, {rows.n}), y = rows.output();
      const RowShapeArguments shape = rows.spanned_shape();
      c.launch(kernel, shape, rows.is_whole(), shape.tile_columns == rows.n, kEpsilon, rows.operand(x),
               rows.column(weight), rows.column(bias), rows.operand(y));
      c.expect(y, [&](std::span<double> out) {
        const std::vector<double> in = c.values(x), w = c.values(weight), b = c.values(bias);
        rows.each([&](int64_t first) {
          const NormalRow normal(&in[first], rows.n, kEpsilon);
          for (int64_t j = 0; j < rows.n; ++j) out[first + j] = normal.values[j] * w[j] + b[j];
        });
      });
    }};

template <class K>
void try_backward(Case& c, Kernel<K>& kernel) {
  const RowCase rows(c);
  const int64_t ctas = c.size("ctas"), n = rows.n;
  DeviceTensor dy = rows.input(), x = rows.input(), weight = c.input(rows.dtype, {n}), dx = rows.output(),
               weight_parts = c.output(float32, {ctas, n}), bias_parts = c.output(float32, {ctas, n});
  const kernels::RowShapeArguments shape = rows.shape();
  const bool is_full = shape.tile_columns == n;
  if constexpr (std::is_same_v<K, WideLayerNormBackward>)
    c.launch(kernel, shape, is_full, ctas, kEpsilon, rows.operand(dy), rows.operand(x), rows.column(weight),
             true, rows.operand(dx), true, weight_parts, true, bias_parts);
  else
    c.launch(kernel, shape, true, is_full, ctas, 0, kTriedRoom, kEpsilon, rows.operand(dy), rows.operand(x),
             rows.column(weight), true, rows.operand(dx), true, weight_parts, true, bias_parts);
  c.expect(dx, [&](std::span<double> out) {
    const std::vector<double> in = c.values(x), w = c.values(weight), gradient = c.values(dy);
    rows.each([&](int64_t first) {
      const NormalRow normal(&in[first], n, kEpsilon);
      double along = 0, shift = 0;
      for (int64_t j = 0; j < n; ++j) {
        along += gradient[first + j] * w[j] * normal.values[j] / static_cast<double>(n);
        shift += gradient[first + j] * w[j] / static_cast<double>(n);
      }
      for (int64_t j = 0; j < n; ++j)
        out[first + j] = normal.scale * (gradient[first + j] * w[j] - shift - normal.values[j] * along);
    });
  });
}

const KernelRegistration<LayerNormBackward> backward{
    {"layer_norm_backward", "gradients of layer normalisation: of x, and of weight and bias per CTA",
     with_ctas(row_sizes(123, 1000))},
    try_backward<LayerNormBackward>};
const KernelRegistration<HopperLayerNormBackward> hopper_backward{
    {"hopper_layer_norm_backward", "the same, during whose end the next kernel starts",
     with_ctas(row_sizes(123, 1000))},
    try_backward<HopperLayerNormBackward>};
const KernelRegistration<WideLayerNormBackward> wide_backward{
    {"wide_layer_norm_backward", "the same of rows that are too wide for registers",
     with_ctas(row_sizes(12, 9000))},
    try_backward<WideLayerNormBackward>};

}  // namespace
}  // namespace kernels
}  // namespace imbrex
