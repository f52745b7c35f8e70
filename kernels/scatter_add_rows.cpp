// SPDX-License-Identifier: Apache-2.0
#include "imbrex/kernels/scatter_add_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "imbrex/kernels/grouped_scatter_add.h"
#include "imbrex/runtime/caller_line.h"
#include "imbrex/runtime/registry.h"
#include "imbrex/runtime/workspace.h"
#include "kernel_of_device.h"
#include "random_indices.h"
#include "rows/row_call.h"

namespace imbrex {
namespace {

/// Sorts the indices, then adds rows in groups.
LaunchReport add_in_groups(const RowCall& call, const DeviceTensor& x, const DeviceTensor& index,
                           const DeviceTensor& table, const Stream& stream) {
  const Device& device = x.device();
  const int64_t rows = call.rows(), values = table.shape()[0], width = call.columns(),
                unit = std::gcd(width, int64_t{16} / x.dtype().bytes());
  constexpr int64_t kInt = 4;
  const Workspace counts = Workspace::on(stream, device, (values + 1) * kInt, Workspace::Contents::kZero),
                  begins = Workspace::on(stream, device, values * kInt),
                  ranks = Workspace::on(stream, device, rows * kInt),
                  list = Workspace::on(stream, device, rows * kInt),
                  to = Workspace::on(stream, device, rows * kInt);
  const uint64_t total = counts.address() + static_cast<uint64_t>(values * kInt);
  LaunchReport report = kernel_of_device<kernels::CountIndices>(device).on(stream)(
      rows, values, index.address(), counts.address(), ranks.address());
  if (!report.clean()) return report;
  report = kernel_of_device<kernels::PlaceGroups>(device).on(stream)(values, counts.address(),
                                                                     begins.address(), total);
  if (!report.clean()) return report;
  report = kernel_of_device<kernels::ListGroups>(device).on(stream)(
      rows, values, index.address(), begins.address(), ranks.address(), list.address(), to.address());
  if (!report.clean()) return report;
  return kernel_of_device<kernels::AddGroupedRows>(device).on(stream)(
      rows, values, width / unit, static_cast<int>(unit), x.dtype(), total, list.address(), to.address(),
      x.address(), table.address());
}

}  // namespace

LaunchReport scatter_add_rows(const DeviceTensor& x, const DeviceTensor& index, const DeviceTensor& table,
                              const Stream& stream, SourceLocation where) {
  const CallerLine caller(where);
  const RowCall call("scatter_add_rows", "x", x);
  if (x.shape().size() != 2)
    call.refuse_first(fmt::format("has {} dimensions, not 2", x.shape().size()), "make it [rows, width]");
  call.check_dense("x", x, x.shape(), {x.dtype()});
  call.check_dense("index", index, {call.rows()}, {int32});
  if (table.is_null() || table.shape().size() != 2)
    call.refuse("table", table, "is not [rows, width]", "give it rows as wide as those of x");
  call.check_dense("table", table, {table.shape()[0], call.columns()}, {x.dtype()});
  const Device& device = x.device();
  const bool is_hopper = device.can_run(kernels::AddGroupedRows::target);
  if (x.dtype() == bfloat16 && !is_hopper)
    call.refuse_first("is bfloat16, which is added from sm_90 on", "convert it to float32");
  // Fewer bytes are added sooner than their indices are sorted.
  constexpr int64_t kFewBytes = 32 << 20;
  if (is_hopper && x.bytes() >= kFewBytes) return add_in_groups(call, x, index, table, stream);
  const auto launch = [&](auto& kernel) {
    return kernel.on(stream)(call.rows(), table.shape()[0], call.columns(), x.dtype(), index.address(),
                             x.address(), table.address());
  };
  return is_hopper ? launch(kernel_of_device<kernels::HopperScatterAddRows>(device))
                   : launch(kernel_of_device<kernels::ScatterAddRows>(device));
}

}  // namespace imbrex

namespace imbrex::kernels {

namespace {

template <class K>
void run(Case& c, Kernel<K>& kernel) {
  const int64_t n = c.size("n"), rows = c.size("table"), width = c.size("width");
  const HostTensor indices = random_indices(c, n, rows);
  const HostTensor before = c.random(float32, {rows, width});
  DeviceTensor index = c.input(indices), x = c.input(float32, {n, width}), table = c.input(before);
  c.launch(kernel, n, rows, width, float32, index, x, table);
  c.expect(table, [=, &c](std::span<double> out) {
    const std::vector<double> at = c.values(index), from = c.values(x);
    for (int64_t i = 0; i < rows * width; ++i) out[i] = before.get(i);
    for (int64_t i = 0; i < n; ++i)
      for (int64_t j = 0; j < width && at[i] >= 0; ++j)
        out[static_cast<int64_t>(at[i]) * width + j] += from[i * width + j];
  });
}

std::vector<SizeOption> sizes() {
  return {{"n", 300, "rows and indices"}, {"table", 100, "rows of the table"}, {"width", 520, "columns"}};
}

const KernelRegistration<ScatterAddRows> plain{
    {"scatter_add_rows", "rows added to those of a table in float32, by indices in memory", sizes()},
    run<ScatterAddRows>};
const KernelRegistration<HopperScatterAddRows> hopper{
    {"hopper_scatter_add_rows", "the same, four neighbouring elements at once", sizes()},
    run<HopperScatterAddRows>};

const KernelRegistration<AddGroupedRows> grouped{
    {"add_grouped_rows", "the same of rows in a list, in which those of one index follow each other",
     sizes()},
    [](Case& c, Kernel<AddGroupedRows>& kernel) {
      const int64_t n = c.size("n"), rows = c.size("table"), width = c.size("width");
      const HostTensor indices = random_indices(c, n, rows);
      std::vector<int64_t> order;
      for (int64_t i = 0; i < n; ++i)
        if (indices.get(i) >= 0) order.push_back(i);
      std::stable_sort(order.begin(), order.end(),
                       [&](int64_t a, int64_t b) { return indices.get(a) < indices.get(b); });
      HostTensor list(int32, {n}), to(int32, {n}), total(int32, {1});
      total.set(0, static_cast<double>(order.size()));
      for (size_t i = 0; i < order.size(); ++i) {
        list.set(static_cast<int64_t>(i), static_cast<double>(order[i]));
        to.set(static_cast<int64_t>(i), indices.get(order[i]));
      }
      const HostTensor before = c.random(float32, {rows, width});
      DeviceTensor x = c.input(float32, {n, width}), table = c.input(before);
      const int64_t unit = std::gcd(width, int64_t{4});
      c.launch(kernel, n, rows, width / unit, static_cast<int>(unit), float32, c.input(total), c.input(list),
               c.input(to), x, table);
      c.expect(table, [=, &c](std::span<double> out) {
        const std::vector<double> from = c.values(x);
        for (int64_t i = 0; i < rows * width; ++i) out[i] = before.get(i);
        for (int64_t i = 0; i < n; ++i)
          for (int64_t j = 0; j < width && indices.get(i) >= 0; ++j)
            out[static_cast<int64_t>(indices.get(i)) * width + j] += from[i * width + j];
      });
    }};

}  // namespace
}  // namespace imbrex::kernels
