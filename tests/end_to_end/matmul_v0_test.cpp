// SPDX-License-Identifier: Apache-2.0
// What the first matmul of the ladder must do beyond the cases of blackwell_ladder_test.cpp: one compiled
// kernel for every m, every alignment of k that cp.async has a width for, a clear error where it has none,
// and
// (`full`) many schedules and the size of the tutorials.
#include "imbrex/kernels/blackwell_matmul/matmul_v0.h"
#include "../full.h"
#include "imbrex/runtime/registry.h"
#include "kit.h"

namespace imbrex::testing {
namespace {

using kernels::BlackwellMatmulV0;

/// Runs C = A B^T and compares every element with float64.
void expect_matmul(Kernel<BlackwellMatmulV0>& kernel, const Device& device, int64_t m, int64_t n, int64_t k,
                   uint64_t seed) {
  SCOPED_TRACE(std::to_string(m) + " x " + std::to_string(n) + " x " + std::to_string(k));
  DeviceTensor a = DeviceTensor::random(device, float16, {m, k}, seed * 2);
  DeviceTensor b = DeviceTensor::random(device, float16, {n, k}, seed * 2 + 1);
  DeviceTensor c = DeviceTensor::empty(device, float16, {m, n});
  c.poison();
  const LaunchReport report = kernel(m, n, k, a, b, c);
  EXPECT_TRUE(report.clean()) << report.virtual_report.format();
  const std::vector<double> x = a.to_host().to_doubles(), y = b.to_host().to_doubles();
  std::vector<double> expected(static_cast<size_t>(m * n));
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) {
      double sum = 0;
      for (int64_t l = 0; l < k; ++l) sum += x[i * k + l] * y[j * k + l];
      expected[i * n + j] = sum;
    }
  const Comparison comparison = compare(c.to_host(), expected, default_tolerance(float16));
  EXPECT_TRUE(comparison.passed) << comparison.format();
}

Device blackwell(uint64_t seed = 0) {
  return Device::virtual_gpu(
      {.target = "sm_100a", .host_threads = 1, .seed = seed, .checks = vgpu::CheckSet::all()});
}

TEST(MatmulV0, SmallestSizesOfEveryCandidate) {
  for (const Configuration& configuration : BlackwellMatmulV0::space().configurations()) {
    BlackwellMatmulV0 instance;
    BlackwellMatmulV0::space().apply(&instance, configuration);
    const Device device = blackwell();
    Kernel<BlackwellMatmulV0> kernel(instance, device);
    expect_matmul(kernel, device, instance.block_m, instance.block_n, instance.block_k, 1);
    expect_matmul(kernel, device, 1, 1, 8, 2);
  }
}

TEST(MatmulV0, OneCompiledKernelServesEveryM) {
  const Device device = blackwell();
  Kernel<BlackwellMatmulV0> kernel({}, device);
  for (int64_t m : {1, 2, 127, 128, 129, 200, 256, 300})
    expect_matmul(kernel, device, m, 72, 48, static_cast<uint64_t>(m));
}

TEST(MatmulV0, CopiesAsWideAsTheRowsAllow) {
  // Rows of 16-, 8- and 4-byte multiples; the last ends inside a copy of the tile.
  const Device device = blackwell();
  Kernel<BlackwellMatmulV0> kernel({.block_m = 128, .block_n = 64, .block_k = 32}, device);
  for (int64_t k : {64, 40, 36, 34, 4, 2})
    expect_matmul(kernel, device, 150, 70, k, static_cast<uint64_t>(k));
}

TEST(MatmulV0, OddRowsCannotBeCopied) {
  const Device device = blackwell();
  Kernel<BlackwellMatmulV0> kernel({}, device);
  DeviceTensor a = DeviceTensor::random(device, float16, {128, 33}, 1),
               c = DeviceTensor::empty(device, float16, {128, 128});
  const std::string message = error_of<CompileError>([&] { kernel(128, 128, 33, a, a, c); });
  EXPECT_NE(message.find(": error: copy_async: no 4 bytes of a row are aligned alike in the source "
                         "and the destination; cp.async copies 4, 8 or 16 aligned bytes"),
            std::string::npos)
      << message;
  EXPECT_NE(message.find("copy_async(g_a, s_a, {offset_m, offset_k});"), std::string::npos) << message;
  EXPECT_NE(message.find("source dimension 0: not contiguous"), std::string::npos) << message;
  EXPECT_NE(message.find("stride 33"), std::string::npos) << message;
  EXPECT_NE(message.find("help: make strides and offsets multiples of 2 elements (best 8), or use "
                         "load_global and store_shared"),
            std::string::npos)
      << message;
}

TEST(MatmulV0, FiveSchedules) {
  for (uint64_t seed = 0; seed < 5; ++seed) {
    const Device device = blackwell(seed);
    Kernel<BlackwellMatmulV0> kernel({}, device);
    expect_matmul(kernel, device, 140, 72, 48, seed);
  }
}

TEST(MatmulV0AtLength, FiftySchedulesOfEveryCandidate) {
  IMBREX_AT_LENGTH();
  for (const Configuration& configuration : BlackwellMatmulV0::space().configurations()) {
    BlackwellMatmulV0 instance;
    BlackwellMatmulV0::space().apply(&instance, configuration);
    for (uint64_t seed = 0; seed < 50; ++seed) {
      const Device device = blackwell(seed);
      Kernel<BlackwellMatmulV0> kernel(instance, device);
      expect_matmul(kernel, device, 140, 72, 104, seed);
    }
  }
}

TEST(MatmulV0AtLength, AThousandCubedOfEveryCandidate) {
  IMBREX_AT_LENGTH();
  const RegisteredKernel& kernel = registered_kernel("blackwell_matmul_v0");
  for (const Configuration& configuration : kernel.space.configurations()) {
    const Device device = Device::virtual_gpu({.target = "sm_100a"});
    Case c(Case::Mode::kRun, device, {{"m", 1024}, {"n", 1024}, {"k", 1024}}, 7);
    kernel.run(c, device, configuration);
    EXPECT_TRUE(c.verified()) << kernel.space.to_string(configuration);
    EXPECT_TRUE(c.report.clean()) << kernel.space.to_string(configuration) << "\n"
                                  << c.report.virtual_report.format();
  }
}

}  // namespace
}  // namespace imbrex::testing
