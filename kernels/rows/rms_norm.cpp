// SPDX-License-Identifier: Apache-2.0
#include "imbrex/kernels/rows/rms_norm.h"

#include <fmt/format.h>

#include <cmath>

#include "imbrex/runtime/caller_line.h"
#include "kernel_of_device.h"
#include "rows/column_sums.h"
#include "rows/row_call.h"
#include "rows/row_case.h"

namespace imbrex {

LaunchReport rms_norm(const DeviceTensor& x, const DeviceTensor& weight, const DeviceTensor& y, float epsilon,
                      const Stream& stream, SourceLocation where) {
  const CallerLine caller(where);
  RowCall call("rms_norm", "x", x);
  const auto weights = call.column_operand("weight", weight);
  call.result("y", y);
  return kernel_of_device<kernels::RmsNormRows>(x.device())
      .on(stream)(call.spanned_shape(), call.is_whole(), epsilon, call.arguments(x), weights,
                  call.arguments(y));
}

LaunchReport rms_factors(const DeviceTensor& x, const DeviceTensor& factors, float epsilon,
                         const Stream& stream, SourceLocation where) {
  const CallerLine caller(where);
  RowCall call("rms_factors", "x", x);
  if (x.shape().size() != 2)
    call.refuse_first(fmt::format("has {} dimensions, not 2", x.shape().size()), "make it [rows, columns]");
  call.check_dense("factors", factors, {call.rows()}, {float32});
  return kernel_of_device<kernels::RmsFactors>(x.device())
      .on(stream)(call.spanned_shape(), call.is_whole(), epsilon, call.arguments(x), factors.address());
}

LaunchReport rms_norm_backward(const DeviceTensor& dy, const DeviceTensor& x, const DeviceTensor& weight,
                               const DeviceTensor& dx, const DeviceTensor& dweight, float epsilon,
                               const Stream& stream, SourceLocation where) {
  const CallerLine caller(where);
  RowCall call("rms_norm_backward", "dy", dy);
  call.operand("x", x);
  const auto weights = call.column_operand("weight", weight);
  if (!dx.is_null()) call.result("dx", dx);
  const ColumnSums sums(call, {{"dweight", &dweight}}, {&dy, &x}, kernels::RmsNormBackward().thread_bytes,
                        stream);
  if (sums.are_wide())
    return sums.add_up(kernel_of_device<kernels::WideRmsNormBackward>(dy.device())
                           .on(stream)(call.row_shape(), sums.ctas(), epsilon, call.arguments(dy),
                                       call.arguments(x), weights, !dx.is_null(),
                                       call.arguments(dx.is_null() ? x : dx), sums.has(0), sums.parts(0)));
  const auto launch = [&](auto& kernel) {
    const kernels::RowShapeArguments shape = call.row_shape();
    return kernel.on(stream)(shape, shape.matrices == 1, sums.ctas(), sums.late_ctas(), sums.room(), epsilon,
                             call.arguments(dy), call.arguments(x), weights, !dx.is_null(),
                             call.arguments(dx.is_null() ? x : dx), sums.has(0), sums.parts(0));
  };
  return sums.add_up(sums.overlaps() ? launch(kernel_of_device<kernels::HopperRmsNormBackward>(dy.device()))
                                     : launch(kernel_of_device<kernels::RmsNormBackward>(dy.device())));
}

namespace kernels {
namespace {

const KernelRegistration<RmsNormRows> registration{
    {"rms_norm", "RMS normalisation of each row, with weight", row_sizes(123, 1000)},
    [](Case& c, Kernel<RmsNormRows>& kernel) {
      const RowCase rows(c);
      DeviceTensor x = rows.input(), weight = c.input(rows.dtype, {rows.n}), y = rows.output();
      const float epsilon = 1e-5f;
      c.launch(kernel, rows.spanned_shape(), rows.is_whole(), epsilon, rows.operand(x), rows.column(weight),
               rows.operand(y));
      c.expect(y, [&](std::span<double> out) {
        const std::vector<double> in = c.values(x), w = c.values(weight);
        for (int64_t i = 0; i < rows.m; ++i) {
          double squares = 0;
          for (int64_t j = 0; j < rows.n; ++j) squares += in[i * rows.n + j] * in[i * rows.n + j];
          const double scale = 1 / std::sqrt(squares / static_cast<double>(rows.n) + epsilon);
          for (int64_t j = 0; j < rows.n; ++j) out[i * rows.n + j] = in[i * rows.n + j] * scale * w[j];
        }
      });
    }};

const KernelRegistration<RmsFactors> factors{
    {"rms_factors", "what RMS normalisation multiplies each row by", row_sizes(123, 1000)},
    [](Case& c, Kernel<RmsFactors>& kernel) {
      const RowCase rows(c);
      DeviceTensor x = rows.input(), out = c.output(float32, {rows.m});
      const float epsilon = 1e-5f;
      c.launch(kernel, rows.spanned_shape(), rows.is_whole(), epsilon, rows.operand(x), out);
      c.expect(out, [&](std::span<double> expected) {
        const std::vector<double> in = c.values(x);
        for (int64_t i = 0; i < rows.m; ++i) {
          double squares = 0;
          for (int64_t j = 0; j < rows.n; ++j) squares += in[i * rows.n + j] * in[i * rows.n + j];
          expected[i] = 1 / std::sqrt(squares / static_cast<double>(rows.n) + epsilon);
        }
      });
    }};

template <class K>
void try_backward(Case& c, Kernel<K>& kernel) {
  const RowCase rows(c);
  const int64_t ctas = c.size("ctas"), n = rows.n;
  const float epsilon = 1e-5f;
  DeviceTensor dy = rows.input(), x = rows.input(), weight = c.input(rows.dtype, {n}), dx = rows.output(),
               parts = c.output(float32, {ctas, n});
  if constexpr (std::is_same_v<K, WideRmsNormBackward>)
    c.launch(kernel, rows.shape(), ctas, epsilon, rows.operand(dy), rows.operand(x), rows.column(weight),
             true, rows.operand(dx), true, parts);
  else
    c.launch(kernel, rows.shape(), true, ctas, 0, kTriedRoom, epsilon, rows.operand(dy), rows.operand(x),
             rows.column(weight), true, rows.operand(dx), true, parts);
  c.expect(dx, [&](std::span<double> out) {
    const std::vector<double> in = c.values(x), w = c.values(weight), gradient = c.values(dy);
    rows.each([&](int64_t first) {
      double squares = 0, along = 0;
      for (int64_t j = 0; j < n; ++j) {
        squares += in[first + j] * in[first + j] / static_cast<double>(n);
        along += gradient[first + j] * w[j] * in[first + j] / static_cast<double>(n);
      }
      const double scale = 1 / std::sqrt(squares + epsilon);
      for (int64_t j = 0; j < n; ++j)
        out[first + j] = scale * (gradient[first + j] * w[j] - in[first + j] * scale * scale * along);
    });
  });
}

const KernelRegistration<RmsNormBackward> backward{
    {"rms_norm_backward", "gradients of RMS normalisation: of x, and of weight per CTA",
     with_ctas(row_sizes(123, 1000))},
    try_backward<RmsNormBackward>};
const KernelRegistration<HopperRmsNormBackward> hopper_backward{
    {"hopper_rms_norm_backward", "the same, during whose end the next kernel starts",
     with_ctas(row_sizes(123, 1000))},
    try_backward<HopperRmsNormBackward>};
const KernelRegistration<WideRmsNormBackward> wide_backward{
    {"wide_rms_norm_backward", "the same of rows that are too wide for registers",
     with_ctas(row_sizes(12, 9000))},
    try_backward<WideRmsNormBackward>};

}  // namespace
}  // namespace kernels
}  // namespace imbrex
