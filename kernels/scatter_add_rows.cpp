// SPDX-License-Identifier: Apache-2.0
#include "imbrex/kernels/scatter_add_rows.h"

#include "imbrex/runtime/registry.h"
#include "random_indices.h"

namespace imbrex::kernels {

namespace {

template <class K>
void run(Case& c, Kernel<K>& kernel) {
  const int64_t n = c.size("n"), rows = c.size("table"), width = c.size("width");
  const HostTensor indices = random_indices(c, n, rows);
  const HostTensor before = c.random(float32, {rows, width});
  DeviceTensor index = c.input(indices), x = c.input(float32, {n, width}), table = c.input(before);
  c.launch(kernel, n, rows, width, float32, index, x, table);
  c.expect(table, [=, &c](std::span<double> out) {
    const std::vector<double> at = c.values(index), from = c.values(x);
    for (int64_t i = 0; i < rows * width; ++i) out[i] = before.get(i);
    for (int64_t i = 0; i < n; ++i)
      for (int64_t j = 0; j < width && at[i] >= 0; ++j)
        out[static_cast<int64_t>(at[i]) * width + j] += from[i * width + j];
  });
}

std::vector<SizeOption> sizes() {
  return {{"n", 300, "rows and indices"}, {"table", 100, "rows of the table"}, {"width", 520, "columns"}};
}

const KernelRegistration<ScatterAddRows> plain{
    {"scatter_add_rows", "rows added to those of a table in float32, by indices in memory", sizes()},
    run<ScatterAddRows>};
const KernelRegistration<HopperScatterAddRows> hopper{
    {"hopper_scatter_add_rows", "the same, four neighbouring elements at once", sizes()},
    run<HopperScatterAddRows>};

}  // namespace
}  // namespace imbrex::kernels
