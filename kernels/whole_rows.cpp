// SPDX-License-Identifier: Apache-2.0
#include "whole_rows.h"

#include <utility>

#include "imbrex/kernels/matmul/repack.h"
#include "kernel_of_device.h"

namespace imbrex {

DeviceTensor WholeRows::operator()(const DeviceTensor& t) {
  constexpr int64_t kUnitBytes = 16;
  const int64_t unit = kUnitBytes / t.dtype().bytes(), k = t.shape().back(),
                whole = (k + unit - 1) / unit * unit;
  if (t.is_dense() && t.address() % kUnitBytes == 0 && whole == k) return t;
  const size_t first = t.shape().size() - 2;
  const int64_t matrices = first == 0 ? 1 : t.shape()[0], rows = t.shape()[first];
  held_.push_back(Workspace::on(stream_, t.device(), matrices * rows * whole * t.dtype().bytes()));
  std::vector<int64_t> shape = t.shape();
  shape.back() = whole;
  DeviceTensor copy = held_.back().tensor(t.dtype(), std::move(shape));
  const int64_t batch = first == 0 ? 0 : t.strides()[0], row = t.strides()[first],
                column = t.strides().back();
  using kernels::Contiguous;
  const Contiguous contiguous = column == 1 || k == 1 ? Contiguous::kColumns
                                : row == 1            ? Contiguous::kRows
                                                      : Contiguous::kNeither;
  const kernels::MatrixStridesArguments to{static_cast<int>(unit), whole / unit, rows * whole / unit};
  Kernel<kernels::Repack>& repack = kernel_of_device<kernels::Repack>(t.device());
  const auto pass = [&](auto&& call) {
    call(matrices, rows, k, whole, t.dtype(), contiguous, t.address(), batch, row, column, copy.address(),
         to);
  };
  if (!is_launched_) {
    pass([&](const auto&... arguments) { repack.prepare(arguments...); });
    return copy;
  }
  pass([&](const auto&... arguments) {
    LaunchReport report = repack.on(stream_)(arguments...);
    if (copies_.clean()) copies_ = std::move(report);
  });
  return copy;
}

}  // namespace imbrex
