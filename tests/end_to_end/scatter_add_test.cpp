// SPDX-License-Identifier: Apache-2.0
// imbrex::scatter_add_rows, few rows and many, against float64.
#include <gmock/gmock.h>

#include <random>

#include "imbrex/core/error.h"
#include "imbrex/kernels/scatter_add_rows.h"
#include "imbrex/runtime/compare.h"

namespace imbrex::testing {
namespace {

using ::testing::HasSubstr;

Device virtual_gpu(const std::string& target) {
  return Device::virtual_gpu({.target = target, .num_sms = 3, .checks = vgpu::CheckSet::all()});
}

struct Problem {
  std::string target;
  DataType dtype;
  int64_t rows, table_rows, width;
  double tolerance;
};

void expect_sums(const Problem& p) {
  SCOPED_TRACE(::testing::Message() << p.target << " " << p.dtype.name() << " " << p.rows << "x" << p.width);
  const Device device = virtual_gpu(p.target);
  std::mt19937 random(static_cast<uint32_t>(p.rows + p.width));
  HostTensor places(int32, {p.rows});
  for (int64_t i = 0; i < p.rows; ++i)  // some have none, a third have the same
    places.set(i, i % 17 == 5  ? -1.0
                  : i % 3 == 0 ? static_cast<double>(p.table_rows / 2)
                               : static_cast<double>(random() % static_cast<uint32_t>(p.table_rows)));
  const DeviceTensor index = DeviceTensor::from_host(device, places),
                     x = DeviceTensor::random(device, p.dtype, {p.rows, p.width}, 1),
                     table = DeviceTensor::random(device, p.dtype, {p.table_rows, p.width}, 2);
  std::vector<double> expected = table.to_host().to_doubles();
  const std::vector<double> from = x.to_host().to_doubles();
  for (int64_t i = 0; i < p.rows; ++i)
    for (int64_t j = 0; j < p.width && places.get(i) >= 0; ++j)
      expected[static_cast<size_t>(static_cast<int64_t>(places.get(i)) * p.width + j)] +=
          from[i * p.width + j];
  const LaunchReport report = scatter_add_rows(x, index, table);
  EXPECT_TRUE(report.clean()) << report.virtual_report.format();
  const Comparison c = compare(table.to_host(), expected, p.tolerance);
  EXPECT_TRUE(c.passed) << c.format();
}

TEST(ScatterAddRows, OfFewRows) {
  expect_sums({"sm_80", float32, 45, 9, 83, 1e-4});
  expect_sums({"sm_90", float32, 70, 13, 520, 1e-4});
  expect_sums({"sm_90", bfloat16, 9, 40, 264, 0.05});
}
// So many that their indices are sorted first; the parts of one group are in several CTAs.
TEST(ScatterAddRows, OfManyRows) {
  expect_sums({"sm_90", float32, 4099, 2100, 2051, 1e-3});
  expect_sums({"sm_90", bfloat16, 4201, 5, 4008, 0.1});
}

TEST(ScatterAddRows, RefusesByName) {
  const Device device = virtual_gpu("sm_80");
  const DeviceTensor x = DeviceTensor::random(device, float32, {4, 30}, 1),
                     index = DeviceTensor::empty(device, int32, {4}),
                     half = DeviceTensor::empty(device, bfloat16, {4, 30});
  const auto refused = [](const auto& call, const std::string& message) {
    try {
      call();
      ADD_FAILURE() << "not refused: " << message;
    } catch (const LaunchError& error) {
      EXPECT_THAT(error.what(), HasSubstr(message));
    }
  };
  refused(
      [&] {
        scatter_add_rows(x, index, DeviceTensor::empty(device, float32, {9, 31}));
      },
      "scatter_add_rows: table");
  refused([&] { scatter_add_rows(x, DeviceTensor::empty(device, int32, {5}), x); },
          "scatter_add_rows: index");
  refused([&] { scatter_add_rows(half, index, half); }, "added from sm_90 on");
}

}  // namespace
}  // namespace imbrex::testing
