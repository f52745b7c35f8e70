// SPDX-License-Identifier: Apache-2.0
// PTX that nvcc made of the .cu files in data/, run as it is.
#include <cmath>

#include "vgpu_testing.h"

namespace imbrex::vgpu {
namespace {

Report launch(VirtualGpu& gpu, const std::string& name, const std::string& kernel, Dim3 grid, Dim3 block,
              std::vector<void*> arguments) {
  const Module module = gpu.load_module(read_data(name + ".ptx"), name + ".ptx");
  for (const std::string& function : module.function_names())
    if (function.find(kernel) != std::string::npos)
      return gpu.launch(module.function(function), {.grid = grid, .block = block, .arguments = arguments});
  ADD_FAILURE() << "no kernel " << kernel;
  return {};
}

TEST(Nvcc, VectorAdd) {
  VirtualGpu gpu({.target = "sm_90a"});
  const int n = 1000;
  std::vector<float> a(n), b(n);
  for (size_t i = 0; i < n; ++i) {
    a[i] = static_cast<float>(i) * 0.5f;
    b[i] = static_cast<float>(n - i);
  }
  DeviceAddress da = to_device(gpu, a), db = to_device(gpu, b), dc = gpu.allocate(n * 4);
  int count = n;
  const Report report = launch(gpu, "vector_add", "vector_add", {8}, {128}, {&da, &db, &dc, &count});
  EXPECT_TRUE(report.clean()) << report.format();
  const std::vector<float> c = from_device<float>(gpu, dc, n);
  for (size_t i = 0; i < n; ++i) ASSERT_EQ(c[i], a[i] + b[i]) << i;
  EXPECT_EQ(report.statistics.ctas, 8);
  EXPECT_EQ(report.statistics.global_bytes_written, n * 4);
  EXPECT_EQ(report.statistics.global_bytes_read, n * 8);
}

TEST(Nvcc, VectorAddOverrunsItsBuffer) {
  VirtualGpu gpu({.target = "sm_90a"});
  const std::vector<float> a(100);
  DeviceAddress da = to_device(gpu, a), db = to_device(gpu, a), dc = gpu.allocate(100 * 4);
  int count = 128;  // 28 too many
  const Report report = launch(gpu, "vector_add", "vector_add", {1}, {128}, {&da, &db, &dc, &count});
  EXPECT_TRUE(report.completed);
  ASSERT_EQ(report.findings.size(), 3u) << report.format();  // two loads, one store
  const Finding& f = report.findings[0];
  EXPECT_EQ(f.kind, FindingKind::kOutOfBounds);
  EXPECT_EQ(f.place.file, "vector_add.cu");
  EXPECT_EQ(f.place.line, 4);
  EXPECT_EQ(f.count, 28);
  EXPECT_EQ(f.actor.warp, 3);
  EXPECT_EQ(f.actor.lane, 4);
  EXPECT_EQ(f.address, db + 400);
  EXPECT_NE(f.format().find("0 bytes past the end of allocation 1"), std::string::npos) << f.format();
}

TEST(Nvcc, ReductionBySharedMemoryAndShuffles) {
  const int n = 5000;
  std::vector<float> in(n);
  double expected = 0;
  for (size_t i = 0; i < n; ++i) {
    in[i] =
        static_cast<float>(static_cast<int>(i * 37 % 101) - 50);  // sums of integers are exact in any order
    expected += static_cast<double>(in[i]);
  }
  for (const uint64_t seed : {0, 1, 2, 3}) {
    VirtualGpu gpu({.target = "sm_90a", .seed = seed});
    DeviceAddress din = to_device(gpu, in), dout = to_device(gpu, std::vector<float>{0});
    int count = n;
    const Report report = launch(gpu, "reduction", "reduction", {7}, {192}, {&din, &dout, &count});
    EXPECT_TRUE(report.clean()) << report.format();
    EXPECT_EQ(from_device<float>(gpu, dout, 1)[0], static_cast<float>(expected));
  }
}

TEST(Nvcc, HistogramByAtomics) {
  const int n = 20000;
  std::vector<uint8_t> in(n);
  std::vector<uint32_t> expected(256);
  for (size_t i = 0; i < n; ++i) {
    in[i] = static_cast<uint8_t>(i * i % 251);
    ++expected[in[i]];
  }
  for (const uint64_t seed : {0, 5}) {
    VirtualGpu gpu({.target = "sm_90a", .seed = seed});
    DeviceAddress din = to_device(gpu, in), bins = to_device(gpu, std::vector<uint32_t>(256));
    DeviceAddress done = to_device(gpu, std::vector<uint32_t>{0}),
                  total = to_device(gpu, std::vector<uint32_t>{0});
    int count = n;
    const Report report =
        launch(gpu, "histogram", "histogram", {13}, {128}, {&din, &bins, &done, &total, &count});
    EXPECT_TRUE(report.clean()) << report.format();
    EXPECT_EQ(from_device<uint32_t>(gpu, bins, 256), expected);
    EXPECT_EQ(from_device<uint32_t>(gpu, done, 1)[0], 13u);
    EXPECT_EQ(from_device<uint32_t>(gpu, total, 1)[0], static_cast<uint32_t>(n));
  }
}

TEST(Nvcc, Printf) {
  VirtualGpu gpu({.target = "sm_90a"});
  double scale = 1.25;
  const Report report = launch(gpu, "printing", "printing", {2}, {32}, {&scale});
  EXPECT_TRUE(report.clean()) << report.format();
  EXPECT_EQ(report.printf_output,
            "block 0 thread 3:   3.75 text z 123456789abc%\n"
            "block 0 thread 19:  23.75 text z 123456789abc%\n"
            "block 1 thread 3:   3.75 text z 123456789abc%\n"
            "block 1 thread 19:  23.75 text z 123456789abc%\n");
}

int collatz(unsigned n) {
  int steps = 0;
  while (n != 1) {
    n = n % 2 != 0 ? 3 * n + 1 : n / 2;
    ++steps;
  }
  return steps;
}
int choose(int kind, int x) {
  switch (kind) {
    case 0:
      return x + 7;
    case 1:
      return x * x;
    case 2:
      return collatz(static_cast<unsigned>(x) + 1);
    case 3:
      return x ^ 0x55;
    case 4:
      return -x;
    default:
      return 1000000 + x;
  }
}

TEST(Nvcc, CallsSwitchesLoopsAndLocalArrays) {
  VirtualGpu gpu({.target = "sm_90a"});
  const int n = 96;
  DeviceAddress out = gpu.allocate(n * 4), halves = gpu.allocate(n * 8);
  const Report report = launch(gpu, "calls", "calls", {3}, {32}, {&out, &halves});
  EXPECT_TRUE(report.clean()) << report.format();
  const std::vector<int> sums = from_device<int>(gpu, out, n);
  const std::vector<double> seconds = from_device<double>(gpu, halves, n);
  for (int i = 0; i < n; ++i) {
    const int k = i % 5 + 1;
    uint32_t sum = static_cast<uint32_t>(i * k + 1);
    int local[8];
    for (int j = 0; j < 8; ++j) local[(j * 3 + i) % 8] = choose(j % 6, i);
    for (int j = 0; j < 8; ++j) sum = sum * 31 + static_cast<uint32_t>(local[j]);
    EXPECT_EQ(sums[static_cast<size_t>(i)], static_cast<int>(sum)) << i;
    EXPECT_EQ(seconds[static_cast<size_t>(i)], i * 1.5 / k) << i;
  }
}

}  // namespace
}  // namespace imbrex::vgpu
