// SPDX-License-Identifier: Apache-2.0
#include "imbrex/runtime/bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "imbrex/core/error.h"
#include "runtime/measure/cublas_lt.h"
#include "runtime/measure/gpu_timer.h"
#include "runtime/measure/torch_attention.h"

namespace imbrex {
namespace {

using runtime::GpuTimer;
using Clock = std::chrono::steady_clock;

Timing timing(const std::vector<double>& times) {
  const runtime::Quartiles q = runtime::quartiles(times);
  return {q.median, q.low, q.high, static_cast<int>(times.size())};
}

/// What the kernel is timed beside: launches on our stream, or a process that times its own.
struct Rival {
  GpuTimer::Launch launch;
  std::unique_ptr<runtime::TorchAttention> process;
};

/// What is measured in turn: the kernel, then its rival.
struct Contest {
  GpuTimer& timer;
  GpuTimer::Launch kernel;
  Rival& rival;
  const BenchOptions& options;

  /// Times of the kernel and of its rival.
  std::vector<std::vector<double>> measure_turns(int launches) {
    if (!rival.process)
      return timer.measure({kernel, rival.launch}, {.launches = launches, .cold = options.cold_l2});
    std::vector<std::vector<double>> times(2);
    const int turn = std::max(launches / 10, 1);
    for (int left = launches; left > 0; left -= turn) {
      const int now = std::min(turn, left);
      const std::vector<double> ours = timer.measure({kernel}, {.launches = now, .cold = options.cold_l2})[0],
                                theirs = rival.process->measure(now, options.cold_l2);
      times[0].insert(times[0].end(), ours.begin(), ours.end());
      times[1].insert(times[1].end(), theirs.begin(), theirs.end());
    }
    return times;
  }
  BenchMode measure(const std::string& name, int launches) {
    if (options.alone) {
      const GpuTimer::WithClock measured =
          timer.measure_with_clock(kernel, {.launches = launches, .cold = options.cold_l2});
      return {name, timing(measured.times), {}, measured.mhz};
    }
    timer.stamp_begin();
    const std::vector<std::vector<double>> times = measure_turns(launches);
    timer.stamp_end();
    BenchMode mode;
    mode.name = name;
    mode.kernel = timing(times[0]);
    mode.rival = timing(times[1]);
    mode.clock_mhz = timer.mean_clock_mhz();
    return mode;
  }
  BenchMode burst() {
    if (options.alone)
      timer.measure({kernel}, {.launches = 1, .cold = options.cold_l2});
    else
      measure_turns(1);
    std::this_thread::sleep_for(std::chrono::duration<double>(options.pause_s));
    return measure("burst", options.burst_launches);
  }
  BenchMode sustained() {
    const Clock::time_point begin = Clock::now();
    while (std::chrono::duration<double>(Clock::now() - begin).count() < options.warm_up_s)
      timer.measure({kernel}, {.launches = 16, .cold = options.cold_l2});
    return measure("sustained", options.sustained_launches);
  }
};

}  // namespace

BenchResult bench(const RegisteredKernel& kernel, const std::map<std::string, int64_t>& sizes,
                  const Configuration& configuration, const BenchOptions& options) {
  const Device device = options.device ? *options.device : Device::cuda();
  if (!device.can_run(kernel.target))
    throw DeviceError(Diagnostic{{},
                                 fmt::format("{} is for {}, {} runs {}", kernel.description.name,
                                             kernel.target, device.name(), device.target()),
                                 {},
                                 "run it on the virtual GPU: imbrex run --device virtual"});
  BenchResult result;
  result.kernel = kernel.description.name;
  result.device = device.name();
  result.config = kernel.space.to_string(configuration);
  result.sizes = sizes;
  result.multiprocessors = device.multiprocessors();

  const auto data = options.data ? options.data : std::make_shared<CaseData>();
  Case checked(Case::Mode::kRun, device, sizes, options.seed);
  checked.share(data);
  kernel.run(checked, device, configuration);
  result.max_rel_err = checked.max_rel_err();
  result.flop = checked.flop;
  result.bytes = checked.tensor_bytes();
  for (const Comparison& comparison : checked.comparisons)
    if (!comparison.passed && result.wrong.empty()) result.wrong = comparison.format();
  if (checked.comparisons.empty()) result.wrong = "the kernel states no reference";
  if (!result.wrong.empty()) return result;
  result.verified = true;

  GpuTimer timer(device);
  std::unique_ptr<runtime::CublasLtMatmul> library;
  DeviceTensor rival_out, copied[2];
  Rival rival;
  if (checked.attention && !options.alone)
    rival.process = runtime::TorchAttention::make(*checked.attention, &result.rival_missing);
  if (checked.matmul && !options.alone) {
    const StatedMatmul& matmul = *checked.matmul;
    rival_out = DeviceTensor::empty(device, matmul.c.dtype(), matmul.c.shape());
    rival_out.poison();
    library = runtime::CublasLtMatmul::make(matmul.a, matmul.b, rival_out, timer, &result.rival_missing);
  }
  if (rival.process) {
    result.rival = rival.process->name();
  } else if (library) {
    result.rival = library->name();
    result.is_rival_cublas_lt = true;
    rival.launch = [&] { library->launch(); };
    library->launch();
    // It must be the same product: both are within a rounding or two of the exact one.
    const Comparison same = compare(rival_out.to_host(), checked.matmul->c.to_host().to_doubles(),
                                    2 * default_tolerance(rival_out.dtype()));
    if (!same.passed)
      throw DeviceError(Diagnostic{{}, "cuBLASLt gives another product: " + same.format(), {}, ""});
  } else if (!options.alone) {
    // As many bytes as the kernel moves at least, half of them read and half written.
    const int64_t half = std::max<int64_t>(result.bytes / 2, 1);
    for (DeviceTensor& tensor : copied) tensor = DeviceTensor::empty(device, uint8, {half});
    device.backend().fill(copied[0].address(), 0x5A, half);
    result.rival = "device copy";
    rival.launch = [&, half] {
      device.backend().copy_on_device(copied[1].address(), copied[0].address(), half);
    };
  }

  Case timed(Case::Mode::kMeasure, device, sizes, options.seed);
  timed.share(data);
  timed.measure = [&](const Case::Launcher& launch) {
    Contest contest{timer, [&] { launch(false); }, rival, options};
    if (options.burst) result.modes.push_back(contest.burst());
    if (options.sustained) result.modes.push_back(contest.sustained());
  };
  kernel.run(timed, device, configuration);
  device.synchronize();
  return result;
}

}  // namespace imbrex
