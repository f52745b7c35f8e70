// SPDX-License-Identifier: Apache-2.0
// Calls that a GPU may carry out at the same time, in memory that both touch: reported by the lines of both. Each test
// has the fault, and what mends it.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "imbrex/core/error.h"
#include "imbrex/runtime/stream.h"
#include "scale_kernel.h"

namespace imbrex {
namespace {

constexpr int64_t kLength = 300;

struct CallOrder : ::testing::Test {
  Device device = Device::virtual_gpu({.target = "sm_80"});
  Stream a = Stream::create(device), b = Stream::create(device);
  DeviceTensor x = DeviceTensor::random(device, float32, {kLength}, 1),
               y = DeviceTensor::empty(device, float32, {kLength}),
               z = DeviceTensor::empty(device, float32, {kLength});
  Kernel<Scale> kernel{{}, device};
};

/// "…_test.cpp:12", of the line that many above the caller's.
std::string line_above(int lines = 1, SourceLocation here = SourceLocation::current()) {
  const std::string file = here.file;
  return fmt::format("{}:{}", file.substr(file.rfind('/') + 1), here.line - static_cast<uint32_t>(lines));
}

::testing::AssertionResult tells(const std::string& text, std::initializer_list<std::string> parts) {
  for (const std::string& part : parts)
    if (text.find(part) == std::string::npos)
      return ::testing::AssertionFailure() << "no '" << part << "' in: " << text;
  return ::testing::AssertionSuccess();
}

/// What the DeviceError says that `call` throws; "" where it throws none.
template <class Call>
std::string failure(Call call) {
  try {
    call();
  } catch (const DeviceError& error) {
    return error.what();
  }
  return "";
}

TEST_F(CallOrder, TwoStreamsNeedAnEvent) {
  kernel.on(a)(kLength, 2, x, y).expect_clean();
  const LaunchReport report = kernel.on(b)(kLength, 3, y, z);
  ASSERT_EQ(report.virtual_report.findings.size(), 1u);
  EXPECT_FALSE(report.clean());
  EXPECT_TRUE(
      tells(report.virtual_report.format(),
            {line_above(3) + ": race: the launch of 'scale' on stream", "reads 1200 bytes",
             "which the launch of 'scale' on stream", "writes, with nothing that orders the two",
             line_above(4) + ": launch of 'scale'", "kernel.on(b)(kLength, 3, y, z)", "record an event"}));
  device.synchronize();
  kernel.on(a)(kLength, 2, x, y).expect_clean();
  b.wait(Event::recorded_on(a));
  kernel.on(b)(kLength, 3, y, z).expect_clean();
}

TEST_F(CallOrder, TheDevicesOwnStreamIsOneAmongOthers) {
  y.poison();
  LaunchReport report = kernel.on(a)(kLength, 2, x, y);
  EXPECT_TRUE(
      tells(report.virtual_report.format(), {"the fill on the device's own stream writes", line_above(2)}));
  device.synchronize();
  kernel.on(a)(kLength, 2, x, y).expect_clean();
  report = kernel(kLength, 2, y, z);  // whose line is known as well
  EXPECT_TRUE(tells(report.virtual_report.format(),
                    {line_above() + ": race: the launch of 'scale' on the device's"}));
  device.synchronize();
  y.poison(a);
  kernel.on(a)(kLength, 2, x, y).expect_clean();
}

TEST_F(CallOrder, AHostCopyBeforeASynchronisation) {
  kernel.on(a)(kLength, 2, x, y).expect_clean();
  EXPECT_TRUE(tells(failure([&] { y.to_host(); }),
                    {line_above(0) + ": error: race: the copy to the host on the device",
                     "which the launch of 'scale' on", line_above()}));
  device.synchronize();
  kernel.on(a)(kLength, 2, x, y).expect_clean();
  y.to_host(a);
  kernel.on(a)(kLength, 2, x, y).expect_clean();
  a.synchronize();
  y.to_host();
  kernel.on(a)(kLength, 2, x, y).expect_clean();
  Event::recorded_on(a).synchronize();
  y.to_host();
}

TEST_F(CallOrder, AnUploadThatALaunchDoesNotWaitFor) {
  const HostTensor host = HostTensor::random(float32, {kLength}, 2);
  x.copy_from_async(host, a);
  EXPECT_FALSE(kernel.on(b)(kLength, 2, x, y).clean());
  device.synchronize();
  x.copy_from(host, a);  // which waits
  EXPECT_TRUE(kernel.on(b)(kLength, 2, x, y).clean());
  EXPECT_TRUE(
      tells(failure([&] { x.copy_from_async(host, a); }), {"copy from the host", "reads, with nothing"}));
}

TEST_F(CallOrder, HostMemoryThatTwoCopiesUse) {
  HostTensor host = HostTensor::random(float32, {kLength}, 2);
  x.copy_to_async(host, a);
  EXPECT_TRUE(tells(failure([&] { y.copy_from_async(host, b); }),
                    {"copy from the host", "the copy to the host on", line_above(1)}));
  device.synchronize();
  x.copy_to_async(host, a);
  y.copy_from_async(host, a);
}

TEST_F(CallOrder, ARepeatedCopyOnTheDevice) {
  y.copy_from(x, a);
  EXPECT_TRUE(tells(failure([&] { y.fill(0, b); }), {"the fill on", "the copy on the device on"}));
  device.synchronize();
  y.copy_from(x, a);
  z.copy_from(x, b);  // both read x
}

TEST_F(CallOrder, AReleaseWhileALaunchMayRun) {
  kernel.on(a)(kLength, 2, x, y).expect_clean();
  EXPECT_TRUE(tells(failure([&] { x.release(); }),
                    {line_above(0), "the release of a tensor by the host", line_above()}));
  EXPECT_NE(x.address(), 0u);  // it was refused
  a.synchronize();
  x.release();
  kernel.on(a)(kLength, 2, y, z).expect_clean();
  { const DeviceTensor last = std::move(z); }  // the last handle's end waits, and tells nobody
  EXPECT_FALSE(kernel.on(b)(kLength, 2, y, y).clean()) << "its wait is not to be counted on";
}

TEST_F(CallOrder, UseAfterFreeNamesTheFree) {
  const DeviceTensor view = DeviceTensor::view(device, x.address(), float32, {kLength});
  x.release();
  const LaunchReport report = kernel(kLength, 2, view, y);
  EXPECT_TRUE(tells(report.virtual_report.format(), {"use-after-free", "freed at", line_above(2)}));
}

TEST_F(CallOrder, DefaultStreamsOfCuda) {
  const Stream legacy = Stream::adopt(device, nullptr),
               of_thread = Stream::adopt(device, reinterpret_cast<void*>(2));
  kernel.on(of_thread)(kLength, 2, x, y).expect_clean();
  kernel.on(legacy)(kLength, 2, y, z).expect_clean();
  kernel.on(of_thread)(kLength, 2, z, y).expect_clean();
  EXPECT_FALSE(kernel.on(a)(kLength, 2, z, y).clean());  // Stream::create's do not block
}

TEST_F(CallOrder, AdoptedHandlesAreTheirStream) {
  const Stream again = Stream::adopt(device, a.handle());
  kernel.on(a)(kLength, 2, x, y).expect_clean();
  kernel.on(again)(kLength, 2, y, z).expect_clean();
  void* handle = nullptr;
  {
    const Stream gone = Stream::create(device);
    handle = gone.handle();
  }
  EXPECT_THROW(Stream::adopt(device, handle), LaunchError);
}

TEST_F(CallOrder, TimedLaunchesWait) {
  kernel.on(a).launch_timed(kLength, 2, x, y).expect_clean();
  kernel.on(b)(kLength, 2, y, z).expect_clean();
}

}  // namespace
}  // namespace imbrex
