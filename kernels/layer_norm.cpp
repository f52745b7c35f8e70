// SPDX-License-Identifier: Apache-2.0
#include "imbrex/kernels/layer_norm.h"

#include <cmath>

#include "imbrex/runtime/registry.h"

namespace imbrex::kernels {

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

}  // namespace imbrex::kernels
