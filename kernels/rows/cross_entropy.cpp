// SPDX-License-Identifier: Apache-2.0
#include "imbrex/kernels/rows/cross_entropy.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "imbrex/core/error.h"
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
  const bool rereads = !call.is_whole() && !dlogits.is_null();
  const kernels::RowShapeArguments shape = rereads ? call.rereading_shape() : call.spanned_shape();
  return kernel_of_device<kernels::CrossEntropy>(logits.device())
      .on(stream)(shape, call.is_whole(), call.is_flat(), scale, call.arguments(logits), target.address(),
                  !loss.is_null(), loss.is_null() ? target.address() : loss.address(), !dlogits.is_null(),
                  call.arguments(gradient));
}

namespace kernels {
namespace {

/// Fills in what a kernel is tried with, runs launch(logits, target, loss, gradient, scale), and says what is expected.
template <class Launch>
void try_kernel(Case& c, const RowCase& rows, const Launch& launch) {
  DeviceTensor logits = rows.input();
  HostTensor classes(int32, {rows.m});
  const HostTensor chance = c.random(float64, {rows.m});
  for (int64_t i = 0; i < rows.m; ++i)  // some rows count for nothing
    classes.set(i, i % 7 == 3
                       ? -100
                       : static_cast<double>(static_cast<int64_t>(std::abs(chance.get(i)) * 1e6) % rows.n));
  DeviceTensor target = c.input(classes), loss = c.output(float32, {rows.m}), gradient = rows.output();
  const float scale = 0.25f;
  launch(logits, target, loss, gradient, scale);
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
}

const KernelRegistration<CrossEntropy> registration{
    {"cross_entropy", "cross-entropy of rows of logits with their classes, and its gradient",
     row_sizes(37, 1003)},
    [](Case& c, Kernel<CrossEntropy>& kernel) {
      const RowCase rows(c);
      try_kernel(c, rows, [&](auto& logits, auto& target, auto& loss, auto& gradient, float scale) {
        c.launch(kernel, rows.spanned_shape(), rows.is_whole(), rows.is_flat(), scale, rows.operand(logits),
                 target, true, loss, true, rows.operand(gradient));
      });
    }};

const KernelRegistration<HeldCrossEntropy> held{
    {"held_cross_entropy", "the same of long rows, which clusters hold in shared memory",
     row_sizes(5, 60001)},
    [](Case& c, Kernel<HeldCrossEntropy>& kernel) {
      constexpr int64_t kSharedBytes = 227 << 10;
      const RowCase rows(c);
      const auto parts = HeldParts::of(rows.n, rows.dtype.bytes(), kSharedBytes);
      if (parts.ctas == 0)
        throw LaunchError({{},
                           fmt::format("held_cross_entropy: {} columns do not fit a cluster", rows.n),
                           {},
                           "take fewer, or cross_entropy"});
      try_kernel(c, rows, [&](auto& logits, auto& target, auto& loss, auto& gradient, float scale) {
        c.launch(kernel, rows.shape(parts.columns), parts.ctas, scale, rows.dtype, logits, target, true, loss,
                 rows.dtype, gradient);
      });
    }};

}  // namespace
}  // namespace kernels
}  // namespace imbrex
