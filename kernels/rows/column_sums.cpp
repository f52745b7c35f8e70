// SPDX-License-Identifier: Apache-2.0
#include "rows/column_sums.h"

#include <fmt/format.h>

#include <algorithm>

#include "imbrex/kernels/rows/persistent_rows.h"
#include "kernel_of_device.h"

namespace imbrex {
namespace {

constexpr int kMostColumns = kernels::RowTile::kMostColumns;

}  // namespace

ColumnSums::ColumnSums(const RowCall& call, std::vector<std::pair<std::string, const DeviceTensor*>> results,
                       int bytes, int thread_bytes, const Stream& stream)
    : call_(call), results_(std::move(results)), stream_(stream) {
  if (call.columns() > kMostColumns)
    call.refuse_first(fmt::format("has {} columns, at most {}", call.columns(), kMostColumns),
                      "rows and the sums over them are held in registers");
  for (const auto& [name, tensor] : results_)
    if (!tensor->is_null()) call.check_dense(name, *tensor, {call.columns()}, {float16, bfloat16, float32});
  const Device& device = call.device();
  const kernels::RowShapeArguments shape = call.row_shape();
  const int64_t tile = shape.tile_columns,
                threads = kernels::RowTile::threads(shape.tile_columns, bytes, thread_bytes,
                                                    kernels::PersistentRows::kThreads),
                rows = std::max<int64_t>(1, threads * (thread_bytes / bytes) / tile);
  ctas_ = std::min((call.matrices() * call.rows() + rows - 1) / rows,
                   kernels::PersistentRows::kThreads / threads * device.multiprocessors());
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
