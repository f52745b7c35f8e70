// SPDX-License-Identifier: Apache-2.0
// Streams and events on the virtual GPU, and what is refused.
#include "imbrex/runtime/stream.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "imbrex/core/error.h"
#include "imbrex/runtime/workspace.h"
#include "runtime/device/backend.h"
#include "scale_kernel.h"

namespace imbrex {
namespace {

Device virtual_gpu() { return Device::virtual_gpu({.target = "sm_80", .checks = vgpu::CheckSet::all()}); }

/// The message of the LaunchError that `call` throws.
template <class Call>
std::string refusal(Call call) {
  try {
    call();
  } catch (const LaunchError& error) {
    return error.what();
  }
  return "not refused";
}

void expect_contains(const std::string& text, std::initializer_list<const char*> parts) {
  for (const char* part : parts) EXPECT_NE(text.find(part), std::string::npos) << part << "\nin: " << text;
}

void expect_scaled(const HostTensor& x, const HostTensor& y, double factor) {
  for (int64_t i = 0; i < x.elements(); ++i) ASSERT_EQ(y.get(i), static_cast<float>(x.get(i) * factor)) << i;
}

TEST(Stream, TakesCopiesAndLaunchesInOrder) {
  const Device device = virtual_gpu();
  const Stream stream = Stream::create(device);
  const int64_t n = 300;
  const HostTensor x = HostTensor::random(float32, {n}, 1);
  DeviceTensor in = DeviceTensor::empty(device, float32, {n}),
               middle = DeviceTensor::empty(device, float32, {n}),
               out = DeviceTensor::empty(device, float32, {n});
  Kernel<Scale> kernel({}, device);
  in.copy_from_async(x, stream);
  middle.poison(stream);
  kernel.on(stream)(n, 2, in, middle).expect_clean();
  kernel.on(stream)(n, 3, middle, out).expect_clean();
  HostTensor y(float32, {n});
  out.copy_to_async(y, stream);
  stream.synchronize();
  expect_scaled(x, y, 6);
  in.copy_from(out, stream);
  expect_scaled(x, in.to_host(stream), 6);
  in.fill(0, stream);
  expect_scaled(x, in.to_host(stream), 0);
  EXPECT_FALSE(stream.is_capturing());
  EXPECT_GT(kernel.on(stream).launch_timed(n, 3, middle, out).milliseconds, 0);
}

TEST(Stream, DefaultStreamsOfTheDeviceAndOfCuda) {
  const Device device = virtual_gpu();
  const int64_t n = 300;
  DeviceTensor x = DeviceTensor::random(device, float32, {n}, 1),
               y = DeviceTensor::empty(device, float32, {n});
  Kernel<Scale> kernel({}, device);
  EXPECT_TRUE(Stream().is_default());
  for (const Stream& stream : {Stream(), Stream::adopt(device, nullptr),
                               Stream::adopt(device, reinterpret_cast<void*>(uintptr_t{2}))}) {
    y.poison(stream);
    kernel.on(stream)(n, 2, x, y).expect_clean();
    expect_scaled(x.to_host(), y.to_host(stream), 2);
  }
  expect_contains(refusal([&] {
                    int local = 0;
                    Stream::adopt(device, &local);
                  }),
                  {"Stream::adopt: 0x", "virtual GPU (sm_80)", "Stream::create"});
  expect_contains(refusal([] { Stream().synchronize(); }), {"Stream()", "Stream::create"});
}

TEST(Stream, OfAnotherDeviceIsRefused) {
  const Device device = virtual_gpu(), other = Device::virtual_gpu({.target = "sm_90a"});
  const Stream stream = Stream::create(other);
  const int64_t n = 300;
  DeviceTensor x = DeviceTensor::random(device, float32, {n}, 1),
               y = DeviceTensor::empty(device, float32, {n});
  Kernel<Scale> kernel({}, device);
  const auto both = {"virtual GPU (sm_90a)", "virtual GPU (sm_80)", "same device"};
  expect_contains(refusal([&] { kernel.on(stream)(n, 2, x, y); }), both);
  expect_contains(refusal([&] { x.to_host(stream); }), both);
  expect_contains(refusal([&] { x.copy_from(x.to_host(), stream); }), both);
  expect_contains(refusal([&] { x.fill(0, stream); }), both);
  expect_contains(refusal([&] { Event::create(device).record(stream); }), both);
  const Event event = Event::recorded_on(stream);
  expect_contains(refusal([&] { Stream::create(device).wait(event); }), both);
  expect_contains(refusal([&] { x.copy_from(DeviceTensor::empty(other, float32, {n})); }),
                  {"virtual GPU (sm_90a)", "virtual GPU (sm_80)", "by way of the host"});
}

TEST(Stream, EventsMeasureAndOrder) {
  const Device device = virtual_gpu();
  const Stream first = Stream::create(device), second = Stream::create(device);
  const Event begin = Event::recorded_on(first);
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  Event end = Event::create(device);
  expect_contains(refusal([&] { end.synchronize(); }), {"not been recorded", "record()"});
  expect_contains(refusal([&] { end.milliseconds_since(begin); }), {"not been recorded"});
  expect_contains(refusal([&] { second.wait(end); }), {"not been recorded"});
  end.record(first);
  second.wait(end);
  end.synchronize();
  EXPECT_GE(end.milliseconds_since(begin), 2);
}

TEST(Prepare, CompilesAndLaunchesNothing) {
  const Device device = virtual_gpu();
  const int64_t n = 300;
  DeviceTensor x = DeviceTensor::random(device, float32, {n}, 1),
               y = DeviceTensor::empty(device, float32, {n});
  y.fill(0);
  Kernel<Scale> kernel({}, device);
  kernel.prepare(n, 2, x, y);
  expect_scaled(x.to_host(), y.to_host(), 0);
  kernel(n, 2, x, y).expect_clean();
  expect_scaled(x.to_host(), y.to_host(), 2);
}

/// A device whose streams are always being captured: it may launch, and neither load nor wait.
class CapturingDevice : public runtime::DeviceBackend {
 public:
  bool is_capturing_now = false;
  int loads = 0, launches = 0, illegal = 0, allocated_in_graph = 0, freed_in_graph = 0;

