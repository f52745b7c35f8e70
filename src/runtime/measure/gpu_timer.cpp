// SPDX-License-Identifier: Apache-2.0
#include "runtime/measure/gpu_timer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <thread>

namespace imbrex::runtime {
namespace {

constexpr int kThreads = 512;
constexpr int64_t kMaxMultiprocessors = 1024;
constexpr double kQueueing = 20;  // microseconds in which the host surely has queued one launch
constexpr int kAhead = 64;        // rounds of single launches in the queue before their times are read

// One CTA that waits until so many nanoseconds have passed.
constexpr const char* kSpin = R"(.version 7.0
.target sm_80
.address_size 64
.visible .entry imbrex_spin(.param .u64 nanoseconds)
.maxntid 512
{
  .reg .pred %p<1>;
  .reg .b64 %rd<3>;
  ld.param.u64 %rd0, [nanoseconds];
  mov.u64 %rd1, %globaltimer;
LOOP:
  mov.u64 %rd2, %globaltimer;
  sub.u64 %rd2, %rd2, %rd1;
  setp.lt.u64 %p0, %rd2, %rd0;
  @%p0 bra LOOP;
  ret;
}
)";

// Reads `count` vectors of 16 bytes; stores only when their exclusive or is one particular number, so that
// the loads are not dead and (almost surely) no line becomes dirty.
constexpr const char* kFlush = R"(.version 7.0
.target sm_80
.address_size 64
.visible .entry imbrex_flush_l2(.param .u64 from, .param .u64 count, .param .u64 sink)
.maxntid 512
{
  .reg .pred %p<2>;
  .reg .b32 %r<12>;
  .reg .b64 %rd<8>;
  ld.param.u64 %rd0, [from];
  ld.param.u64 %rd1, [count];
  mov.u32 %r0, %ctaid.x;
  mov.u32 %r1, %ntid.x;
  mov.u32 %r2, %tid.x;
  mov.u32 %r3, %nctaid.x;
  mad.lo.u32 %r4, %r0, %r1, %r2;
  mul.lo.u32 %r5, %r3, %r1;
  cvt.u64.u32 %rd2, %r4;
  cvt.u64.u32 %rd3, %r5;
  mov.u32 %r6, 0;
LOOP:
  setp.ge.u64 %p0, %rd2, %rd1;
  @%p0 bra DONE;
  shl.b64 %rd4, %rd2, 4;
  add.u64 %rd4, %rd0, %rd4;
  ld.global.v4.u32 {%r7, %r8, %r9, %r10}, [%rd4];
  xor.b32 %r7, %r7, %r8;
  xor.b32 %r9, %r9, %r10;
  xor.b32 %r7, %r7, %r9;
  xor.b32 %r6, %r6, %r7;
  add.u64 %rd2, %rd2, %rd3;
  bra LOOP;
DONE:
  setp.ne.u32 %p1, %r6, 0x5eed1234;
  @%p1 ret;
  ld.param.u64 %rd5, [sink];
  st.global.u32 [%rd5], %r6;
  ret;
}
)";

// out[smid] = {clock, nanoseconds}, by the first thread of each CTA.
constexpr const char* kStamp = R"(.version 7.0
.target sm_80
.address_size 64
.visible .entry imbrex_stamp(.param .u64 out)
.maxntid 512
{
  .reg .pred %p<1>;
  .reg .b32 %r<3>;
  .reg .b64 %rd<5>;
  mov.u32 %r0, %tid.x;
  setp.ne.u32 %p0, %r0, 0;
  @%p0 ret;
  mov.u32 %r1, %smid;
  ld.param.u64 %rd0, [out];
  mul.wide.u32 %rd1, %r1, 16;
  add.u64 %rd1, %rd0, %rd1;
  mov.u64 %rd2, %clock64;
  mov.u64 %rd3, %globaltimer;
  st.global.v2.u64 [%rd1], {%rd2, %rd3};
  ret;
}
)";

