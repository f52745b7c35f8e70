// SPDX-License-Identifier: Apache-2.0
// Tensors with strides on the virtual GPU, and on a CUDA GPU where there is one: copies of rows, products and attention of
// tensors as they lie, in a graph too.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <random>
#include <string>
#include <string_view>

#include "../end_to_end/strided_memory.h"
#include "../skip.h"
#include "imbrex/kernels/attention.h"
#include "imbrex/kernels/matmul.h"
#include "imbrex/runtime/compare.h"
#include "imbrex/runtime/graph.h"

namespace imbrex {
namespace {

using testing::Lie;
using testing::StridedMemory;

struct DeviceStrides : ::testing::TestWithParam<const char*> {
  void SetUp() override {
    if (std::string_view(GetParam()) == "cuda" && !(Device::has_cuda() && Device::cuda().can_run("sm_90a")))
      IMBREX_SKIP(hopper);
    opened = Device::open(GetParam(), "sm_90a");
  }
  std::optional<Device> opened;
};
INSTANTIATE_TEST_SUITE_P(Kinds, DeviceStrides, ::testing::Values("virtual", "cuda"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(DeviceStrides, CopiesHonourThemAndLeaveGapsAlone) {
  const Device device = *opened;
  for (const Lie& lie :
       {Lie{.gap = 5, .first = 3}, Lie{.order = {2, 0, 1}, .gap = 3}, Lie{.gap = 2, .step = 3}}) {
    StridedMemory to(device, float16, {5, 70, 33}, 1, lie);
    const StridedMemory from(device, float16, {5, 70, 33}, 2, {.order = {1, 2, 0}, .gap = 1});
    const HostTensor host = HostTensor::random(float16, {5, 70, 33}, 3);
    to.tensor.copy_from(host);
    EXPECT_EQ(to.values(), host.to_doubles());
    to.expect_surroundings_untouched();
    to.tensor.poison();
    to.tensor.copy_from_async(host);
    HostTensor back(float16, {5, 70, 33});
    to.tensor.copy_to_async(back);
    device.synchronize();
    EXPECT_EQ(back.to_doubles(), host.to_doubles());
    to.tensor.copy_from(from.tensor);
    EXPECT_EQ(to.values(), from.values());
    to.expect_surroundings_untouched();
  }
}

std::vector<double> products(const StridedMemory& a, const StridedMemory& b, int64_t n) {
  const std::vector<double> x = a.values(), y = b.values();
  const int64_t batch = a.tensor.shape()[0], m = a.tensor.shape()[1], k = a.tensor.shape()[2];
  std::vector<double> all(static_cast<size_t>(batch * m * n));
  for (int64_t i = 0; i < batch * m; ++i)
    for (int64_t j = 0; j < n; ++j)
      for (int64_t l = 0; l < k; ++l) all[i * n + j] += x[i * k + l] * y[(i / m * n + j) * k + l];
  return all;
}

TEST_P(DeviceStrides, ProductsOfRandomKinds) {
  const Device device = *opened;
  std::mt19937_64 random(std::random_device{}());
  const auto up_to = [&](uint64_t n) { return static_cast<int64_t>(random() % (n + 1)); };
  const uint64_t most = device.is_virtual() ? 70 : 400;
  for (int round = 0; round < (device.is_virtual() ? 3 : 40); ++round) {
    const int64_t batch = 1 + up_to(4), m = 1 + up_to(most), n = 1 + up_to(most), k = 1 + up_to(most);
    const auto lie = [&](bool is_written) {
      Lie l{.order = {0, 1, 2}, .gap = up_to(2) * up_to(9), .first = up_to(9)};
      std::ranges::shuffle(l.order, random);
      if (is_written && l.order.back() == 0) std::swap(l.order[2], l.order[0]);
      return l;
    };
    const StridedMemory a(device, bfloat16, {batch, m, k}, 1, lie(false)),
        b(device, bfloat16, {batch, n, k}, 2, lie(false));
    const StridedMemory c(device, bfloat16, {batch, m, n}, 3, lie(true));
    matmul(a.tensor, b.tensor, c.tensor);
    const Comparison comparison = compare(c.tensor.to_host(), products(a, b, n), default_tolerance(bfloat16));
    EXPECT_TRUE(comparison.passed) << batch << " of " << m << "x" << n << "x" << k << ": "
                                   << comparison.format();
    c.expect_surroundings_untouched();
  }
}

/// Copies into the stream's workspaces are recorded with the launches that read them.
TEST_P(DeviceStrides, InAGraph) {
  const Device device = *opened;
  const Stream stream = Stream::create(device);
  StridedMemory a(device, float16, {3, 100, 75}, 1, {.gap = 1}),
      q(device, float16, {2, 2, 40, 32}, 4, {.gap = 1});
  const StridedMemory b(device, float16, {3, 60, 75}, 2, {.order = {0, 2, 1}}),
      c(device, float16, {3, 100, 60}, 3);
  const DeviceTensor o = DeviceTensor::empty(device, float16, {2, 2, 40, 32}),
                     other = DeviceTensor::empty(device, float16, {2, 2, 40, 32});
  prepare_matmul(a.tensor, b.tensor, c.tensor, {.stream = stream});
  prepare_attention(q.tensor, q.tensor, q.tensor, o, {.stream = stream});
  device.synchronize();
  const Graph graph = Graph::capture(stream, [&] {
    matmul(a.tensor, b.tensor, c.tensor, {.stream = stream});
    attention(q.tensor, q.tensor, q.tensor, o, {.stream = stream});
  });
  for (uint64_t seed : {5, 6}) {
    a.tensor.copy_from(HostTensor::random(float16, {3, 100, 75}, seed), stream);
    graph.launch(stream);
    stream.synchronize();
    EXPECT_TRUE(compare(c.tensor.to_host(), products(a, b, 60), default_tolerance(float16)).passed);
  }
  attention(q.tensor, q.tensor, q.tensor, other);
  EXPECT_EQ(o.to_host().to_doubles(), other.to_host().to_doubles());
}

}  // namespace
}  // namespace imbrex
