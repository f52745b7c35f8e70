// SPDX-License-Identifier: Apache-2.0
// How fast the virtual GPU executes: lane instructions per second on one host thread, by kind of kernel,
// checkers off and on. Every kernel is one loop whose body is repeated eight times, on full warps.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <string>

#include "imbrex/vgpu/virtual_gpu.h"

namespace imbrex::vgpu {
namespace {

/// A kernel whose loop runs `n` times; `%rd1` is a global buffer address of the thread, `%r5` a shared one.
std::string kernel(const std::string& body) {
  std::string repeated;
  for (int i = 0; i < 8; ++i) repeated += body;
  return fmt::format(R"(.version 8.6
.target sm_90a
.address_size 64
.visible .entry loop(.param .u64 buffer, .param .u32 count)
{{
  .reg .pred %p<4>;
  .reg .b16 %h<8>;
  .reg .b32 %r<16>;
  .reg .f32 %f<16>;
  .reg .b64 %rd<8>;
  .shared .align 16 .b8 tile[4096];
  ld.param.u64 %rd1, [buffer];
  ld.param.u32 %r1, [count];
  mov.u32 %r2, %tid.x;
  mul.wide.u32 %rd2, %r2, 16;
  add.u64 %rd1, %rd1, %rd2;
  mov.u32 %r5, tile;
  and.b32 %r6, %r2, 255;
  mad.lo.u32 %r5, %r6, 16, %r5;
  mov.f32 %f1, 0f3F800000;
  mov.f32 %f2, 0f3F000000;
  mov.f32 %f3, 0f00000000;
  mov.u32 %r7, 1;
  mov.u32 %r8, 3;
  st.shared.v4.f32 [%r5], {{%f1, %f1, %f1, %f1}};
LOOP:
{}
  sub.u32 %r1, %r1, 1;
  setp.ne.u32 %p1, %r1, 0;
  @%p1 bra LOOP;
  add.f32 %f3, %f3, %f1;
  cvt.rn.f32.u32 %f4, %r7;
  add.f32 %f3, %f3, %f4;
  st.global.f32 [%rd1], %f3;
  ret;
}}
)",
                     repeated);
}

void run(benchmark::State& state, const std::string& body, bool checked) {
  Options options{.target = "sm_90a", .host_threads = 1};
  if (!checked) options.checks = CheckSet::none();
  VirtualGpu gpu(options);
  const Function function = gpu.load_module(kernel(body)).function("loop");
  DeviceAddress buffer = gpu.allocate(256 * 16);
  gpu.fill(buffer, 0, 256 * 16);
  uint32_t count = checked ? 2000 : 20000;
  void* arguments[] = {&buffer, &count};
  int64_t lanes = 0;
  for (auto _ : state) {
    const Report report = gpu.launch(function, {.grid = {1}, .block = {256}, .arguments = arguments});
    if (!report.clean()) {
      state.SkipWithError(report.format().c_str());
      return;
    }
    lanes += report.statistics.lane_instructions;
  }
  state.counters["lane_instructions"] =
      benchmark::Counter(static_cast<double>(lanes), benchmark::Counter::kIsRate);
}

/// CTAs of a kernel that does nothing but store its shared memory's first word: what it costs to start one.
void start_ctas(benchmark::State& state, int64_t shared_bytes, bool checked) {
  Options options{.target = "sm_90a", .host_threads = 1};
  if (!checked) options.checks = CheckSet::none();
  VirtualGpu gpu(options);
  const Function function = gpu.load_module(fmt::format(R"(.version 8.6
.target sm_90a
.address_size 64
.visible .entry start()
{{
  .reg .b32 %r<4>;
  .shared .align 16 .b8 tile[{}];
  mov.u32 %r1, tile;
  mov.u32 %r2, %tid.x;
  mad.lo.u32 %r3, %r2, 4, %r1;
  st.shared.u32 [%r3], %r2;
  ret;
}}
)",
                                                        shared_bytes))
                                .function("start");
  constexpr int64_t kCtas = 65536;
  for (auto _ : state) {
    const Report report = gpu.launch(function, {.grid = {kCtas}, .block = {128}});
    if (!report.clean()) {
      state.SkipWithError(report.format().c_str());
      return;
    }
  }
  state.counters["per_cta"] =
      benchmark::Counter(static_cast<double>(kCtas) * static_cast<double>(state.iterations()),
                         benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}
BENCHMARK_CAPTURE(start_ctas, of_1_KiB_checked, 1 << 10, true)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(start_ctas, of_16_KiB_checked, 16 << 10, true)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(start_ctas, of_16_KiB_unchecked, 16 << 10, false)->Unit(benchmark::kMillisecond);

const char* const kFma = "  fma.rn.f32 %f3, %f3, %f2, %f1;\n";
const char* const kInteger = "  mad.lo.s32 %r7, %r7, %r8, %r2;\n";
const char* const kCompare = "  setp.lt.s32 %p2, %r7, %r8;\n  selp.b32 %r9, %r7, %r8, %p2;\n";
const char* const kShared =
    "  ld.shared.v4.f32 {%f5, %f6, %f7, %f8}, [%r5];\n  st.shared.v4.f32 [%r5], {%f5, %f6, %f7, %f8};\n";
const char* const kGlobal = "  ld.global.f32 %f5, [%rd1];\n  st.global.f32 [%rd1], %f5;\n";
const char* const kShuffle = "  shfl.sync.bfly.b32 %r9, %r7, 1, 31, 0xffffffff;\n";

#define IMBREX_BENCH(name, body)                                                        \
  BENCHMARK_CAPTURE(run, name##_unchecked, body, false)->Unit(benchmark::kMillisecond); \
  BENCHMARK_CAPTURE(run, name##_checked, body, true)->Unit(benchmark::kMillisecond)
IMBREX_BENCH(fma, kFma);
IMBREX_BENCH(integer, kInteger);
IMBREX_BENCH(compare, kCompare);
IMBREX_BENCH(shared, kShared);
IMBREX_BENCH(global, kGlobal);
IMBREX_BENCH(shuffle, kShuffle);

}  // namespace
}  // namespace imbrex::vgpu
