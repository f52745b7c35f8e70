// SPDX-License-Identifier: Apache-2.0
// Graphs: recorded once, replayed with what is in memory then. On the virtual GPU, and on a CUDA GPU where there is one.
#include "imbrex/runtime/graph.h"

#include <gtest/gtest.h>

#include <optional>
#include <stdexcept>
#include <string_view>

#include "../skip.h"
#include "imbrex/core/error.h"
#include "imbrex/runtime/workspace.h"
#include "scale_kernel.h"

namespace imbrex {
namespace {

constexpr int64_t kLength = 300;

struct Graphs : ::testing::TestWithParam<const char*> {
  void SetUp() override {
    if (std::string_view(GetParam()) == "cuda" && !Device::has_cuda()) IMBREX_SKIP(gpu);
    device = Device::open(GetParam(), "sm_80");
    stream = Stream::create(*device);
    x = DeviceTensor::random(*device, float32, {kLength}, 1);
    y = DeviceTensor::empty(*device, float32, {kLength});
    z = DeviceTensor::empty(*device, float32, {kLength});
    kernel.emplace(Scale{}, *device);
  }
  void expect_scaled(const HostTensor& in, const HostTensor& out, double factor) {
    for (int64_t i = 0; i < kLength; ++i) ASSERT_EQ(out.get(i), static_cast<float>(in.get(i) * factor)) << i;
  }
  std::optional<Device> device;
  Stream stream;
  DeviceTensor x, y, z;
  std::optional<Kernel<Scale>> kernel;
};

template <class Call>
std::string refusal(Call call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "not refused";
}

TEST_P(Graphs, RecordThenReplay) {
  kernel->prepare(kLength, 2, x, y);
  kernel->prepare(kLength, 3, y, z);
  z.fill(0, stream);
  const Graph graph = Graph::capture(stream, [&] {
    EXPECT_TRUE(stream.is_capturing());
    kernel->on(stream)(kLength, 2, x, y).expect_clean();
    kernel->on(stream)(kLength, 3, y, z).expect_clean();
  });
  EXPECT_FALSE(stream.is_capturing());
  EXPECT_EQ(z.to_host(stream).get(7), 0);  // nothing was carried out
  for (uint64_t seed : {2, 3}) {
    const HostTensor fresh = HostTensor::random(float32, {kLength}, seed);
    x.copy_from(fresh, stream);
    graph.launch(stream).expect_clean();
    expect_scaled(fresh, z.to_host(stream), 6);
  }
}

TEST_P(Graphs, CopiesFillsAndWorkspaces) {
  HostTensor in = HostTensor::random(float32, {kLength}, 5), out(float32, {kLength});
  kernel->prepare(kLength, 2, x, y);
  const Graph graph = Graph::capture(stream, [&] {
    const Workspace scratch = Workspace::on(stream, *device, 4 * kLength, Workspace::Contents::kZero);
    x.copy_from_async(in, stream);
    kernel->on(stream)(kLength, 2, x, scratch.address());
    kernel->on(stream)(kLength, 2, scratch.address(), y);
    z.copy_from(y, stream);
    y.fill(0, stream);
    z.copy_to_async(out, stream);
  });
  for (int i = 0; i < 2; ++i) {
    graph.launch(stream).expect_clean();
    stream.synchronize();
    expect_scaled(in, out, 4);
    EXPECT_EQ(y.to_host(stream).get(3), 0);
    for (int64_t k = 0; k < kLength; ++k)
      in.set(k, static_cast<double>(k + i));  // read again by the next replay
  }
}

TEST_P(Graphs, WhatACaptureDoesNotBear) {
  const auto in_capture = [&](auto&& call) { return refusal([&] { Graph::capture(stream, call); }); };
  const std::string compiles = in_capture([&] { kernel->on(stream)(kLength, 7, x, y); });
  EXPECT_NE(compiles.find("prepare(...)"), std::string::npos) << compiles;
  EXPECT_FALSE(stream.is_capturing());  // the capture has ended
  EXPECT_NE(in_capture([&] { x.to_host(stream); }).find("to_host"), std::string::npos);
  EXPECT_NE(in_capture([&] { stream.synchronize(); }).find("would wait"), std::string::npos);
  EXPECT_NE(in_capture([&] { device->synchronize(); }), "not refused");
  EXPECT_NE(in_capture([&] { DeviceTensor::empty(*device, float32, {kLength}); }), "not refused");
  EXPECT_NE(in_capture([&] { Graph::capture(stream, [] {}); }).find("captured already"), std::string::npos);
  EXPECT_NE(in_capture([&] {
              try {
                device->synchronize();
              } catch (const Error&) {
                // It spoils the capture nevertheless.
              }
            }),
            "not refused");
  EXPECT_THROW(Graph::capture(stream, [] { throw std::runtime_error("mine"); }), std::runtime_error);
  EXPECT_NE(refusal([] { Graph::capture(Stream(), [] {}); }), "not refused");
  EXPECT_NE(refusal([&] { Graph::capture(Stream::adopt(*device, nullptr), [] {}); }).find("legacy"),
            std::string::npos);
  kernel->on(stream)(kLength, 7, x, y).expect_clean();  // and the stream works
  expect_scaled(x.to_host(stream), y.to_host(stream), 7);
}

TEST_P(Graphs, OnAnotherStreamAndDevice) {
  kernel->prepare(kLength, 2, x, y);
  const Graph graph = Graph::capture(stream, [&] { kernel->on(stream)(kLength, 2, x, y); });
  const Stream other = Stream::create(*device);
  graph.launch(other).expect_clean();
  graph.launch(stream).expect_clean();  // which comes after its launch before
  stream.synchronize();
  expect_scaled(x.to_host(), y.to_host(), 2);
  const Device foreign = Device::virtual_gpu({.target = "sm_90a"});
  EXPECT_NE(refusal([&] { graph.launch(Stream::create(foreign)); }).find("same device"), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(Devices, Graphs, ::testing::Values("virtual", "cuda"),
                         [](const auto& info) { return std::string(info.param); });

TEST(GraphOrder, ReplaysRaceAsTheirCallsDo) {
  const Device device = Device::virtual_gpu({.target = "sm_80"});
  const Stream a = Stream::create(device), b = Stream::create(device);
  DeviceTensor x = DeviceTensor::random(device, float32, {kLength}, 1),
               y = DeviceTensor::empty(device, float32, {kLength});
  Kernel<Scale> kernel({}, device);
  kernel.prepare(kLength, 2, x, y);
  const Graph graph = Graph::capture(a, [&] { kernel.on(a)(kLength, 2, x, y); });
  x.fill(0, b);
  const LaunchReport report = graph.launch(a);
  const std::string text = report.virtual_report.format();
  EXPECT_FALSE(report.clean());
  EXPECT_NE(text.find("the launch of 'scale' on stream"), std::string::npos) << text;
  EXPECT_NE(text.find("which the fill on stream"), std::string::npos) << text;
  device.synchronize();
  x.fill(0, b);
  a.wait(Event::recorded_on(b));
  graph.launch(a).expect_clean();
  EXPECT_THROW(y.release(), DeviceError);  // its use by the graph was not waited for
}

}  // namespace
}  // namespace imbrex
