// SPDX-License-Identifier: Apache-2.0
// imbrex::softmax and imbrex::layer_norm of tensors as they lie, against float64.
#include <gmock/gmock.h>

#include "imbrex/core/error.h"
#include "imbrex/kernels/layer_norm.h"
#include "imbrex/kernels/softmax.h"
#include "imbrex/runtime/compare.h"
#include "strided_memory.h"

namespace imbrex::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

Device virtual_gpu() { return Device::virtual_gpu({.target = "sm_80", .checks = vgpu::CheckSet::all()}); }

/// `row(x, columns)` changes a row of the expected values in place.
template <class Call, class Row>
void expect_rows(const std::vector<int64_t>& shape, const Lie& x_lie, const Lie& y_lie, const Call& call,
                 const Row& row) {
  const Device device = virtual_gpu();
  const StridedMemory x(device, float32, shape, 1, x_lie);
  StridedMemory y(device, float32, shape, 2, y_lie);
  y.tensor.poison();
  const LaunchReport report = call(device, x.tensor, y.tensor);
  EXPECT_TRUE(report.clean()) << report.virtual_report.format();
  std::vector<double> expected = x.values();
  for (size_t i = 0; i < expected.size(); i += static_cast<size_t>(shape.back())) row(expected.data() + i);
  const Comparison comparison = compare(y.tensor.to_host(), expected, default_tolerance(float32));
  EXPECT_TRUE(comparison.passed) << comparison.format();
  y.expect_surroundings_untouched();
}

struct Lies {
  std::vector<int64_t> shape;
  Lie x = {}, y = {};
};
const Lies kLies[] = {{{9, 200}},
                      {{9, 200}, {.gap = 4}, {.gap = 8, .first = 4}},
                      {{9, 77}, {.gap = 3, .first = 1}, {.first = 2}},
                      {{3, 5, 130}, {.order = {1, 0, 2}, .gap = 2}, {.order = {0, 1, 2}, .gap = 1}},
                      {{1, 1}, {.step = 5}},
                      {{3, 5, 64}},
                      {{2, 33001}},
                      {{3, 16392}}};

TEST(RowFunctions, Softmax) {
  for (const Lies& l : kLies)
    expect_rows(
        l.shape, l.x, l.y,
        [](const Device&, const DeviceTensor& x, const DeviceTensor& y) { return softmax(x, y); },
        [&](double* row) {
          double total = 0;
          for (int64_t j = 0; j < l.shape.back(); ++j) total += row[j] = std::exp(row[j]);
          for (int64_t j = 0; j < l.shape.back(); ++j) row[j] /= total;
        });
}

TEST(RowFunctions, LayerNorm) {
  for (const Lies& l : kLies) {
    if (l.shape.back() == 1) continue;  // whose variance is 0
    const int64_t n = l.shape.back();
    const HostTensor weight = HostTensor::random(float32, {n}, 5), bias = HostTensor::random(float32, {n}, 6);
    expect_rows(
        l.shape, l.x, l.y,
        [&](const Device& device, const DeviceTensor& x, const DeviceTensor& y) {
          return layer_norm(x, DeviceTensor::from_host(device, weight), DeviceTensor::from_host(device, bias),
                            y, 0.5f);
        },
        [&](double* row) {
          double mean = 0, variance = 0;
          for (int64_t j = 0; j < n; ++j) mean += row[j] / static_cast<double>(n);
          for (int64_t j = 0; j < n; ++j)
            variance += (row[j] - mean) * (row[j] - mean) / static_cast<double>(n);
          for (int64_t j = 0; j < n; ++j)
            row[j] = (row[j] - mean) / std::sqrt(variance + 0.5) * weight.get(j) + bias.get(j);
        });
  }
}

TEST(RowFunctions, InPlace) {
  const Device device = virtual_gpu();
  const StridedMemory x(device, float32, {6, 50}, 1, {.gap = 3});
  const DeviceTensor y = DeviceTensor::empty(device, float32, {6, 50});
  softmax(x.tensor, y).expect_clean();
  softmax(x.tensor, x.tensor).expect_clean();
  EXPECT_EQ(x.values(), y.to_host().to_doubles());
}

TEST(RowFunctions, RefuseByName) {
  const Device device = virtual_gpu(), other = Device::virtual_gpu({.target = "sm_90a"});
  const DeviceTensor x = DeviceTensor::random(device, float32, {4, 30}, 1),
                     y = DeviceTensor::empty(device, float32, {4, 30}),
                     one = DeviceTensor::random(device, float32, {30}, 2);
  const auto refused = [](const auto& call) -> std::string {
    try {
      call();
    } catch (const LaunchError& error) {
      return error.what();
    }
    return "not refused";
  };
  EXPECT_THAT(refused([&] { softmax(x, y.transpose()); }), HasSubstr("softmax: y has another shape"));
  EXPECT_THAT(
      refused([&] { softmax(x.transpose(), y.transpose()); }),
      AllOf(HasSubstr("softmax: x has a stride of 30 along its rows, not 1"), HasSubstr("contiguous")));
  EXPECT_THAT(
      refused([&] {
        softmax(x, DeviceTensor::empty(other, float32, {4, 30}));
      }),
      HasSubstr("softmax: y is on 'virtual GPU (sm_90a)', the first tensor on 'virtual GPU (sm_80)'"));
  EXPECT_THAT(refused([&] {
                softmax(x, DeviceTensor::empty(device, int32, {4, 30}));
              }),
              HasSubstr("softmax: y is of int32, not float16, bfloat16 or float32"));
  EXPECT_THAT(refused([&] { softmax(x, DeviceTensor()); }), HasSubstr("softmax: y is null or released"));
  EXPECT_THAT(refused([&] {
                softmax(x, DeviceTensor::view(device, y.address(), float32, {4, 30}, {0, 1}));
              }),
              HasSubstr("softmax: y is written, and its elements share memory"));
  EXPECT_THAT(refused([&] { softmax(one, one); }), HasSubstr("x has 1 dimensions, not 2 or 3"));
  EXPECT_THAT(refused([&] { layer_norm(x, y, one, y); }),
              HasSubstr("layer_norm: weight is not a dense tensor of [30]"));
}

}  // namespace
}  // namespace imbrex::testing