  bool is_virtual() const override { return false; }
  std::string name() const override { return "capturing"; }
  std::string target() const override { return "sm_80"; }
  int multiprocessors() const override { return 1; }
  void synchronize() override { illegal += is_capturing_now; }
  uint64_t allocate(int64_t bytes) override {
    illegal += is_capturing_now;
    next_ += static_cast<uint64_t>(bytes + 255) / 256 * 256;
    return next_;
  }
  void free(uint64_t, SourceLocation) noexcept override {}
  void check_memory(uint64_t, int64_t) const override {}
  void start_copy_to_device(uint64_t, const void*, int64_t, runtime::OnStream) override {}
  void start_copy_from_device(void*, uint64_t, int64_t, runtime::OnStream) override {}
  void start_copy_on_device(uint64_t, uint64_t, int64_t, runtime::OnStream) override {}
  void start_fill(uint64_t, uint8_t, int64_t, runtime::OnStream) override {}
  void check_adopted(runtime::CUstream_st*) const override {}
  void synchronize(runtime::CUstream_st*) override { illegal += is_capturing_now; }
  bool is_capturing(runtime::CUstream_st*) const override { return is_capturing_now; }
  std::unique_ptr<runtime::DeviceEvent> create_event() override { return nullptr; }
  uint64_t number_of_stream(runtime::CUstream_st* stream) override {
    return reinterpret_cast<uintptr_t>(stream);
  }
  uint64_t allocate_in_capture(int64_t bytes, runtime::CUstream_st*) override {
    ++allocated_in_graph;
    next_ += static_cast<uint64_t>(bytes + 255) / 256 * 256;
    return next_;
  }
  void free_in_capture(uint64_t, runtime::CUstream_st*) noexcept override { ++freed_in_graph; }
  std::shared_ptr<runtime::LoadedKernel> load(const codegen::CompiledKernel&) override {
    ++loads;
    illegal += is_capturing_now;
    return std::make_shared<runtime::LoadedKernel>();
  }
  LaunchReport launch(runtime::LoadedKernel&, const runtime::LaunchPlan& plan) override {
    ++launches;
    last_stream = plan.stream;
    illegal += is_capturing_now && plan.timed;
    return {};
  }
  std::shared_ptr<runtime::LoadedModule> load_ptx(const std::string&, const std::string&) override {
    ++loads;
    illegal += is_capturing_now;
    return std::make_shared<runtime::LoadedModule>();
  }
  LaunchReport launch_ptx(runtime::LoadedModule&, const std::string&, const vgpu::Launch&,
                          runtime::CUstream_st*) override {
    return {};
  }
  void encode_tensor_map(const codegen::TensorMapPlan&, std::span<const int64_t>, void*) override {}

