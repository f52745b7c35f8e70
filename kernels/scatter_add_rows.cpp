// SPDX-License-Identifier: Apache-2.0
#include "imbrex/kernels/scatter_add_rows.h"

#include <cmath>

#include "imbrex/runtime/registry.h"

namespace imbrex::kernels {

static const KernelRegistration<ScatterAddRows> registration{
    {"scatter_add_rows",
     "rows added to those of a table in float32, by indices in memory",
     {{"n", 300, "rows and indices"}, {"table", 100, "rows of the table"}, {"width", 520, "columns"}}},
    [](Case& c, Kernel<ScatterAddRows>& kernel) {
      const int64_t n = c.size("n"), rows = c.size("table"), width = c.size("width");
      const HostTensor chance = c.random(float64, {n});
      HostTensor indices(int32, {n});
      for (int64_t i = 0; i < n; ++i) {
        const double x = std::abs(chance.get(i)) * 1000;
        indices.set(i, i % 17 == 5 ? -1.0 : static_cast<double>(static_cast<int64_t>(x * 7919) % rows));
      }
      const HostTensor before = c.random(float32, {rows, width});
      DeviceTensor index = c.input(indices), x = c.input(float32, {n, width}), table = c.input(before);
      c.launch(kernel, n, rows, width, float32, index, x, table);
      c.expect(table, [&](std::span<double> out) {
        const std::vector<double> at = c.values(index), from = c.values(x);
        for (int64_t i = 0; i < rows * width; ++i) out[i] = before.get(i);
        for (int64_t i = 0; i < n; ++i)
          for (int64_t j = 0; j < width && at[i] >= 0; ++j)
            out[static_cast<int64_t>(at[i]) * width + j] += from[i * width + j];
      });
    }};

}  // namespace imbrex::kernels
