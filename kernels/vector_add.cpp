// SPDX-License-Identifier: Apache-2.0
#include "imbrex/kernels/vector_add.h"

#include "imbrex/runtime/registry.h"

namespace imbrex::kernels {

static const KernelRegistration<VectorAdd> registration{
    {"vector_add", "z = x + y in float32", {{"n", 100003, "elements"}}},
    [](Case& c, Kernel<VectorAdd>& kernel) {
      const int64_t n = c.size("n");
      DeviceTensor x = c.input(float32, {n}), y = c.input(float32, {n}), z = c.output(float32, {n});
      c.launch(kernel, n, x, y, z);
      c.expect(z, [&](std::span<double> out) {
        const std::vector<double> a = c.values(x), b = c.values(y);
        for (int64_t i = 0; i < n; ++i) out[i] = a[i] + b[i];
      });
    }};

}  // namespace imbrex::kernels
