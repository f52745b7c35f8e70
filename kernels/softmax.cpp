// SPDX-License-Identifier: Apache-2.0
#include "imbrex/kernels/softmax.h"

#include <algorithm>
#include <cmath>

#include "imbrex/runtime/registry.h"

namespace imbrex::kernels {

static const KernelRegistration<Softmax> registration{
    {"softmax", "softmax of each row in float32", {{"m", 123, "rows"}, {"n", 1000, "columns"}}},
    [](Case& c, Kernel<Softmax>& kernel) {
      const int64_t m = c.size("m"), n = c.size("n");
      DeviceTensor x = c.input(float32, {m, n}), y = c.output(float32, {m, n});
      c.launch(kernel, m, n, x, y);
      c.expect(y, [&](std::span<double> out) {
        const std::vector<double> in = c.values(x);
        for (int64_t row = 0; row < m; ++row) {
          const double* from = in.data() + row * n;
          const double largest = *std::max_element(from, from + n);
          double sum = 0;
          for (int64_t j = 0; j < n; ++j) sum += out[row * n + j] = std::exp(from[j] - largest);
          for (int64_t j = 0; j < n; ++j) out[row * n + j] /= sum;
        }
      });
    }};

}  // namespace imbrex::kernels
