// SPDX-License-Identifier: Apache-2.0
// Streams, contexts and memory that a program made by the CUDA driver, and CUDA graphs: on a CUDA GPU, except for
// matmul's stream.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "../skip.h"
#include "imbrex/core/error.h"
#include "imbrex/kernels/matmul.h"
#include "imbrex/runtime/compare.h"
#include "imbrex/runtime/stream.h"
#include "runtime/driver/cuda_driver.h"
#include "scale_kernel.h"

namespace imbrex::runtime {
namespace {

constexpr int64_t kLength = 300;

const CudaDriver* driver() { return CudaDriver::find(nullptr); }
void check(CUresult result, const char* what) { driver()->check(result, what); }

CUcontext current_context() {
  CUcontext context = nullptr;
  check(driver()->cuCtxGetCurrent(&context), "current context");
  return context;
}

/// A stream of the driver's, of the context that is current.
struct ForeignStream {
  CUstream handle = nullptr;
  ForeignStream() { check(driver()->cuStreamCreate(&handle, kStreamNonBlocking), "stream"); }
  ~ForeignStream() { driver()->cuStreamDestroy(handle); }
};

/// What `record` puts on the stream, as a graph.
struct Graph {
  CUgraph graph = nullptr;
  CUgraphExec executable = nullptr;
  template <class Record>
  Graph(CUstream stream, Record record) {
    check(driver()->cuStreamBeginCapture(stream, kCaptureModeThreadLocal), "begin of the capture");
    record();
    check(driver()->cuStreamEndCapture(stream, &graph), "end of the capture");
    check(driver()->cuGraphInstantiate(&executable, graph, 0), "graph");
  }
  ~Graph() {
    driver()->cuGraphExecDestroy(executable);
    driver()->cuGraphDestroy(graph);
  }
  void launch(CUstream stream) const { check(driver()->cuGraphLaunch(executable, stream), "graph launch"); }
};

void expect_scaled(const HostTensor& x, const HostTensor& y, double factor) {
  ASSERT_EQ(x.elements(), y.elements());
  for (int64_t i = 0; i < x.elements(); ++i) ASSERT_EQ(y.get(i), static_cast<float>(x.get(i) * factor)) << i;
}

template <class Call>
std::string refusal(Call call) {
  try {
    call();
  } catch (const LaunchError& error) {
    return error.what();
  }
  return "not refused";
}

/// Makes no context current for a scope, and restores the one that was.
struct WithoutContext {
  CUcontext before = current_context();
  WithoutContext() { check(driver()->cuCtxSetCurrent(nullptr), "no context"); }
  ~WithoutContext() { driver()->cuCtxSetCurrent(before); }
};

TEST(CudaContext, OneDevicePerContext) {
  if (!Device::has_cuda()) IMBREX_SKIP(gpu);
  const WithoutContext none;
  EXPECT_THROW(Device::current(), DeviceError);
  const Device device = Device::cuda();
  EXPECT_NE(current_context(), nullptr);  // where none was current, the device's stays
  EXPECT_EQ(Device::cuda().shared_backend(), device.shared_backend());
  EXPECT_EQ(Device::current().shared_backend(), device.shared_backend());
}

TEST(CudaContext, OfTheProgramIsAdoptedAndRestored) {
  if (!Device::has_cuda()) IMBREX_SKIP(gpu);
  const Device primary = Device::cuda();
  const WithoutContext none;
  CUdevice ordinal = 0;
  CUcontext own = nullptr;
  check(driver()->cuDeviceGet(&ordinal, 0), "device");
  check(driver()->cuCtxCreate(&own, 0, ordinal), "context");
  {
    const Device device = Device::current();
    EXPECT_NE(device.shared_backend(), primary.shared_backend());
    DeviceTensor x = DeviceTensor::random(device, float32, {kLength}, 1),
                 y = DeviceTensor::empty(device, float32, {kLength});
    DeviceTensor z = DeviceTensor::random(primary, float32, {kLength}, 2),
                 w = DeviceTensor::empty(primary, float32, {kLength});
    Kernel<Scale> here({}, device), there({}, primary);
    here(kLength, 2, x, y);
    there(kLength, 3, z, w);
    EXPECT_EQ(current_context(), own);
    expect_scaled(x.to_host(), y.to_host(), 2);
    expect_scaled(z.to_host(), w.to_host(), 3);
    EXPECT_EQ(current_context(), own);
    EXPECT_NE(refusal([&] { here(kLength, 2, x, w); }).find("copy the tensor"), std::string::npos);
    const ForeignStream foreign;  // of `own`
    EXPECT_NE(refusal([&] { Stream::adopt(primary, foreign.handle); }).find("Device::current()"),
              std::string::npos);
    here.on(Stream::adopt(device, foreign.handle))(kLength, 5, x, y);
    expect_scaled(x.to_host(), y.to_host(Stream::adopt(device, foreign.handle)), 5);
  }
  check(driver()->cuCtxDestroy(own), "destroying the context");
}

TEST(CudaStreams, MadeAdoptedAndDefaultOnesGiveTheSame) {
  if (!Device::has_cuda()) IMBREX_SKIP(gpu);
  const Device device = Device::cuda();
  device.synchronize();
  const ForeignStream foreign;
  Kernel<Scale> kernel({}, device);
  const auto constant = [](uintptr_t value) { return reinterpret_cast<void*>(value); };
  for (const Stream& stream : {Stream(), Stream::create(device), Stream::adopt(device, foreign.handle),
                               Stream::adopt(device, nullptr), Stream::adopt(device, constant(1)),
                               Stream::adopt(device, constant(2))}) {
    const HostTensor host = HostTensor::random(float32, {kLength}, 1);
    DeviceTensor x = DeviceTensor::empty(device, float32, {kLength}),
                 y = DeviceTensor::empty(device, float32, {kLength});
    x.copy_from(host, stream);
    y.poison(stream);
    kernel.on(stream)(kLength, 2, x, y);
    expect_scaled(host, y.to_host(stream), 2);
    EXPECT_GT(kernel.on(stream).launch_timed(kLength, 2, x, y).milliseconds, 0);
  }
}

TEST(CudaStreams, AnEventOrdersTwoStreams) {
  if (!Device::has_cuda()) IMBREX_SKIP(gpu);
  const Device device = Device::cuda();
  const Stream first = Stream::create(device), second = Stream::create(device);
  const int64_t n = 1 << 22;
  const HostTensor host = HostTensor::random(float32, {n}, 1);
  DeviceTensor x = DeviceTensor::from_host(device, host), y = DeviceTensor::empty(device, float32, {n}),
               z = DeviceTensor::empty(device, float32, {n});
  Kernel<Scale> kernel({}, device);
  kernel.prepare(n, 2, x, y);
  const Event begin = Event::recorded_on(first);
  for (int i = 0; i < 20; ++i) kernel.on(first)(n, 2, x, y);
  const Event written = Event::recorded_on(first);
  second.wait(written);
  kernel.on(second)(n, 2, y, z);
  expect_scaled(host, z.to_host(second), 4);
  EXPECT_GT(written.milliseconds_since(begin), 0);
}

TEST(CudaMemory, OfTheProgramIsViewed) {
  if (!Device::has_cuda()) IMBREX_SKIP(gpu);
  const Device device = Device::cuda();
  device.synchronize();
  CUdeviceptr memory = 0;
  check(driver()->cuMemAlloc(&memory, 4 * kLength), "memory");
  {
    DeviceTensor x = DeviceTensor::random(device, float32, {kLength}, 1);
    DeviceTensor y = DeviceTensor::view(device, memory, float32, {kLength}, {1});
    Kernel<Scale>({}, device)(kLength, 2, x, y);
    expect_scaled(x.to_host(), y.to_host(), 2);
  }
  check(driver()->cuMemFree(memory), "freeing what the view left alone");
}

TEST(CudaGraph, OfTenKernelsReplays) {
  if (!Device::has_cuda()) IMBREX_SKIP(gpu);
  const Device device = Device::cuda();
  device.synchronize();
  const ForeignStream foreign;
  const Stream stream = Stream::adopt(device, foreign.handle);
  std::vector<DeviceTensor> steps;
  for (int i = 0; i < 11; ++i) steps.push_back(DeviceTensor::empty(device, float32, {kLength}));
  Kernel<Scale> kernel({}, device);
  kernel.prepare(kLength, 2, steps[0], steps[1]);
  const auto launch_all = [&] {
    for (int i = 0; i < 10; ++i) kernel.on(stream)(kLength, 2, steps[i], steps[i + 1]);
  };
  const Graph graph(foreign.handle, [&] {
    EXPECT_TRUE(stream.is_capturing());
    const Stream again = Stream::adopt(device, foreign.handle);  // as frameworks do at each call
    kernel.on(again)(kLength, 2, steps[0], steps[1]);
    for (int i = 1; i < 10; ++i) kernel.on(stream)(kLength, 2, steps[i], steps[i + 1]);
    const std::string refused = refusal([&] { kernel.on(stream)(kLength, 7, steps[0], steps[1]); });
    EXPECT_NE(refused.find("prepare(...)"), std::string::npos) << refused;
    EXPECT_NE(refusal([&] { stream.synchronize(); }).find("captured"), std::string::npos);
    EXPECT_NE(refusal([&] { steps[0].to_host(stream); }).find("captured"), std::string::npos);
    EXPECT_NE(refusal([&] { kernel.on(stream).launch_timed(kLength, 2, steps[0], steps[1]); }).find("timed"),
              std::string::npos);
  });
  EXPECT_FALSE(stream.is_capturing());
  for (uint64_t seed : {1, 2}) {
    const HostTensor x = HostTensor::random(float32, {kLength}, seed);
    for (DeviceTensor& step : steps) step.poison(stream);
    steps[0].copy_from(x, stream);
    graph.launch(foreign.handle);
    expect_scaled(x, steps[10].to_host(stream), 1024);
  }
  // Host time of ten kernels: the least of many, each with an idle GPU.
  const auto host_us = [&](auto&& call) {
    double least = 1e9;
    for (int i = 0; i < 200; ++i) {
      stream.synchronize();
      const auto begin = std::chrono::steady_clock::now();
      call();
      const std::chrono::duration<double, std::micro> taken = std::chrono::steady_clock::now() - begin;
      least = std::min(least, taken.count());
    }
    return least;
  };
  const double graph_us = host_us([&] { graph.launch(foreign.handle); }), direct_us = host_us(launch_all);
  fmt::print("host time per kernel: {:.2f} us in a graph of ten, {:.2f} us launched\n", graph_us / 10,
             direct_us / 10);
  EXPECT_LT(graph_us, direct_us);
}

TEST(CudaGraph, OfMatmul) {
  if (!Device::has_cuda()) IMBREX_SKIP(gpu);
  const Device device = Device::cuda();
  if (!device.can_run("sm_90a")) IMBREX_SKIP(hopper);
  const int64_t m = 256, n = 192, k = 128;
  const ForeignStream foreign;
  const MatmulOptions options{.stream = Stream::adopt(device, foreign.handle)};
  DeviceTensor a = DeviceTensor::random(device, bfloat16, {m, k}, 1),
               b = DeviceTensor::random(device, bfloat16, {n, k}, 2),
               expected = DeviceTensor::empty(device, bfloat16, {m, n}),
               c = DeviceTensor::empty(device, bfloat16, {m, n});
  matmul(a, b, expected);
  c.poison();
  prepare_matmul(a, b, c, options);
  const Graph graph(foreign.handle, [&] { matmul(a, b, c, options); });
  device.synchronize();
  graph.launch(foreign.handle);
  const HostTensor once = c.to_host(options.stream), wanted = expected.to_host();
  EXPECT_TRUE(std::ranges::equal(once.bytes(), wanted.bytes()));
}

TEST(CudaTensorMaps, MoveWithTheirTensors) {
  if (!Device::has_cuda()) IMBREX_SKIP(gpu);
  const Device device = Device::cuda();
  if (!device.can_run("sm_90a")) IMBREX_SKIP(hopper);
  const int64_t n = 64;
  // Of sizes that alternate too, so that maps are encoded anew in between.
  for (int i = 0; i < 12; ++i) {
    const int64_t m = i == 7 ? 128 : 64;
    const HostTensor a = HostTensor::random(bfloat16, {m, n}, 2 * i),
                     b = HostTensor::random(bfloat16, {n, n}, 2 * i + 1);
    std::vector<DeviceTensor> gaps(1, DeviceTensor::empty(device, uint8, {1024 * (i % 5 + 1)}));
    DeviceTensor d_a = DeviceTensor::from_host(device, a), d_b = DeviceTensor::from_host(device, b),
                 d_c = DeviceTensor::empty(device, bfloat16, {m, n});
    d_c.poison();
    matmul(d_a, d_b, d_c).expect_clean();
    std::vector<double> expected(static_cast<size_t>(m * n));
    for (int64_t r = 0; r < m; ++r)
      for (int64_t c = 0; c < n; ++c)
        for (int64_t k = 0; k < n; ++k) expected[r * n + c] += a.get(r * n + k) * b.get(c * n + k);
    const Comparison same = compare(d_c.to_host(), expected, default_tolerance(bfloat16));
    EXPECT_TRUE(same.passed) << i << ": " << same.format();
  }
}

TEST(MatmulOnAStream, PreparedThenLaunched) {
  const Device device = Device::virtual_gpu({.target = "sm_90a"}),
               other = Device::virtual_gpu({.target = "sm_90a"});
  const int64_t m = 64, n = 64, k = 64;
  DeviceTensor a = DeviceTensor::random(device, bfloat16, {m, k}, 1),
               b = DeviceTensor::random(device, bfloat16, {n, k}, 2),
               expected = DeviceTensor::empty(device, bfloat16, {m, n}),
               c = DeviceTensor::empty(device, bfloat16, {m, n});
  c.fill(0);
  MatmulOptions options{.stream = Stream::create(device)};
  prepare_matmul(a, b, c, options);
  EXPECT_TRUE(std::ranges::all_of(c.to_host().bytes(), [](std::byte byte) { return byte == std::byte{0}; }));
  matmul(a, b, c, options).expect_clean();
  matmul(a, b, expected).expect_clean();
  EXPECT_TRUE(std::ranges::equal(c.to_host(options.stream).bytes(), expected.to_host().bytes()));
  matmul(a, b, c, options).expect_clean();
  const int line = __LINE__ + 1;
  const LaunchReport report = matmul(a, b, c);  // on another stream than the product before
  const std::string told = fmt::format("cuda_streams_test.cpp:{}: race: the launch of 'hopper", line);
  EXPECT_NE(report.virtual_report.format().find(told), std::string::npos) << report.virtual_report.format();
  options.stream = Stream::create(other);
  EXPECT_NE(refusal([&] { matmul(a, b, c, options); }).find("same device"), std::string::npos);
}

}  // namespace
}  // namespace imbrex::runtime
