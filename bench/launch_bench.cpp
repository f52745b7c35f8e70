// SPDX-License-Identifier: Apache-2.0
// Host time of a warm launch on the CUDA GPU: argument checks, host program, parameters, driver call; the GPU is not
// waited for. Beside each stands the driver's part of it ("/bare"): its cuLaunchKernelEx with the same parameters and
// attributes, in the same run. Prints why where there is no GPU; bench/fake_driver is for counting instructions there.
#include <benchmark/benchmark.h>

#include <array>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "imbrex/kernels/hopper_matmul/matmul_h7.h"
#include "imbrex/kernels/matmul.h"
#include "imbrex/kernels/vector_add.h"
#include "imbrex/runtime/kernel.h"
#include "runtime/driver/cuda_driver.h"

namespace imbrex {
namespace {

using runtime::CudaDriver;

constexpr size_t kSets = 4;  // of operands, taken in turn: addresses that change at every call

/// The last call of cuLaunchKernelEx, to be made again without us.
struct RecordedLaunch {
  runtime::CUlaunchConfig config = {};
  std::vector<runtime::CUlaunchAttribute> attributes;
  runtime::CUfunction function = nullptr;
  void** parameters = nullptr;
  static inline RecordedLaunch* recording = nullptr;
  static inline decltype(CudaDriver::cuLaunchKernelEx) driver_launch = nullptr;

  static runtime::CUresult record(const runtime::CUlaunchConfig* config, runtime::CUfunction function,
                                  void** parameters, void** extra) {
    RecordedLaunch& r = *recording;
    r.config = *config;
    r.attributes.assign(config->attributes, config->attributes + config->attribute_count);
    r.config.attributes = r.attributes.data();
    r.function = function;
    r.parameters = parameters;  // which the kernel keeps
    return driver_launch(config, function, parameters, extra);
  }
  /// What `launch` passes to the driver.
  explicit RecordedLaunch(const std::function<void()>& launch) {
    auto& driver = const_cast<CudaDriver&>(*CudaDriver::find(nullptr));
    driver_launch = driver.cuLaunchKernelEx;
    recording = this;
    driver.cuLaunchKernelEx = &record;
    launch();
    driver.cuLaunchKernelEx = driver_launch;
  }
  void again() const { driver_launch(&config, function, parameters, nullptr); }
};

/// Times `launch(i)`, for i = 0, 1, ..., or (`is_bare`) the driver's part of it.
void time_launches(benchmark::State& state, const Device& device, bool is_bare,
                   const std::function<void(size_t i)>& launch) {
  for (size_t i = 0; i < kSets; ++i) launch(i);  // compiled, and every check of a first call is through
  const auto run = [&](auto&& call) {
    constexpr size_t kQueued = 128;  // the driver blocks once its queue is full, which is not the host's time
    size_t i = 0;
    for (auto _ : state) {
      call(i);
      if (++i % kQueued == 0) {
        state.PauseTiming();
        device.synchronize();
        state.ResumeTiming();
      }
    }
    device.synchronize();
  };
  if (!is_bare) return run(launch);
  const RecordedLaunch recorded([&] { launch(0); });
  run([&](size_t) { recorded.again(); });
}

/// The CUDA GPU; nothing, with the reason told, where there is none that runs the target.
std::optional<Device> open(benchmark::State& state, const std::string& target) {
  std::string why_not;
  if (!Device::has_cuda(&why_not)) {
    state.SkipWithError(why_not.c_str());
    return std::nullopt;
  }
  const Device device = Device::cuda();
  if (!device.can_run(target)) {
    state.SkipWithError(("the GPU does not run " + target).c_str());
    return std::nullopt;
  }
  return device;
}

void vector_add(benchmark::State& state, bool is_bare) {
  const std::optional<Device> device = open(state, "sm_80");
  if (!device) return;
  const int64_t n = 1024;
  DeviceTensor x = DeviceTensor::random(*device, float32, {n}, 1),
               y = DeviceTensor::random(*device, float32, {n}, 2),
               z = DeviceTensor::empty(*device, float32, {n});
  Kernel<kernels::VectorAdd> kernel({}, *device);
  time_launches(state, *device, is_bare, [&](size_t) { kernel(n, x, y, z); });
}

constexpr int64_t kSize = 64;

/// Operands of products, at as many addresses.
struct Operands {
  std::array<DeviceTensor, kSets> a, b, c;
  explicit Operands(const Device& device) {
    for (size_t i = 0; i < kSets; ++i) {
      a[i] = DeviceTensor::random(device, bfloat16, {kSize, kSize}, 1);
      b[i] = DeviceTensor::random(device, bfloat16, {kSize, kSize}, 2);
      c[i] = DeviceTensor::empty(device, bfloat16, {kSize, kSize});
    }
  }
};

/// Three tensor maps: two to load by, one to store by.
void three_maps(benchmark::State& state, bool is_bare) {
  const std::optional<Device> device = open(state, "sm_90a");
  if (!device) return;
  const Operands t(*device);
  Kernel<kernels::HopperMatmulH7<>> kernel({}, *device);
  time_launches(state, *device, is_bare, [&](size_t i) {
    kernel(kSize, kSize, kSize, bfloat16, t.a[i % kSets], t.b[i % kSets], t.c[i % kSets]);
  });
}

/// The kernel library's entry: which kernel it is, is found by shape and types.
void product(benchmark::State& state, bool is_bare) {
  const std::optional<Device> device = open(state, "sm_90a");
  if (!device) return;
  const Operands t(*device);
  time_launches(state, *device, is_bare,
                [&](size_t i) { matmul(t.a[i % kSets], t.b[i % kSets], t.c[i % kSets]); });
}

BENCHMARK_CAPTURE(vector_add, launch, false)->Name("warm_launch/vector_add")->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(vector_add, bare, true)->Name("warm_launch/vector_add/bare")->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(three_maps, launch, false)->Name("warm_launch/three_maps")->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(three_maps, bare, true)->Name("warm_launch/three_maps/bare")->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(product, launch, false)->Name("warm_launch/matmul")->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(product, bare, true)->Name("warm_launch/matmul/bare")->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace imbrex
