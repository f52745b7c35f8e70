// SPDX-License-Identifier: Apache-2.0
#include "rows/column_sums.h"

#include <fmt/format.h>

#include <algorithm>

#include "imbrex/kernels/rows/persistent_rows.h"
#include "imbrex/runtime/device_limits.h"
#include "kernel_of_device.h"

namespace imbrex {
namespace {

constexpr int kMostColumns = kernels::RowTile::kMostColumns;

}  // namespace

ColumnSums::ColumnSums(const RowCall& call, std::vector<std::pair<std::string, const DeviceTensor*>> results,
                       const std::vector<const DeviceTensor*>& read, int thread_bytes, const Stream& stream)
    : call_(call), results_(std::move(results)), stream_(stream) {
  if (call.columns() > kMostColumns)
    call.refuse_first(fmt::format("has {} columns, at most {}", call.columns(), kMostColumns),
                      "rows and the sums over them are held in registers");
  for (const auto& [name, tensor] : results_)
    if (!tensor->is_null()) call.check_dense(name, *tensor, {call.columns()}, {float16, bfloat16, float32});
  const Device& device = call.device();
  const kernels::RowShapeArguments shape = call.row_shape();
  using Rows = kernels::PersistentRows;
  constexpr int64_t kNotForTiles = 11 << 10, kMostRoom = 216 << 10;
  room_ = static_cast<int>(std::min(shared_bytes_per_cta(device) - kNotForTiles, kMostRoom));
  const int tile = shape.tile_columns, bytes_of_x = read.back()->dtype().bytes();
  int threads = Rows::threads(tile, bytes_of_x, thread_bytes);
  const int rows = Rows::rows(tile, bytes_of_x, thread_bytes);
  int bytes = 0;
  bool can_be_copied = true;
  for (const DeviceTensor* tensor : read) {
    const kernels::RowOperandArguments<> operand = call.arguments(*tensor);
    bytes += operand.dtype.bytes();
    can_be_copied =
        can_be_copied && kernels::AheadRows::can_copy(operand.dtype, operand.strides.unit, shape.column_unit);
  }
  const bool has_room = can_be_copied && kernels::AheadRows::stages(rows * tile * bytes, threads, room_) > 0;
  are_wide_ = !Rows::can_take(tile, has_room);
  if (are_wide_) threads = kernels::RowTile::threads(tile, bytes_of_x, thread_bytes, Rows::kThreads);
  const int64_t tiles = (call.matrices() * call.rows() + rows - 1) / rows,
                at_once = Rows::kThreads / threads;  // CTAs of a multiprocessor
  ctas_ = std::min(tiles, at_once * device.multiprocessors());
  // By bench_rows: where a multiprocessor has one CTA, two sums of columns cost more than late CTAs gain, and short rows gain
  // nothing by them.
  constexpr int kShort = 512;
  if (!are_wide_ && tile > kShort && (at_once > 1 || results_.size() == 1) &&
      tiles / Rows::kLateShare >= device.multiprocessors()) {
    late_ctas_ = device.multiprocessors();
    ctas_ += late_ctas_;
  }
  overlaps_ = device.can_run(kernels::HopperSumsOfParts::target);
  for (const auto& [name, tensor] : results_)
    parts_.push_back(Workspace::on(stream, device, tensor->is_null() ? 4 : ctas_ * call.columns() * 4));
  parts_.push_back(Workspace::on(stream, device, 4));
}

LaunchReport ColumnSums::add_up(LaunchReport report) const {
  std::vector<size_t> wanted;
  for (size_t i = 0; i < results_.size(); ++i)
    if (has(i)) wanted.push_back(i);
  if (wanted.empty() || !report.clean()) return report;
  const size_t first = wanted.front(), last = wanted.back();
  const DeviceTensor &y = *results_[first].second, &more = *results_[last].second;
  const kernels::RowShapeArguments shape = call_.row_shape();
  const auto launch = [&](auto& kernel) {
    return kernel.on(stream_)(ctas_, shape.column_units, shape.column_unit, static_cast<int>(wanted.size()),
                              parts_[first].address(), y.dtype(), y.address(), parts_[last].address(),
                              more.dtype(), more.address());
  };
  LaunchReport sums = overlaps_ ? launch(kernel_of_device<kernels::HopperSumsOfParts>(call_.device()))
                                : launch(kernel_of_device<kernels::SumsOfParts>(call_.device()));
  return sums.clean() ? report : sums;
}

}  // namespace imbrex