  runtime::CUstream_st* last_stream = nullptr;

 private:
  uint64_t next_ = 4096;
};

TEST(Capture, CompilesNothingAndWaitsForNothing) {
  const auto backend = std::make_shared<CapturingDevice>();
  const Device device(backend);
  const Stream stream = Stream::adopt(device, reinterpret_cast<void*>(uintptr_t{64}));
  const int64_t n = 300;
  DeviceTensor x = DeviceTensor::random(device, float32, {n}, 1),
               y = DeviceTensor::empty(device, float32, {n});
  const HostTensor host(float32, {n});
  Kernel<Scale> kernel({}, device);
  kernel.prepare(n, 2, x, y);
  EXPECT_EQ(backend->launches, 0);

  backend->is_capturing_now = true;
  kernel.on(stream)(n, 2, x, y);
  EXPECT_EQ(backend->launches, 1);
  EXPECT_EQ(backend->last_stream, stream.handle());
  expect_contains(refusal([&] { kernel.on(stream)(n, 3, x, y); }), {"Scale", "captured", "prepare(...)"});
  expect_contains(refusal([&] { kernel.on(stream).launch_timed(n, 2, x, y); }), {"timed", "captured"});
  expect_contains(refusal([&] { stream.synchronize(); }), {"Stream::synchronize", "captured"});
  expect_contains(refusal([&] { y.to_host(stream); }), {"to_host", "captured"});
  expect_contains(refusal([&] { y.copy_from(host, stream); }), {"copy_from", "captured"});
  kernel.on(stream)(n, 2, y, x);  // other addresses
  y.copy_from_async(host, stream);
  EXPECT_EQ(backend->launches, 2);
  EXPECT_EQ(backend->loads, 1);
  EXPECT_EQ(backend->illegal, 0);

  backend->is_capturing_now = false;
  kernel.on(stream)(n, 3, x, y);
  EXPECT_EQ(backend->loads, 2);
}

TEST(Capture, WorkspacesAreTheGraphs) {
  const auto backend = std::make_shared<CapturingDevice>();
  const Device device(backend);
  const Stream stream = Stream::adopt(device, reinterpret_cast<void*>(uintptr_t{64}));
  const Workspace eager = Workspace::on(stream, device, 100);
  EXPECT_EQ(backend->allocated_in_graph, 0);
  backend->is_capturing_now = true;
  {
    const Workspace one = Workspace::on(stream, device, 100, Workspace::Contents::kZero);
    EXPECT_NE(one.address(), eager.address());
    EXPECT_EQ(backend->allocated_in_graph, 1);
    EXPECT_EQ(backend->freed_in_graph, 0);
  }
  EXPECT_EQ(backend->freed_in_graph, 1);
  EXPECT_EQ(backend->illegal, 0);
}

TEST(Capture, FirstCallsDoNotTune) {
  const auto backend = std::make_shared<CapturingDevice>();
  const Device device(backend);
  const Stream stream = Stream::adopt(device, reinterpret_cast<void*>(uintptr_t{64}));
  DeviceTensor x = DeviceTensor::random(device, float32, {300}, 1),
               y = DeviceTensor::empty(device, float32, {300});
  Kernel<Scale> kernel = Kernel<Scale>::autotuned(device);
  backend->is_capturing_now = true;
  expect_contains(refusal([&] { kernel.on(stream)(300, 2, x, y); }),
                  {"Scale", "tunes", "captured", "prepare(...)"});
  EXPECT_EQ(backend->loads, 0);
  EXPECT_EQ(backend->illegal, 0);
}

}  // namespace
}  // namespace imbrex
