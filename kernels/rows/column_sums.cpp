// SPDX-License-Identifier: Apache-2.0
#include "rows/column_sums.h"

#include <fmt/format.h>

#include "imbrex/kernels/rows/persistent_rows.h"
#include "kernel_of_device.h"

namespace imbrex {
namespace {

constexpr int kMostColumns = 16384;  // sums and rows together fill the registers
constexpr int kCtasPerMultiprocessor = 2;

}  // namespace

ColumnSums::ColumnSums(const RowCall& call, std::vector<std::pair<std::string, const DeviceTensor*>> results,
                       const Stream& stream)
    : call_(call), results_(std::move(results)), stream_(stream) {
  if (call.columns() > kMostColumns)
    call.refuse_first(fmt::format("has {} columns, at most {}", call.columns(), kMostColumns),
                      "rows and the sums over them are held in registers");
  for (const auto& [name, tensor] : results_)
    if (!tensor->is_null()) call.check_dense(name, *tensor, {call.columns()}, {float16, bfloat16, float32});
  const Device& device = call.device();
  ctas_ = std::min(call.matrices() * call.rows(), int64_t{kCtasPerMultiprocessor} * device.multiprocessors());
  for (const auto& [name, tensor] : results_)
    parts_.push_back(Workspace::on(stream, device, tensor->is_null() ? 4 : ctas_ * call.columns() * 4));
  parts_.push_back(Workspace::on(stream, device, 4));
}

LaunchReport ColumnSums::add_up(LaunchReport report) const {
  for (size_t i = 0; i < results_.size(); ++i) {
    if (!has(i) || !report.clean()) continue;
    const kernels::RowShapeArguments shape = call_.row_shape();
    const DeviceTensor& y = *results_[i].second;
    LaunchReport sums = kernel_of_device<kernels::SumOfParts>(call_.device())
                            .on(stream_)(ctas_, shape.column_units, shape.column_unit, parts_[i].address(),
                                         y.dtype(), y.address());
    if (!sums.clean()) return sums;
  }
  return report;
}

}  // namespace imbrex
