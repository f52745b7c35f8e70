// SPDX-License-Identifier: Apache-2.0
#include "imbrex/kernels/rows/gated.h"

#include <algorithm>
#include <cmath>

#include "imbrex/runtime/caller_line.h"
#include "kernel_of_device.h"
#include "rows/row_call.h"
#include "rows/row_case.h"

namespace imbrex {
namespace {

/// Rows are cut: nothing is added up along them.
int tile_columns(int64_t columns) { return kernels::row_tile_columns(std::min<int64_t>(columns, 2048)); }

}  // namespace

LaunchReport gated(const DeviceTensor& gate, const DeviceTensor& up, const DeviceTensor& y,
                   Activation activation, const Stream& stream, SourceLocation where) {
  const CallerLine caller(where);
  RowCall call("gated", "gate", gate);
  call.operand("up", up);
  call.result("y", y);
  const kernels::RowShapeArguments shape = call.shape_of_elements(tile_columns(call.columns()));
  const auto operand = [&](const DeviceTensor& t) { return call.arguments(t, shape.rows == 1); };
  return kernel_of_device<kernels::Gated>(gate.device())
      .on(stream)(shape, operand(gate), operand(up), operand(y), activation);
}

LaunchReport gated_backward(const DeviceTensor& dy, const DeviceTensor& gate, const DeviceTensor& up,
                            const DeviceTensor& dgate, const DeviceTensor& dup, Activation activation,
                            const Stream& stream, SourceLocation where) {
  const CallerLine caller(where);
  RowCall call("gated_backward", "dy", dy);
  call.operand("gate", gate).operand("up", up).result("dgate", dgate).result("dup", dup);
  const kernels::RowShapeArguments shape = call.shape_of_elements(tile_columns(call.columns()));
  const auto operand = [&](const DeviceTensor& t) { return call.arguments(t, shape.rows == 1); };
  return kernel_of_device<kernels::GatedBackward>(gate.device())
      .on(stream)(shape, operand(dy), operand(gate), operand(up), operand(dgate), operand(dup), activation);
}

namespace kernels {
namespace {

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

const KernelRegistration<Gated> forward{
    {"gated", "SwiGLU: y = silu(gate) * up", row_sizes(57, 1000)}, [](Case& c, Kernel<Gated>& kernel) {
      const RowCase rows(c);
      DeviceTensor gate = rows.input(), up = rows.input(), y = rows.output();
      c.launch(kernel, rows.shape(tile_columns(rows.n)), rows.operand(gate), rows.operand(up),
               rows.operand(y), Activation::kSilu);
      c.expect(y, [&](std::span<double> out) {
        const std::vector<double> g = c.values(gate), u = c.values(up);
        for (size_t i = 0; i < out.size(); ++i) out[i] = g[i] * sigmoid(g[i]) * u[i];
      });
    }};

const KernelRegistration<GatedBackward> backward{
    {"gated_backward", "gradients of SwiGLU", row_sizes(57, 1000)},
    [](Case& c, Kernel<GatedBackward>& kernel) {
      const RowCase rows(c);
      DeviceTensor dy = rows.input(), gate = rows.input(), up = rows.input(), dgate = rows.output(),
                   dup = rows.output();
      c.launch(kernel, rows.shape(tile_columns(rows.n)), rows.operand(dy), rows.operand(gate),
               rows.operand(up), rows.operand(dgate), rows.operand(dup), Activation::kSilu);
      c.expect(dgate, [&](std::span<double> out) {
        const std::vector<double> d = c.values(dy), g = c.values(gate), u = c.values(up);
        for (size_t i = 0; i < out.size(); ++i) {
          const double s = sigmoid(g[i]);
          out[i] = d[i] * u[i] * (s + g[i] * s * (1 - s));
        }
      });
      c.expect(dup, [&](std::span<double> out) {
        const std::vector<double> d = c.values(dy), g = c.values(gate);
        for (size_t i = 0; i < out.size(); ++i) out[i] = d[i] * g[i] * sigmoid(g[i]);
      });
    }};

}  // namespace
}  // namespace kernels
}  // namespace imbrex
