// SPDX-License-Identifier: Apache-2.0
#include "imbrex/kernels/rows/top_k.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "imbrex/kernels/rows/long_top_k.h"
#include "imbrex/runtime/caller_line.h"
#include "imbrex/runtime/workspace.h"
#include "kernel_of_device.h"
#include "rows/row_call.h"
#include "rows/row_case.h"

namespace imbrex {
namespace {

constexpr int64_t kMostTaken = 64;
constexpr int kMostColumns = 16384, kPartColumns = 8192;  // of a row that a CTA holds; of longer rows' parts

/// As kernels::TopKOf or LongTopKOf, on the GPUs that have it one that starts while the kernel before ends. Not of the shortest
/// rows, whose CTAs end so soon that waiting for the kernel before costs more.
template <template <bool kOverlaps> class K, class... Args>
LaunchReport launch(const Stream& stream, const Device& device, const kernels::RowShapeArguments& shape,
                    const Args&... args) {
  constexpr int kShort = 64;
  if (device.can_run(K<true>::target) && shape.tile_columns > kShort)
    return kernel_of_device<K<true>>(device).on(stream)(shape, args...);
  return kernel_of_device<K<false>>(device).on(stream)(shape, args...);
}

}  // namespace

LaunchReport top_k(const DeviceTensor& x, const DeviceTensor& values, const DeviceTensor& indices,
                   const Stream& stream, SourceLocation where) {
  const CallerLine caller(where);
  RowCall call("top_k", "x", x);
  if (x.shape().size() != 2)
    call.refuse_first(fmt::format("has {} dimensions, not 2", x.shape().size()), "make it [rows, columns]");
  if (values.is_null() || values.shape().size() != 2)
    call.refuse("values", values, "is not [rows, k]", "give it k columns");
  const int64_t k = values.shape()[1], rows = call.rows();
  if (k < 1 || k > std::min(kMostTaken, call.columns()))
    call.refuse("values", values, fmt::format("asks for the {} largest of {} columns", k, call.columns()),
                fmt::format("k is 1 to {}, and no more than there are columns", kMostTaken));
  call.check_dense("values", values, {rows, k}, {x.dtype()});
  call.check_dense("indices", indices, {rows, k}, {int32});
  const int most = kernels::most_taken(k);
  const auto rows_of = [&](const RowCall& of, const DeviceTensor& from, int tile, const DeviceTensor* columns,
                           const DeviceTensor& to, const DeviceTensor& to_indices) {
    return launch<kernels::TopKOf>(stream, x.device(), of.row_shape(tile), k, most, of.arguments(from),
                                   columns != nullptr, columns ? columns->address() : indices.address(),
                                   x.dtype(), to.address(), to_indices.address());
  };
  if (call.columns() <= kMostColumns)
    return rows_of(call, x, kernels::row_tile_columns(call.columns()), nullptr, values, indices);
  constexpr int64_t kEach = 3;  // rows of each multiprocessor, at once
  if (rows >= kEach * x.device().multiprocessors())
    return launch<kernels::LongTopKOf>(stream, x.device(), call.row_shape(kernels::LongTopK::kColumns), k,
                                       most, call.arguments(x), x.dtype(), values.address(),
                                       indices.address());
  // Of few rows the largest of each part, then of those.
  const int64_t parts = (call.columns() + kPartColumns - 1) / kPartColumns, candidates = k * parts;
  const Workspace value_memory = Workspace::on(stream, x.device(), rows * candidates * x.dtype().bytes()),
                  index_memory = Workspace::on(stream, x.device(), rows * candidates * int32.bytes());
  const DeviceTensor part_values = value_memory.tensor(x.dtype(), {rows, candidates}),
                     part_indices = index_memory.tensor(int32, {rows, candidates});
  LaunchReport first = rows_of(call, x, kPartColumns, nullptr, part_values, part_indices);
  if (!first.clean()) return first;
  return rows_of(RowCall("top_k", "x", part_values), part_values, kernels::row_tile_columns(candidates),
                 &part_indices, values, indices);
}

namespace kernels {
namespace {

std::vector<SizeOption> top_k_sizes(int64_t rows, int64_t columns) {
  std::vector<SizeOption> sizes = row_sizes(rows, columns);
  sizes.push_back({"k", 8, "how many of each row"});
  return sizes;
}

/// launch(rows, k, x, values, indices), for the k largest of each row.
template <class Launch>
void expect_largest(Case& c, const Launch& launch) {
  const RowCase rows(c);
  const int64_t k = c.size("k");
  DeviceTensor x = rows.input(), values = c.output(rows.dtype, {rows.m, k}),
               indices = c.output(int32, {rows.m, k});
  launch(rows, k, x, values, indices);
  const auto fill = [&](std::span<double> out, bool wants_values) {
    const std::vector<double> in = c.values(x);
    rows.each([&](int64_t first) {
      std::vector<int64_t> order(static_cast<size_t>(rows.n));
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(),
                       [&](int64_t a, int64_t b) { return in[first + a] > in[first + b]; });
      for (int64_t j = 0; j < k; ++j)
        out[first / rows.n * k + j] = wants_values ? in[first + order[j]] : static_cast<double>(order[j]);
    });
  };
  c.expect(values, [&](std::span<double> out) { fill(out, true); });
  c.expect(indices, [&](std::span<double> out) { fill(out, false); });
}

const KernelRegistration<TopK> registration{
    {"top_k", "the k largest elements of each row, and their columns", top_k_sizes(57, 256)},
    [](Case& c, Kernel<TopK>& kernel) {
      expect_largest(c, [&](const RowCase& rows, int64_t k, const DeviceTensor& x, const DeviceTensor& values,
                            const DeviceTensor& indices) {
        c.launch(kernel, rows.shape(row_tile_columns(rows.n)), k, most_taken(k), rows.operand(x), false,
                 indices, rows.dtype, values, indices);
      });
    }};

const KernelRegistration<LongTopK> long_registration{
    {"long_top_k", "the same of long rows, tile by tile", top_k_sizes(5, 20000)},
    [](Case& c, Kernel<LongTopK>& kernel) {
      expect_largest(c, [&](const RowCase& rows, int64_t k, const DeviceTensor& x, const DeviceTensor& values,
                            const DeviceTensor& indices) {
        c.launch(kernel, rows.shape(LongTopK::kColumns), k, most_taken(k), rows.operand(x), rows.dtype,
                 values, indices);
      });
    }};

}  // namespace
}  // namespace kernels
}  // namespace imbrex
