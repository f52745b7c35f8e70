// SPDX-License-Identifier: Apache-2.0
// Kernels that tune at their first call, and the tuner with kernels that add to memory: both must leave what the call
// itself would.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <thread>

#include "imbrex/core/error.h"
#include "imbrex/lang.h"
#include "imbrex/runtime/cache.h"
#include "imbrex/runtime/tuner.h"

namespace imbrex {
namespace {

using testing::HasSubstr;

enum Mode : int { kRight, kTwice, kTooLarge };

/// y += factor x.
struct AddTo {
  int mode = kRight;
  int block = 128;

  static auto space() {
    return Space<AddTo>().choose<&AddTo::mode, &AddTo::block>(
        {{kRight, 128}, {kTwice, 128}, {kTooLarge, 128}, {kRight, 512}, {kRight, 256}});
  }

  void operator()(Int32 n, int factor, Ptr<float32> x_ptr, Ptr<float32> y_ptr) const {
    grid(cdiv(n, block));
    warps(mode == kTooLarge ? 33 : 4);
    Int32 offset = block * block_idx.x;
    auto g_x = global_view(x_ptr, {n}), g_y = global_view(y_ptr, {n});
    auto x = load_global(g_x, {offset}, {block}) * static_cast<float>(factor);
    store_global(g_y, load_global(g_y, {offset}, {block}) + (mode == kTwice ? x + x : x), {offset});
  }
};

const KernelRegistration<AddTo> registration{
    {"add_to", "y += x", {{"n", 1000, "elements"}}}, [](Case& c, Kernel<AddTo>& kernel) {
      const int64_t n = c.size("n");
      DeviceTensor x = c.input(float32, {n}), y = c.input(float32, {n});
      const std::vector<double> a = c.values(x), b = c.values(y);
      c.launch(kernel, n, 1, x, y);
      c.expect(y, [&](std::span<double> out) {
        for (int64_t i = 0; i < n; ++i) out[i] = a[i] + b[i];
      });
    }};

enum Formula : int { kCopies, kTakesAbs };

/// y = x, slowly; or |x|, which is the same where the numbers of a call are not negative.
template <int kFirst, int kSecond>
struct Copy {
  int formula = kFirst;
  int block = 128;
  static auto space() {
    return Space<Copy>().template choose<&Copy::formula, &Copy::block>({{kFirst, 128}, {kSecond, 256}});
  }

  void operator()(Int32 n, Ptr<float32> x_ptr, Ptr<float32> y_ptr) const {
    grid(cdiv(n, block));
    warps(4);
    Int32 offset = block * block_idx.x;
    RegisterTensor x = load_global(global_view(x_ptr, {n}), {offset}, {block});
    RegisterTensor y = formula == kTakesAbs ? abs(x) : x;
    if (formula == kCopies)
      for ([[maybe_unused]] Int32 i : range(0, 200)) y = max(y, x);
    store_global(global_view(y_ptr, {n}), y, {offset});
  }
};

template <int kFirst, int kSecond>
KernelRegistration<Copy<kFirst, kSecond>> register_copy(const char* name) {
  return {{name, "y = x", {{"n", 1000, "elements"}}}, [](Case& c, Kernel<Copy<kFirst, kSecond>>& kernel) {
            const int64_t n = c.size("n");
            DeviceTensor x = c.input(float32, {n}), y = c.output(float32, {n});
            c.launch(kernel, n, x, y);
            c.expect(y, [&](std::span<double> out) { std::ranges::copy(c.values(x), out.begin()); });
          }};
}
const auto copy_then_abs = register_copy<kCopies, kTakesAbs>("copy_then_abs");
const auto abs_then_copy = register_copy<kTakesAbs, kCopies>("abs_then_copy");
const auto abs_only = register_copy<kTakesAbs, kTakesAbs>("abs_only");

std::string device_kind() {
  const char* asked = std::getenv("IMBREX_TEST_DEVICE");
  return asked == nullptr ? "virtual" : asked;
}

struct FirstCall : ::testing::Test {
  void SetUp() override { Cache::shared().clear(); }
  Device device = Device::open(device_kind(), "sm_80");
  std::vector<AutotuneReport> reports;
  /// With time for all candidates on whatever machine.
  AutotuneOptions options{.seconds = 600,
                          .report = [this](const AutotuneReport& report) { reports.push_back(report); }};

