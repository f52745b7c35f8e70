// SPDX-License-Identifier: Apache-2.0
// Whole matmuls on the virtual GPU, all cores, with the checkers off and on.
#include <benchmark/benchmark.h>

#include "imbrex/kernels/blackwell_matmul/matmul_v0.h"
#include "imbrex/runtime/kernel.h"

namespace imbrex {
namespace {

void matmul_v0(benchmark::State& state, bool checked, vgpu::TensorMath math) {
  vgpu::Options options;
  options.target = "sm_100a";
  options.tensor_math = math;
  if (!checked) options.checks = vgpu::CheckSet::none();
  Device device = Device::virtual_gpu(options);
  const int64_t n = state.range(0);
  DeviceTensor a = DeviceTensor::random(device, float16, {n, n}, 1),
               b = DeviceTensor::random(device, float16, {n, n}, 2);
  DeviceTensor c = DeviceTensor::empty(device, float16, {n, n});
  Kernel<kernels::BlackwellMatmulV0> kernel({.block_m = 128, .block_n = 256, .block_k = 64}, device);
  int64_t lanes = 0;
  for (auto _ : state) {
    LaunchReport report = kernel(n, n, n, a, b, c);
    report.expect_clean();
    lanes += report.virtual_report.statistics.lane_instructions;
  }
  state.counters["lane_instr/s"] =
      benchmark::Counter(static_cast<double>(lanes), benchmark::Counter::kIsRate);
  state.counters["GFLOP/s"] = benchmark::Counter(2e-9 * static_cast<double>(n * n * n * state.iterations()),
                                                 benchmark::Counter::kIsRate);
}
BENCHMARK_CAPTURE(matmul_v0, fast_unchecked, false, vgpu::TensorMath::kFast)
    ->Arg(1024)
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();
BENCHMARK_CAPTURE(matmul_v0, exact_unchecked, false, vgpu::TensorMath::kExact)
    ->Arg(1024)
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();
BENCHMARK_CAPTURE(matmul_v0, fast_checked, true, vgpu::TensorMath::kFast)
    ->Arg(1024)
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();
BENCHMARK_CAPTURE(matmul_v0, exact_checked, true, vgpu::TensorMath::kExact)
    ->Arg(1024)
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();

}  // namespace
}  // namespace imbrex
