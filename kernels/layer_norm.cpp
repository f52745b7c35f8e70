// SPDX-License-Identifier: Apache-2.0
#include "imbrex/kernels/layer_norm.h"

#include <cmath>

#include "imbrex/runtime/caller_line.h"
#include "imbrex/runtime/registry.h"
#include "kernel_of_device.h"
#include "row_tensors.h"

namespace imbrex {

LaunchReport layer_norm(const DeviceTensor& x, const DeviceTensor& weight, const DeviceTensor& bias,
                        const DeviceTensor& y, float epsilon, const Stream& stream, SourceLocation where) {
  const CallerLine caller(where);
  const RowTensor from = row_tensor("layer_norm", "x", x, float32, x);
  check_column_tensor("layer_norm", "weight", weight, float32, x);
  check_column_tensor("layer_norm", "bias", bias, float32, x);
  const RowTensor to = written_row_tensor("layer_norm", "y", y, float32, x);
  if (x.is_dense() && y.is_dense() && from.strides.unit == 4 && to.strides.unit == 4)
    return kernel_of_device<kernels::LayerNorm>(x.device())
        .on(stream)(from.matrices * from.rows, from.columns, epsilon, x.address(), weight.address(),
                    bias.address(), y.address());
  return kernel_of_device<kernels::StridedLayerNorm>(x.device())
      .on(stream)(from.matrices, from.rows, from.columns, epsilon, x.address(), from.strides,
                  weight.address(), bias.address(), y.address(), to.strides);
}

namespace kernels {

static const KernelRegistration<LayerNorm> registration{
    {"layer_norm",
     "layer normalisation of each row, with weight and bias, in float32",
     {{"m", 123, "rows"}, {"n", 1000, "columns"}}},
    [](Case& c, Kernel<LayerNorm>& kernel) {
      const int64_t m = c.size("m"), n = c.size("n");
      const float epsilon = 1e-5f;
      DeviceTensor x = c.input(float32, {m, n}), weight = c.input(float32, {n}), bias = c.input(float32, {n});
      DeviceTensor y = c.output(float32, {m, n});
      c.launch(kernel, m, n, epsilon, x, weight, bias, y);
      c.expect(y, [&](std::span<double> out) {
        const std::vector<double> in = c.values(x), w = c.values(weight), b = c.values(bias);
        for (int64_t row = 0; row < m; ++row) {
          const double* from = in.data() + row * n;
          double mean = 0, variance = 0;
          for (int64_t j = 0; j < n; ++j) mean += from[j] / static_cast<double>(n);
          for (int64_t j = 0; j < n; ++j)
            variance += (from[j] - mean) * (from[j] - mean) / static_cast<double>(n);
          for (int64_t j = 0; j < n; ++j)
            out[row * n + j] = (from[j] - mean) / std::sqrt(variance + epsilon) * w[j] + b[j];
        }
      });
    }};

}  // namespace kernels
}  // namespace imbrex
