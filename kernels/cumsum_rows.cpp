// SPDX-License-Identifier: Apache-2.0
#include "imbrex/kernels/cumsum_rows.h"

#include "imbrex/runtime/registry.h"

namespace imbrex::kernels {

static const KernelRegistration<CumsumRows> registration{
    {"cumsum_rows", "running sums of rows in float32", {{"m", 37, "rows"}, {"n", 5003, "columns"}}},
    [](Case& c, Kernel<CumsumRows>& kernel) {
      const int64_t m = c.size("m"), n = c.size("n");
      DeviceTensor x = c.input(float32, {m, n}), y = c.output(float32, {m, n});
      c.launch(kernel, m, n, float32, x, y);
      c.expect(y, [&](std::span<double> out) {
        const std::vector<double> in = c.values(x);
        for (int64_t i = 0; i < m; ++i) {
          double sum = 0;
          for (int64_t j = 0; j < n; ++j) out[i * n + j] = sum += in[i * n + j];
        }
      });
    }};

}  // namespace imbrex::kernels