/// A kernel of `parameters` 64-bit parameters.
codegen::CompiledKernel own_kernel(const char* name, const char* ptx, int parameters) {
  codegen::CompiledKernel kernel;
  kernel.name = name;
  kernel.target = "sm_80";
  kernel.ptx = ptx;
  kernel.threads = kThreads;
  for (int i = 0; i < parameters; ++i)
    kernel.params.push_back(
        {.kind = codegen::ParamPlan::Kind::kUser, .index = i, .offset = 8 * i, .bytes = 8});
  kernel.param_bytes = 8 * parameters;
  return kernel;
}

template <size_t N>
void launch_own(DeviceBackend& backend, LoadedKernel& kernel, int64_t ctas, const uint64_t (&arguments)[N]) {
  LaunchPlan plan;
  plan.grid[0] = ctas;
  plan.params = std::as_bytes(std::span(arguments));
  plan.stream = backend.stream();
  backend.launch(kernel, plan);
}

}  // namespace

GpuTimer::GpuTimer(Device device) : device_(std::move(device)) {
  DeviceBackend& backend = device_.backend();
  spin_kernel_ = backend.load(own_kernel("imbrex_spin", kSpin, 1));
  flush_kernel_ = backend.load(own_kernel("imbrex_flush_l2", kFlush, 3));
  stamp_kernel_ = backend.load(own_kernel("imbrex_stamp", kStamp, 1));
  vectors_ = std::max<int64_t>(2 * backend.l2_bytes(), 32 << 20) / 16;
  flushed_ = DeviceTensor::empty(device_, uint8, {16 * vectors_});
  backend.fill(flushed_.address(), 0x5A, flushed_.bytes());
  sink_ = DeviceTensor::empty(device_, uint8, {16});
  for (DeviceTensor& stamps : stamps_) stamps = DeviceTensor::empty(device_, int64, {kMaxMultiprocessors, 2});
}

void GpuTimer::hold(double microseconds) {
  launch_own(device_.backend(), *spin_kernel_, 1, {static_cast<uint64_t>(1e3 * microseconds)});
}

void GpuTimer::flush() {
  launch_own(device_.backend(), *flush_kernel_, 4 * int64_t{device_.multiprocessors()},
             {flushed_.address(), static_cast<uint64_t>(vectors_), sink_.address()});
}

void GpuTimer::stamp(int which) {
  DeviceBackend& backend = device_.backend();
  backend.fill(stamps_[which].address(), 0, stamps_[which].bytes());
  launch_own(backend, *stamp_kernel_, 4 * int64_t{device_.multiprocessors()}, {stamps_[which].address()});
}

void GpuTimer::note(const DeviceTensor& stamps, int64_t which) {
  launch_own(device_.backend(), *stamp_kernel_, 4 * int64_t{device_.multiprocessors()},
             {stamps.address() + static_cast<uint64_t>(which * kMaxMultiprocessors * 16)});
}

GpuTimer::WithClock GpuTimer::measure_with_clock(const Launch& contender, const Single& options) {
  DeviceBackend& backend = device_.backend();
  const int launches = std::min(options.launches, kMostNoted);
  stamp_begin();
  hold(2000);
  stamp_end();
  const double highest = mean_clock_mhz();
  DeviceTensor stamps = DeviceTensor::empty(device_, int64, {2 * launches, kMaxMultiprocessors, 2});
  backend.fill(stamps.address(), 0, stamps.bytes());
  hold(kQueueing * launches);
  for (int i = 0; i < launches; ++i) {
    if (options.cold) flush();
    note(stamps, 2 * i);
    backend.mark(static_cast<size_t>(2 * i));
    contender();
    backend.mark(static_cast<size_t>(2 * i + 1));
    note(stamps, 2 * i + 1);
  }
  WithClock result;
  double in_launches = 0;
  for (int i = 0; i < launches; ++i) {
    result.times.push_back(
        1e3 * backend.milliseconds_between(static_cast<size_t>(2 * i), static_cast<size_t>(2 * i + 1)));
    in_launches += result.times.back();
  }
  const HostTensor notes = stamps.to_host();
  std::vector<double> rates;
  double span = 0;  // microseconds between the notes, of the multiprocessor that took them furthest apart
  for (int64_t sm = 0; sm < kMaxMultiprocessors; ++sm) {
    double clocks = 0, nanoseconds = 0;
    for (int64_t i = 0; i < launches; ++i) {
      int64_t first[2], last[2];
      std::memcpy(first, notes.bytes().data() + 16 * (2 * i * kMaxMultiprocessors + sm), 16);
      std::memcpy(last, notes.bytes().data() + 16 * ((2 * i + 1) * kMaxMultiprocessors + sm), 16);
      if (first[1] == 0 || last[1] == 0) continue;
      clocks += static_cast<double>(last[0] - first[0]);
      nanoseconds += static_cast<double>(last[1] - first[1]);
    }
    if (nanoseconds > 0) rates.push_back(1e3 * clocks / nanoseconds);
    span = std::max(span, 1e-3 * nanoseconds);
  }
  result.mhz = std::min(highest, (quartiles(rates).median * span - highest * (span - in_launches)) /
                                     std::max(in_launches, 1e-3));
  return result;
}

