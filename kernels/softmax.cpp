// SPDX-License-Identifier: Apache-2.0
#include "imbrex/kernels/softmax.h"

#include <algorithm>
#include <cmath>

#include "imbrex/runtime/caller_line.h"
#include "imbrex/runtime/registry.h"
#include "kernel_of_device.h"
#include "row_tensors.h"

namespace imbrex {

LaunchReport softmax(const DeviceTensor& x, const DeviceTensor& y, const Stream& stream,
                     SourceLocation where) {
  const CallerLine caller(where);
  const RowTensor from = row_tensor("softmax", "x", x, float32, x);
  const RowTensor to = written_row_tensor("softmax", "y", y, float32, x);
  if (x.is_dense() && y.is_dense() && from.strides.unit == 4 && to.strides.unit == 4)
    return kernel_of_device<kernels::Softmax>(x.device())
        .on(stream)(from.matrices * from.rows, from.columns, x.address(), y.address());
  return kernel_of_device<kernels::StridedSoftmax>(x.device())
      .on(stream)(from.matrices, from.rows, from.columns, x.address(), from.strides, y.address(), to.strides);
}

namespace kernels {

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

}  // namespace kernels
}  // namespace imbrex
