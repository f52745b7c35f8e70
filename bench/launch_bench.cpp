// SPDX-License-Identifier: Apache-2.0
// Host time of a warm launch on the CUDA GPU: argument checks, host program, parameters, driver call; the GPU
// is not waited for. Prints why where there is none.
#include <benchmark/benchmark.h>

#include "imbrex/kernels/matmul.h"
#include "imbrex/kernels/vector_add.h"
#include "imbrex/runtime/kernel.h"

namespace imbrex {
namespace {

void warm_launch(benchmark::State& state) {
  std::string why_not;
  if (!Device::has_cuda(&why_not)) {
    state.SkipWithError(why_not.c_str());
    return;
  }
  Device device = Device::cuda();
  const int64_t n = 1024;
  DeviceTensor x = DeviceTensor::random(device, float32, {n}, 1),
               y = DeviceTensor::random(device, float32, {n}, 2);
  DeviceTensor z = DeviceTensor::empty(device, float32, {n});
  Kernel<kernels::VectorAdd> kernel({}, device);
  kernel(n, x, y, z);
  int64_t launches = 0;
  for (auto _ : state) {
    kernel(n, x, y, z);
    if (++launches % 512 == 0) {  // the driver blocks once its queue is full, which is not the host's time
      state.PauseTiming();
      device.synchronize();
      state.ResumeTiming();
    }
  }
  device.synchronize();
}
/// The kernel library's entry: which kernel it is, is found by shape and types.
void warm_matmul(benchmark::State& state) {
  std::string why_not;
  if (!Device::has_cuda(&why_not)) {
    state.SkipWithError(why_not.c_str());
    return;
  }
  Device device = Device::cuda();
  const int64_t n = 64;
  DeviceTensor a = DeviceTensor::random(device, bfloat16, {n, n}, 1),
               b = DeviceTensor::random(device, bfloat16, {n, n}, 2);
  DeviceTensor c = DeviceTensor::empty(device, bfloat16, {n, n});
  matmul(a, b, c);
  int64_t launches = 0;
  for (auto _ : state) {
    matmul(a, b, c);
    if (++launches % 128 == 0) {
      state.PauseTiming();
      device.synchronize();
      state.ResumeTiming();
    }
  }
  device.synchronize();
}
BENCHMARK(warm_matmul)->Name("warm_launch/matmul")->Unit(benchmark::kMicrosecond);

BENCHMARK(warm_launch)->Name("warm_launch/vector_add")->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace imbrex
