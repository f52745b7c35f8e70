// SPDX-License-Identifier: Apache-2.0
#include "imbrex/kernels/rows/cross_entropy.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "imbrex/runtime/caller_line.h"
#include "kernel_of_device.h"
#include "rows/row_call.h"
#include "rows/row_case.h"

namespace imbrex {

LaunchReport cross_entropy(const DeviceTensor& logits, const DeviceTensor& target, const DeviceTensor& loss,
                           const DeviceTensor& dlogits, float scale, const Stream& stream,
                           SourceLocation where) {
  const CallerLine caller(where);
  RowCall call("cross_entropy", "logits", logits);
  if (logits.shape().size() != 2)
    call.refuse_first(fmt::format("has {} dimensions, not 2", logits.shape().size()),
                      "make it [rows, columns]");
  call.check_dense("target", target, {call.rows()}, {int32});
  if (!loss.is_null()) call.check_dense("loss", loss, {call.rows()}, {float32});
  if (!dlogits.is_null()) call.result("dlogits", dlogits);
  const DeviceTensor& gradient = dlogits.is_null() ? logits : dlogits;
  // Rows of odd lengths, as vocabularies have, that follow each other in memory.
  const auto is_flat = [](const DeviceTensor& t) { return t.is_dense() && t.address() % 16 == 0; };
  const bool flat = !call.is_whole() && call.columns() % 8 != 0 && is_flat(logits) && is_flat(gradient) &&
                    call.rows() * call.columns() / 8 < (int64_t{1} << 31);
  // The gradient reads long rows a second time, from the L2 cache where few rows are under way at once: wide parts, which
  // take more threads each.
  constexpr int kGradientPart = 16384;
  const bool rereads = !call.is_whole() && !dlogits.is_null();
  const kernels::RowShapeArguments shape = rereads ? call.row_shape(kGradientPart) : call.row_shape();
  return kernel_of_device<kernels::CrossEntropy>(logits.device())
      .on(stream)(shape, call.is_whole(), flat, scale, call.arguments(logits), target.address(),
                  !loss.is_null(), loss.is_null() ? target.address() : loss.address(), !dlogits.is_null(),
                  call.arguments(gradient));
}

namespace kernels {
namespace {

const KernelRegistration<CrossEntropy> registration{
    {"cross_entropy", "cross-entropy of rows of logits with their classes, and its gradient",
     row_sizes(37, 1003)},
    [](Case& c, Kernel<CrossEntropy>& kernel) {
      const RowCase rows(c);
      DeviceTensor logits = rows.input();
      HostTensor classes(int32, {rows.m});
      const HostTensor chance = c.random(float64, {rows.m});
      for (int64_t i = 0; i < rows.m; ++i)  // some rows count for nothing
        classes.set(i, i % 7 == 3 ? -100
                                  : static_cast<double>(static_cast<int64_t>(std::abs(chance.get(i)) * 1e6) %
                                                        rows.n));
      DeviceTensor target = c.input(classes), loss = c.output(float32, {rows.m}), gradient = rows.output();
      const float scale = 0.25f;
      const bool flat = !rows.is_whole() && rows.n % 8 != 0;
      c.launch(kernel, rows.shape(), rows.is_whole(), flat, scale, rows.operand(logits), target, true, loss,
               true, rows.operand(gradient));
      c.expect(gradient, [&](std::span<double> out) {
        const std::vector<double> in = c.values(logits), of_class = c.values(target);
        rows.each([&](int64_t first) {
          const auto own = static_cast<int64_t>(of_class[first / rows.n]);
          double sum = 0;
          for (int64_t j = first; j < first + rows.n; ++j) sum += std::exp(in[j]);
          for (int64_t j = 0; j < rows.n; ++j)
            out[first + j] = own < 0 ? 0 : scale * (std::exp(in[first + j]) / sum - (j == own ? 1 : 0));
        });
      });
      c.expect(loss, [&](std::span<double> out) {
        const std::vector<double> in = c.values(logits), of_class = c.values(target);
        rows.each([&](int64_t first) {
          const auto own = static_cast<int64_t>(of_class[first / rows.n]);
          double sum = 0;
          for (int64_t j = first; j < first + rows.n; ++j) sum += std::exp(in[j]);
          out[first / rows.n] = own < 0 ? 0 : std::log(sum) - in[first + own];
        });
      });
    }};

}  // namespace
}  // namespace kernels
}  // namespace imbrex