double GpuTimer::mean_clock_mhz() {
  const HostTensor begin = stamps_[0].to_host(), end = stamps_[1].to_host();
  std::vector<double> clocks;
  for (int64_t sm = 0; sm < kMaxMultiprocessors; ++sm) {
    int64_t first[2], last[2];
    std::memcpy(first, begin.bytes().data() + 16 * sm, 16);
    std::memcpy(last, end.bytes().data() + 16 * sm, 16);
    if (first[1] == 0 || last[1] == 0 || last[1] - first[1] < 20000) continue;
    clocks.push_back(1e3 * static_cast<double>(last[0] - first[0]) / static_cast<double>(last[1] - first[1]));
  }
  return quartiles(clocks).median;
}

std::vector<std::vector<double>> GpuTimer::measure(const std::vector<Launch>& contenders,
                                                   const Single& options) {
  DeviceBackend& backend = device_.backend();
  std::vector<std::vector<double>> times(contenders.size());
  for (int done = 0; done < options.launches;) {
    const bool is_limited = done == 0 && options.limit_us > 0;
    const int rounds = is_limited ? 1 : std::min(kAhead, options.launches - done);
    // Reading the L2's contents away takes longer than queueing the next launch: only the first
    // is waited for.
    hold(options.cold ? kQueueing : kQueueing * rounds * static_cast<double>(contenders.size()));
    size_t mark = 0;
    for (int i = 0; i < rounds; ++i)
      for (const Launch& launch : contenders) {
        if (options.cold) flush();
        backend.mark(mark++);
        launch();
        backend.mark(mark++);
      }
    mark = 0;
    for (int i = 0; i < rounds; ++i)
      for (std::vector<double>& each : times) {
        each.push_back(1e3 * backend.milliseconds_between(mark, mark + 1));
        mark += 2;
      }
    if (is_limited && times[0][0] > options.limit_us) break;
    done += rounds;
  }
  return times;
}

std::vector<std::vector<double>> GpuTimer::measure_runs(const std::vector<NumberedLaunch>& contenders,
                                                        const Runs& options) {
  DeviceBackend& backend = device_.backend();
  int number = 0;
  const auto mean_time = [&](const NumberedLaunch& launch, int count) {
    hold(kQueueing * count);
    backend.mark(0);
    for (int i = 0; i < count; ++i) launch(number++);
    backend.mark(1);
    return 1e3 * backend.milliseconds_between(0, 1) / count;
  };
  std::vector<std::vector<double>> times(contenders.size());
  for (int turn = 0; turn < options.turns; ++turn)
    for (size_t i = 0; i < contenders.size(); ++i) {
      device_.synchronize();
      std::this_thread::sleep_for(std::chrono::duration<double>(options.idle_s));
      const double once = mean_time(contenders[i], 2);
      const double count = std::clamp(1e3 * options.milliseconds / once, 3.0, double(options.most));
      times[i].push_back(mean_time(contenders[i], static_cast<int>(count)));
    }
  return times;
}

Quartiles quartiles(std::vector<double> values) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  auto at = [&](double share) {
    const double place = share * static_cast<double>(values.size() - 1);
    const auto below = static_cast<size_t>(place);
    const size_t above = std::min(below + 1, values.size() - 1);
    return values[below] + (place - std::floor(place)) * (values[above] - values[below]);
  };
  return {at(0.25), at(0.5), at(0.75)};
}

}  // namespace imbrex::runtime
