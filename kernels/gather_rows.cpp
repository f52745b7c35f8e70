// SPDX-License-Identifier: Apache-2.0
#include "imbrex/kernels/gather_rows.h"

#include "imbrex/runtime/registry.h"
#include "random_indices.h"

namespace imbrex::kernels {

static const KernelRegistration<GatherRows> registration{
    {"gather_rows",
     "rows of a table in float16, by indices in memory",
     {{"n", 300, "indices"}, {"table", 1000, "rows of the table"}, {"width", 520, "columns of the table"}}},
    [](Case& c, Kernel<GatherRows>& kernel) {
      const int64_t n = c.size("n"), rows = c.size("table"), width = c.size("width");
      const HostTensor indices = random_indices(c, n, rows);
      DeviceTensor index = c.input(indices), table = c.input(float16, {rows, width}),
                   y = c.output(float16, {n, width});
      c.launch(kernel, n, rows, width, float16, index, table, y);
      c.expect(y, [&](std::span<double> out) {
        const std::vector<double> at = c.values(index), from = c.values(table);
        for (int64_t i = 0; i < n; ++i)
          for (int64_t j = 0; j < width; ++j)
            out[i * width + j] = at[i] < 0 ? 0 : from[static_cast<int64_t>(at[i]) * width + j];
      });
    }};

}  // namespace imbrex::kernels
