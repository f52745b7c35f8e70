// SPDX-License-Identifier: Apache-2.0
// From C++ kernel to PTX text: trace, passes, code generation. One core.
#include <benchmark/benchmark.h>

#include "imbrex/kernels/blackwell_matmul/matmul_v0.h"
#include "imbrex/kernels/softmax.h"
#include "imbrex/runtime/compile.h"
#include "imbrex/runtime/kernel.h"

namespace imbrex {
namespace {

void trace_only(benchmark::State& state) {
  Kernel<kernels::BlackwellMatmulV0> kernel({.block_m = 128, .block_n = 256, .block_k = 64});
  for (auto _ : state) benchmark::DoNotOptimize(kernel.trace(1024, 1024, 1024, 0, 0, 0));
}
BENCHMARK(trace_only)->Name("trace/blackwell_matmul_v0")->Unit(benchmark::kMillisecond);

void matmul_v0(benchmark::State& state) {
  Kernel<kernels::BlackwellMatmulV0> kernel({.block_m = 128, .block_n = 256, .block_k = 64});
  for (auto _ : state) benchmark::DoNotOptimize(emit_ptx(*kernel.trace(1024, 1024, 1024, 0, 0, 0)));
}
BENCHMARK(matmul_v0)->Name("trace_to_ptx/blackwell_matmul_v0")->Unit(benchmark::kMillisecond);

void softmax(benchmark::State& state) {
  Kernel<kernels::Softmax> kernel;
  for (auto _ : state) benchmark::DoNotOptimize(emit_ptx(*kernel.trace(1024, 1000, 0, 0)));
}
BENCHMARK(softmax)->Name("trace_to_ptx/softmax")->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace imbrex
