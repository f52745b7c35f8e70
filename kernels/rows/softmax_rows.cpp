// SPDX-License-Identifier: Apache-2.0
#include "imbrex/kernels/rows/softmax_rows.h"

#include <algorithm>
#include <cmath>

#include "imbrex/kernels/softmax.h"
#include "imbrex/runtime/caller_line.h"
#include "kernel_of_device.h"
#include "rows/row_call.h"
#include "rows/row_case.h"

namespace imbrex {

LaunchReport softmax(const DeviceTensor& x, const DeviceTensor& y, const Stream& stream,
                     SourceLocation where) {
  const CallerLine caller(where);
  RowCall call("softmax", "x", x);
  call.result("y", y);
  return kernel_of_device<kernels::SoftmaxRows>(x.device())
      .on(stream)(call.is_whole() ? call.spanned_shape() : call.rereading_shape(), call.is_whole(),
                  call.is_flat(), call.arguments(x), call.arguments(y));
}

LaunchReport softmax_backward(const DeviceTensor& dy, const DeviceTensor& y, const DeviceTensor& dx,
                              const Stream& stream, SourceLocation where) {
  const CallerLine caller(where);
  RowCall call("softmax_backward", "dy", dy);
  call.operand("y", y);
  call.result("dx", dx);
  return kernel_of_device<kernels::SoftmaxBackward>(y.device())
      .on(stream)(call.spanned_shape(), call.is_whole(), call.arguments(dy), call.arguments(y),
                  call.arguments(dx));
}

namespace kernels {
namespace {

const KernelRegistration<SoftmaxRows> forward{
    {"softmax_rows", "softmax of each row, of any length and type", row_sizes(123, 1000)},
    [](Case& c, Kernel<SoftmaxRows>& kernel) {
      const RowCase rows(c);
      DeviceTensor x = rows.input(), y = rows.output();
      c.launch(kernel, rows.spanned_shape(), rows.is_whole(), rows.is_flat(), rows.operand(x),
               rows.operand(y));
      c.expect(y, [&](std::span<double> out) {
        const std::vector<double> in = c.values(x);
        rows.each([&](int64_t first) {
          const double largest = *std::max_element(&in[first], &in[first] + rows.n);
          double sum = 0;
          for (int64_t j = first; j < first + rows.n; ++j) sum += out[j] = std::exp(in[j] - largest);
          for (int64_t j = first; j < first + rows.n; ++j) out[j] /= sum;
        });
      });
    }};

const KernelRegistration<SoftmaxBackward> backward{
    {"softmax_backward", "the gradient of softmax", row_sizes(123, 1000)},
    [](Case& c, Kernel<SoftmaxBackward>& kernel) {
      const RowCase rows(c);
      DeviceTensor dy = rows.input(), y = rows.input(), dx = rows.output();
      c.launch(kernel, rows.spanned_shape(), rows.is_whole(), rows.operand(dy), rows.operand(y),
               rows.operand(dx));
      c.expect(dx, [&](std::span<double> out) {
        const std::vector<double> gradient = c.values(dy), value = c.values(y);
        rows.each([&](int64_t first) {
          double along = 0;
          for (int64_t j = first; j < first + rows.n; ++j) along += gradient[j] * value[j];
          for (int64_t j = first; j < first + rows.n; ++j) out[j] = value[j] * (gradient[j] - along);
        });
      });
    }};

}  // namespace
}  // namespace kernels
}  // namespace imbrex