  /// Calls with fresh numbers, and checks that x was added once.
  LaunchReport call(Kernel<AddTo>& kernel, int64_t n, int factor = 1, const Stream& stream = {}) {
    const HostTensor x = HostTensor::random(float32, {n}, 1), y = HostTensor::random(float32, {n}, 2);
    DeviceTensor in = DeviceTensor::from_host(device, x), out = DeviceTensor::from_host(device, y);
    const LaunchReport report = kernel.on(stream)(n, factor, in, out);
    report.expect_clean();
    const HostTensor got = out.to_host(stream), kept = in.to_host(stream);
    for (int64_t i = 0; i < n; ++i) {
      EXPECT_EQ(got.get(i), static_cast<float>(y.get(i) + static_cast<float>(factor * x.get(i)))) << i;
      EXPECT_EQ(kept.get(i), x.get(i));
      if (HasFailure()) break;
    }
    return report;
  }
};

TEST_F(FirstCall, TunesOnceForAShapeAndAddsOnce) {
  Kernel<AddTo> kernel = Kernel<AddTo>::autotuned(device, options);
  call(kernel, 3000);
  ASSERT_EQ(reports.size(), 1u);
  const AutotuneReport& report = reports[0];
  EXPECT_EQ(report.kernel, "add_to");
  EXPECT_EQ(report.device, device.name());
  EXPECT_EQ(report.shape, (std::vector<int64_t>{3000, 1}));
  EXPECT_EQ(report.measured, 3);
  EXPECT_EQ(report.rejected, 1);
  EXPECT_EQ(report.wrong, 1);
  EXPECT_EQ(report.not_reached, 0);
  EXPECT_THAT(report.config, testing::StartsWith("mode=0 block="));
  EXPECT_GT(report.microseconds, 0);
  EXPECT_LE(report.microseconds, report.default_microseconds);
  EXPECT_EQ(report.compared_with,
            "1 output of the default configuration, and the reference of add_to with n=3000");
  EXPECT_THAT(report.text(), HasSubstr("3 measured, 1 rejected, 1 wrong, 0 not reached"));
  call(kernel, 3000);
  EXPECT_EQ(reports.size(), 1u);
  call(kernel, 3000, 3);  // another shape: the factor is a compile-time argument
  call(kernel, 1);
  ASSERT_EQ(reports.size(), 3u);
  EXPECT_EQ(reports[1].compared_with, "1 output of the default configuration");  // the case adds x once
  call(kernel, 3000);
  EXPECT_EQ(reports.size(), 3u);
}

TEST_F(FirstCall, IsComparedWithTheRegisteredReference) {
  HostTensor numbers(float32, {3000});
  for (int64_t i = 0; i < 3000; ++i) numbers.set(i, static_cast<double>(i));  // none of them negative
  const auto tune = [&](auto kernel) {
    kernel(3000, DeviceTensor::from_host(device, numbers), DeviceTensor::empty(device, float32, {3000}))
        .expect_clean();
    return reports.back();
  };
  const AutotuneReport faster = tune(Kernel<Copy<kCopies, kTakesAbs>>::autotuned(device, options));
  EXPECT_EQ(faster.config, "formula=0 block=128");
  EXPECT_EQ(faster.wrong + faster.measured, 2);
  // The fastest faces the reference; a GPU's assembler removes the loop that makes the right one slow.
  if (device_kind() == "virtual") {
    EXPECT_EQ(faster.wrong, 1);
  }
  const AutotuneReport first = tune(Kernel<Copy<kTakesAbs, kCopies>>::autotuned(device, options));
  EXPECT_EQ(first.config, "formula=0 block=256");
  EXPECT_EQ(first.wrong, 1);
  EXPECT_EQ(first.compared_with,
            "1 output of the first configuration that runs: formula=0 block=256, and the reference "
            "of abs_then_copy with n=3000");
  try {
    tune(Kernel<Copy<kTakesAbs, kTakesAbs>>::autotuned(device, options));
    FAIL();
  } catch (const LaunchError& error) {
    EXPECT_THAT(error.what(),
                HasSubstr("no configuration gives what the kernel's registered reference does"));
    EXPECT_THAT(error.what(), HasSubstr("abs_only with n=3000"));
    EXPECT_THAT(error.what(), HasSubstr("elements are wrong"));
  }
  EXPECT_EQ(reports.size(), 2u);
}

TEST_F(FirstCall, AReferenceThatTakesTooLongIsMadeOfTheDefaultSizes) {
  options.seconds = 0;
  Kernel<AddTo> hasty = Kernel<AddTo>::autotuned(device, options);
  call(hasty, 70000);
  ASSERT_EQ(reports.size(), 1u);
  EXPECT_THAT(reports[0].compared_with, HasSubstr("add_to with n=1000"));
}

TEST_F(FirstCall, TheWinnerIsKeptForOtherProcesses) {
  Kernel<AddTo> kernel = Kernel<AddTo>::autotuned(device, options);
  call(kernel, 3000);
  ASSERT_EQ(reports.size(), 1u);
  Kernel<AddTo> again = Kernel<AddTo>::autotuned(device, options);  // which knows only the cache
  call(again, 3000);
  EXPECT_EQ(reports.size(), 1u);
  const auto known = find_tuned(registered_kernel("add_to"), {{"n", 3000}}, device);
  ASSERT_TRUE(known);
  EXPECT_EQ(known->text, reports[0].config);
  EXPECT_FALSE(find_tuned(registered_kernel("add_to"), {{"n", 3001}}, device));
  Cache::shared().clear();
  Kernel<AddTo> forgotten = Kernel<AddTo>::autotuned(device, options);
  call(forgotten, 3000);
  EXPECT_EQ(reports.size(), 2u);
}

TEST_F(FirstCall, IsBoundedAndSwitchedOff) {
  options.seconds = 0;
  Kernel<AddTo> hasty = Kernel<AddTo>::autotuned(device, options);
  call(hasty, 3000);
  ASSERT_EQ(reports.size(), 1u);
  EXPECT_EQ(reports[0].measured, 1);
  EXPECT_EQ(reports[0].not_reached, 4);
  Cache::shared().clear();
  options.enabled = false;
  Kernel<AddTo> off = Kernel<AddTo>::autotuned(device, options);
  call(off, 3000);
  options.enabled = true;
  setenv("IMBREX_AUTOTUNE", "off", 1);
  Kernel<AddTo> told_off = Kernel<AddTo>::autotuned(device, options);
  unsetenv("IMBREX_AUTOTUNE");
  call(told_off, 3000);
  EXPECT_EQ(reports.size(), 1u);
}

TEST_F(FirstCall, PrepareTunesAndLeavesTheMemory) {
  Kernel<AddTo> kernel = Kernel<AddTo>::autotuned(device, options);
  DeviceTensor x = DeviceTensor::random(device, float32, {300}, 1),
               y = DeviceTensor::random(device, float32, {300}, 2);
  const HostTensor before = y.to_host();
  kernel.prepare(300, 1, x, y);
  EXPECT_EQ(reports.size(), 1u);
  EXPECT_TRUE(std::ranges::equal(before.bytes(), y.to_host().bytes()));
}

TEST_F(FirstCall, OnAnyStreamWithWorkOnOthers) {
  Kernel<AddTo> kernel = Kernel<AddTo>::autotuned(device, options);
  const Stream a = Stream::create(device);
  call(kernel, 300, 1, a);
  call(kernel, 301, 1, Stream::create(device));
  EXPECT_EQ(reports.size(), 2u);
}

TEST_F(FirstCall, AnAddressInPlaceOfATensorIsNotTuned) {
  Kernel<AddTo> kernel = Kernel<AddTo>::autotuned(device, options);
  DeviceTensor x = DeviceTensor::random(device, float32, {300}, 1),
               y = DeviceTensor::random(device, float32, {300}, 2);
  const HostTensor before = y.to_host();
  kernel(300, 1, x, y.address()).expect_clean();
  EXPECT_TRUE(reports.empty());
  EXPECT_EQ(y.to_host().get(7), static_cast<float>(before.get(7) + x.to_host().get(7)));
  kernel(299, 1, x.address(), y).expect_clean();  // what is only read may be one
  EXPECT_EQ(reports.size(), 1u);
}

TEST_F(FirstCall, WhatIsWrongWithTheCallIsSaid) {
  Kernel<AddTo> kernel = Kernel<AddTo>::autotuned(device, options);
  DeviceTensor x = DeviceTensor::random(device, float32, {300}, 1),
               y = DeviceTensor::random(device, float32, {200}, 2);
  const HostTensor before = y.to_host();
  EXPECT_THROW(kernel(300, 1, x, y), LaunchError);  // too small
  EXPECT_TRUE(std::ranges::equal(before.bytes(), y.to_host().bytes()));
  y.release();
  EXPECT_THROW(kernel(300, 1, x, y), LaunchError);
  EXPECT_TRUE(reports.empty());
}

TEST_F(FirstCall, SeveralThreadsTuneOnce) {
  Kernel<AddTo> kernel = Kernel<AddTo>::autotuned(device, options);
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) threads.emplace_back([&] { call(kernel, 400); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(reports.size(), 1u);
}

TEST_F(FirstCall, TheTunerRestoresWhatAKernelAddsTo) {
  TuneOptions quick;
  quick.device = device_kind();
  quick.timeout_s = device_kind() == "virtual" ? 0.05 : 1;
  const TuneResult result = tune(registered_kernel("add_to"), {{"n", 1000}}, quick);
  int right = 0;
  for (const Candidate& candidate : result.candidates) {
    right += candidate.is_right();
    const bool is_wrong = candidate.text.starts_with("mode=1");
    EXPECT_EQ(candidate.status == Candidate::Status::kWrong, is_wrong)
        << candidate.text << ": " << candidate.reason;
  }
  EXPECT_EQ(right, 3);
}

}  // namespace
}  // namespace imbrex

int main(int argc, char** argv) {
  if (argc > 1 && std::strcmp(argv[1], "worker") == 0) return imbrex::tune_worker_main();
  testing::InitGoogleTest(&argc, argv);
  char folder[] = "/tmp/imbrex-first-call-XXXXXX";
  if (mkdtemp(folder) == nullptr) return 1;
  setenv("IMBREX_CACHE_DIR", folder, 1);
  const int result = RUN_ALL_TESTS();
  std::filesystem::remove_all(folder);
  return result;
}
