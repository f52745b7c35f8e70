// SPDX-License-Identifier: Apache-2.0
#include "imbrex/kernels/rows/top_k.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "imbrex/runtime/caller_line.h"
#include "imbrex/runtime/workspace.h"
#include "kernel_of_device.h"
#include "rows/row_call.h"
#include "rows/row_case.h"

namespace imbrex {
namespace {

constexpr int64_t kMostTaken = 64;
constexpr int kMostColumns = 16384, kTileColumns = 8192;  // of a whole row; of a longer row's parts

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
  auto& kernel = kernel_of_device<kernels::TopK>(x.device());
  const int most = kernels::most_taken(k);
  if (call.columns() <= kMostColumns)
    return kernel.on(stream)(call.row_shape(kernels::row_tile_columns(call.columns())), k, most,
                             call.arguments(x), false, indices.address(), x.dtype(), values.address(),
                             indices.address());
  // The largest of each part, then of those.
  const int64_t parts = (call.columns() + kTileColumns - 1) / kTileColumns, candidates = k * parts;
  const Workspace value_memory = Workspace::on(stream, x.device(), rows * candidates * x.dtype().bytes()),
                  index_memory = Workspace::on(stream, x.device(), rows * candidates * int32.bytes());
  const DeviceTensor part_values = value_memory.tensor(x.dtype(), {rows, candidates}),
                     part_indices = index_memory.tensor(int32, {rows, candidates});
  LaunchReport first =
      kernel.on(stream)(call.row_shape(kTileColumns), k, most, call.arguments(x), false, indices.address(),
                        x.dtype(), part_values.address(), part_indices.address());
  if (!first.clean()) return first;
  RowCall second("top_k", "x", part_values);
  return kernel.on(stream)(second.row_shape(kernels::row_tile_columns(candidates)), k, most,
                           second.arguments(part_values), true, part_indices.address(), x.dtype(),
                           values.address(), indices.address());
}

namespace kernels {
namespace {

std::vector<SizeOption> top_k_sizes() {
  std::vector<SizeOption> sizes = row_sizes(57, 256);
  sizes.push_back({"k", 8, "how many of each row"});
  return sizes;
}

const KernelRegistration<TopK> registration{
    {"top_k", "the k largest elements of each row, and their columns", top_k_sizes()},
    [](Case& c, Kernel<TopK>& kernel) {
      const RowCase rows(c);
      const int64_t k = c.size("k");
      DeviceTensor x = rows.input(), values = c.output(rows.dtype, {rows.m, k}),
                   indices = c.output(int32, {rows.m, k});
      c.launch(kernel, rows.shape(row_tile_columns(rows.n)), k, most_taken(k), rows.operand(x), false,
               indices, rows.dtype, values, indices);
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
    }};

}  // namespace
}  // namespace kernels
}  // namespace imbrex
