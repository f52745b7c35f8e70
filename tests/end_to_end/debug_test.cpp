// SPDX-License-Identifier: Apache-2.0
// Looking into a running kernel: printf, print_tensor, check, assume.
#include <algorithm>

#include "kit.h"

namespace imbrex::testing {
namespace {

TEST(Printf, EveryConversion) {
  Machine machine;
  const LaunchReport report = machine.run(
      [](Int32 a, UInt32 b, Int64 c, UInt64 d, Float32 e, Float64 f) {
        grid(1);
        if (auto thread = single_thread()) printf("%d %u %x %lld %llx %f %e %g %%\n", a, b, b, c, d, e, e, f);
      },
      -5, 4000000000u, int64_t{-1} << 40, ~uint64_t{0}, 1.5f, -2.25);
  EXPECT_EQ(report.virtual_report.printf_output,
            "-5 4000000000 ee6b2800 -1099511627776 ffffffffffffffff 1.500000 1.500000e+00 -2.25 %\n");
}

TEST(Printf, OncePerExecutingThreadAndCta) {
  Machine machine(Arch::kSm90a);
  const LaunchReport report = machine.run(
      [](Int32 ctas) {
        grid(ctas);
        if (auto group = thread_group(29, 3)) printf("cta %d\n", block_idx.x);
        if (auto arm = when(block_idx.x == 1)) {
          if (auto thread = single_thread(64)) printf("one %g\n", cast(block_idx.x, float32) / 3);
        }
      },
      2);
  const std::string& text = report.virtual_report.printf_output;
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 7) << text;
  EXPECT_NE(text.find("one 0.333333\n"), std::string::npos) << text;
}

TEST(PrintTensor, PrintsEveryElementOfCtaZero) {
  Machine machine;
  const LaunchReport report = machine.run(
      [](Int32 ctas) {
        grid(ctas);
        auto tile = register_tensor(int32, {3, 4}, [](auto i, auto j) { return i * 10 + j; });
        print_tensor(tile, "tile");
        auto box = shared_tensor(float16, {2, 3});
        store_shared(box, register_tensor(float16, {2, 3}, [](auto i, auto j) { return i - j / 2; }));
        sync();
        print_tensor(box.transpose());
      },
      3);
  EXPECT_EQ(report.virtual_report.printf_output,
            "tile\n0, 1, 2, 3\n10, 11, 12, 13\n20, 21, 22, 23\n"
            "0, 1\n0, 1\n-1, 0\n");
}

TEST(Check, TrapsWithItsMessageAndLine) {
  const auto checked = [](Int32 n, Int32 limit) {
    grid(n);
    check(block_idx.x < limit, "too many blocks");
  };
  Machine machine;
  EXPECT_TRUE(machine.launch(checked, 4, 4).clean());
  const vgpu::Report report = machine.launch(checked, 4, 2).virtual_report;
  EXPECT_FALSE(report.completed);
  ASSERT_FALSE(report.findings.empty());
  const vgpu::Finding& finding = report.findings[0];
  EXPECT_EQ(finding.kind, vgpu::FindingKind::kTrap);
  EXPECT_NE(finding.place.file.find("debug_test.cpp"), std::string::npos) << finding.format();
  EXPECT_NE(finding.format().find("too many blocks"), std::string::npos)
      << finding.format() << report.printf_output;
}

TEST(Assume, ViolatedIsFound) {
  const auto assuming = [](Int32 n, Ptr<int32> out_ptr) {
    grid(1);
    assume(n % 4 == 0);
    auto g_out = global_view(out_ptr, {n});
    store_global(g_out, full(int32, {64}, n), {0});
  };
  Machine machine;
  EXPECT_TRUE(machine.launch(assuming, 60, machine.output(int32, {60})).clean());
  const vgpu::Report report = machine.launch(assuming, 61, machine.output(int32, {61})).virtual_report;
  ASSERT_FALSE(report.findings.empty()) << "the promise was not kept and nobody noticed";
  EXPECT_EQ(report.findings[0].kind, vgpu::FindingKind::kTrap) << report.format();
}

/// What is timed without checks is what runs on a chip: no tests of promises, which took a third of `top_k`'s predicted time.
TEST(Assume, IsNotTestedWhereNothingIsChecked) {
  const auto assuming = [](Int32 n, Ptr<int32> out_ptr) {
    grid(1);
    assume(n % 4 == 0);
    auto g_out = global_view(out_ptr, {n});
    store_global(g_out, full(int32, {64}, n), {0});
  };
  using K = RetargetedLambda<decltype(assuming)>;
  K::target = "sm_80";
  int64_t instructions[2];
  for (const bool checks : {false, true}) {
    const Device device = Device::virtual_gpu(
        {.target = K::target, .checks = checks ? vgpu::CheckSet::all() : vgpu::CheckSet::none()});
    Kernel<K> kernel(K(assuming), device);
    const vgpu::Report kept = kernel(60, DeviceTensor::empty(device, int32, {60})).virtual_report;
    const vgpu::Report broken = kernel(61, DeviceTensor::empty(device, int32, {61})).virtual_report;
    EXPECT_TRUE(kept.clean()) << kept.format();
    EXPECT_EQ(broken.clean(), !checks) << broken.format();
    instructions[checks] = kept.statistics.instructions;
  }
  EXPECT_LT(instructions[false], instructions[true]);
}

}  // namespace
}  // namespace imbrex::testing
