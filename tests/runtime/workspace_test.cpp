// SPDX-License-Identifier: Apache-2.0
// Scratch memory in the order of streams, on the virtual GPU. In captures: stream_test.cpp.
#include "imbrex/runtime/workspace.h"

#include <gtest/gtest.h>

#include <cmath>
#include <thread>
#include <vector>

#include "imbrex/core/error.h"
#include "scale_kernel.h"

namespace imbrex {
namespace {

constexpr int64_t kLength = 300, kBytes = 4 * kLength;

struct Workspaces : ::testing::Test {
  Device device = Device::virtual_gpu({.target = "sm_80"});
  Stream a = Stream::create(device), b = Stream::create(device);
  DeviceTensor x = DeviceTensor::random(device, float32, {kLength}, 1),
               y = DeviceTensor::empty(device, float32, {kLength});
  Kernel<Scale> kernel{{}, device};

  Workspace take(const Stream& stream, int64_t bytes = kBytes,
                 Workspace::Contents contents = Workspace::Contents::kUndefined) {
    return Workspace::on(stream, device, bytes, contents);
  }
  std::string refusal(const Stream& stream, const Device& on, int64_t bytes) {
    try {
      Workspace::on(stream, on, bytes);
    } catch (const LaunchError& error) {
      return error.what();
    }
    return "";
  }
};

TEST_F(Workspaces, HoldWhatOneCallLeavesToTheNext) {
  for (const Stream& stream : {a, Stream(), Stream::adopt(device, nullptr)}) {
    device.synchronize();
    {
      const Workspace scratch = take(stream);
      EXPECT_EQ(scratch.bytes(), kBytes);
      EXPECT_EQ(scratch.address() % 256, 0u);
      kernel.on(stream)(kLength, 2, x, scratch.tensor(float32, {kLength})).expect_clean();
      kernel.on(stream)(kLength, 3, scratch.address(), y).expect_clean();
    }
    const HostTensor in = x.to_host(stream), out = y.to_host(stream);
    for (int64_t i = 0; i < kLength; ++i) ASSERT_EQ(out.get(i), static_cast<float>(6 * in.get(i)));
  }
}

TEST_F(Workspaces, AreKeptByTheirStreamAndSharedByNone) {
  uint64_t first = 0;
  {
    const Workspace one = take(a), two = take(a), other = take(b);
    first = one.address();
    EXPECT_NE(one.address(), two.address());
    EXPECT_NE(one.address(), other.address());
    EXPECT_NE(two.address(), other.address());
  }
  const Workspace of_b = take(b);
  Workspace again = take(a), third = take(a);
  EXPECT_TRUE(again.address() == first || third.address() == first);
  EXPECT_NE(of_b.address(), first);
  again.give_back();
  EXPECT_EQ(again.address(), 0u);
  EXPECT_EQ(again.bytes(), 0);
  EXPECT_GE(take(a, 1 << 20).bytes(), 1 << 20);  // larger than any kept
  EXPECT_NE(take(a, 0).address(), 0u);
}

TEST_F(Workspaces, ContentsAreUndefinedOrZeroEachTime) {
  for (int i = 0; i < 2; ++i) {
    const Workspace zero = take(a, kBytes, Workspace::Contents::kZero);
    const HostTensor before = zero.tensor(float32, {kLength}).to_host(a);
    for (int64_t k = 0; k < kLength; ++k) ASSERT_EQ(before.get(k), 0);
    kernel.on(a)(kLength, 2, x, zero.address()).expect_clean();
  }
  const HostTensor undefined = take(a).tensor(float32, {kLength}).to_host(a);
  for (int64_t k = 0; k < kLength; ++k) ASSERT_TRUE(std::isnan(undefined.get(k)));
}

TEST_F(Workspaces, LeftZeroAreFilledOnce) {
  const auto left_zero = [&](int64_t bytes) { return take(a, bytes, Workspace::Contents::kLeftZero); };
  const auto first_of = [&](const Workspace& scratch) {
    return scratch.tensor(int32, {1}).to_host(a).get(0);
  };
  uint64_t address = 0;
  {
    const Workspace scratch = left_zero(kBytes);
    address = scratch.address();
    EXPECT_EQ(first_of(scratch), 0);
    kernel.on(a)(kLength, 2, x, scratch.address()).expect_clean();  // breaks the promise
  }
  EXPECT_NE(take(a).address(), address);  // not for those who do not leave it zero
  const Workspace again = left_zero(kBytes);
  ASSERT_EQ(again.address(), address);
  EXPECT_NE(first_of(again), 0);  // nothing has filled it
  EXPECT_EQ(first_of(left_zero(kBytes)), 0);
}

TEST_F(Workspaces, OnAnotherStreamNeedAnEvent) {
  const Workspace scratch = take(a, kBytes, Workspace::Contents::kZero);
  const LaunchReport report = kernel.on(b)(kLength, 2, scratch.address(), y);
  EXPECT_FALSE(report.clean());
  EXPECT_NE(report.virtual_report.format().find("which the fill on stream"), std::string::npos)
      << report.virtual_report.format();
  device.synchronize();
  const Workspace mended = take(a, kBytes, Workspace::Contents::kZero);
  b.wait(Event::recorded_on(a));
  kernel.on(b)(kLength, 2, mended.address(), y).expect_clean();
  a.wait(Event::recorded_on(b));  // before it is given back
}

TEST_F(Workspaces, GivenBackWhileALaunchMayUseThem) {
  {
    const Workspace scratch = take(a);
    b.wait(Event::recorded_on(a));
    kernel.on(b)(kLength, 2, x, scratch.address()).expect_clean();
  }
  const LaunchReport report = kernel.on(a)(kLength, 2, x, y);  // the next call tells
  const std::string text = report.virtual_report.format();
  EXPECT_NE(text.find("the end of a workspace on stream"), std::string::npos) << text;
  EXPECT_NE(text.find("which the launch of 'scale' on stream"), std::string::npos) << text;
  device.synchronize();
  kernel.on(a)(kLength, 2, x, y).expect_clean();  // and tells it once
}

TEST_F(Workspaces, OfADestroyedStreamAreFreed) {
  uint64_t address = 0;
  {
    const Stream gone = Stream::create(device);
    address = take(gone).address();
  }
  EXPECT_THROW(DeviceTensor::view(device, address, float32, {kLength}), LaunchError);
  Workspace last;
  {
    const Stream kept = Stream::create(device);
    last = take(kept);
  }
  kernel(kLength, 2, x, last.address());  // its stream lives as long as it does
}

TEST_F(Workspaces, OfSeveralThreads) {
  std::vector<std::thread> threads;
  for (int i = 1; i < 4; ++i)
    threads.emplace_back([&, i] {
      const Stream own = Stream::create(device);
      DeviceTensor out = DeviceTensor::empty(device, float32, {kLength});
      for (int k = 0; k < 10; ++k) {
        const Workspace scratch = take(own);
        kernel.on(own)(kLength, i, x, scratch.address()).expect_clean();
        kernel.on(own)(kLength, 2, scratch.address(), out).expect_clean();
      }
      const HostTensor in = x.to_host(own), got = out.to_host(own);
      for (int64_t k = 0; k < kLength; ++k) ASSERT_EQ(got.get(k), static_cast<float>(2 * i * in.get(k)));
    });
  for (std::thread& thread : threads) thread.join();
}

TEST_F(Workspaces, WhatIsRefused) {
  const Device other = Device::virtual_gpu({.target = "sm_90a"});
  EXPECT_NE(refusal(a, device, -1).find("-1 bytes"), std::string::npos);
  EXPECT_NE(refusal(a, other, 1).find("use a stream of the same device"), std::string::npos);
  EXPECT_THROW(take(a).tensor(float32, {kLength + 1}), LaunchError);
  EXPECT_THROW(Workspace().tensor(float32, {1}), LaunchError);
  EXPECT_EQ(Workspace().address(), 0u);
}

}  // namespace
}  // namespace imbrex
