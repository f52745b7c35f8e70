// SPDX-License-Identifier: Apache-2.0
#include "repacker.h"

#include <numeric>
#include <utility>

#include "kernel_of_device.h"
#include "row_tensors.h"

namespace imbrex {
namespace {

using kernels::Contiguous;

kernels::RepackedMatricesArguments arguments_of(const RepackedTensor& t) {
  const Contiguous contiguous = t.column == 1 || t.columns == 1 ? Contiguous::kColumns
                                : t.row == 1                    ? Contiguous::kRows
                                                                : Contiguous::kNeither;
  const int64_t batch = t.matrices == 1 ? 0 : t.batch, row = t.rows == 1 ? 0 : t.row;
  int64_t unit = 1, row_count = t.rows, column_count = t.columns;
  if (contiguous == Contiguous::kColumns) {
    unit = std::gcd(unit_of(t.from, t.dtype, row, batch), t.columns);
    column_count /= unit;
  } else if (contiguous == Contiguous::kRows) {
    unit = std::gcd(unit_of(t.from, t.dtype, t.column, batch), t.rows);
    row_count /= unit;
  }
  // The stride that a unit need not divide is not used.
  return {t.matrices, row_count,    column_count, t.to_columns,    contiguous, static_cast<int>(unit),
          t.from,     batch / unit, row / unit,   t.column / unit, t.to,       t.to_strides};
}

/// What is copied has no meaning, so that types of one size share their kernels.
DataType bits_of(DataType dtype) { return dtype.bits() == 8 ? uint8 : dtype.bits() == 16 ? uint16 : uint32; }

}  // namespace

LaunchReport Repacker::copy() {
  LaunchReport first;
  const auto run = [&](auto& kernel, const RepackedTensor& x, const RepackedTensor* y) {
    const auto of_x = arguments_of(x), of_y = y != nullptr ? arguments_of(*y) : of_x;
    if (!is_launched_) return kernel.prepare(bits_of(x.dtype), of_x, y != nullptr, of_y);
    LaunchReport report = kernel.on(stream_)(bits_of(x.dtype), of_x, y != nullptr, of_y);
    if (first.clean()) first = std::move(report);
  };
  for (size_t i = 0; i < waiting_.size(); ++i) {
    const RepackedTensor& x = waiting_[i];
    const RepackedTensor* y = nullptr;
    if (i + 1 < waiting_.size() && waiting_[i + 1].dtype.bits() == x.dtype.bits()) y = &waiting_[++i];
    if (device_.can_run("sm_90"))
      run(kernel_of_device<kernels::HopperRepack>(device_), x, y);
    else
      run(kernel_of_device<kernels::Repack>(device_), x, y);
  }
  waiting_.clear();
  return first;
}

}  // namespace imbrex
