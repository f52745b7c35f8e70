// SPDX-License-Identifier: Apache-2.0
// PTX that nvcc made of the .cu files in data/, run as it is.
#include "vgpu_testing.h"

namespace imbrex::vgpu {
namespace {

TEST(Nvcc, VectorAdd) {
  VirtualGpu gpu({.target = "sm_90a"});
  Function add = gpu.load_module(read_data("vector_add.ptx")).function("vector_add");
  const int n = 1000;
  std::vector<float> a(n), b(n);
  for (int i = 0; i < n; ++i) {
    a[static_cast<size_t>(i)] = static_cast<float>(i) * 0.5f;
    b[static_cast<size_t>(i)] = static_cast<float>(n - i);
  }
  DeviceAddress da = to_device(gpu, a), db = to_device(gpu, b), dc = gpu.allocate(n * 4);
  int count = n;
  void* arguments[] = {&da, &db, &dc, &count};
  const Report report = gpu.launch(add, {.grid = {(n + 127) / 128}, .block = {128}, .arguments = arguments});
  EXPECT_TRUE(report.clean()) << report.format();
  const std::vector<float> c = from_device<float>(gpu, dc, n);
  for (int i = 0; i < n; ++i) {
    const size_t k = static_cast<size_t>(i);
    ASSERT_EQ(c[k], a[k] + b[k]) << i;
  }
  EXPECT_EQ(report.statistics.ctas, 8);
  EXPECT_EQ(report.statistics.global_bytes_written, n * 4);
  EXPECT_EQ(report.statistics.global_bytes_read, n * 8);
}

}  // namespace
}  // namespace imbrex::vgpu
