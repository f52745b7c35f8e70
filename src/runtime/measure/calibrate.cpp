// SPDX-License-Identifier: Apache-2.0
#include "imbrex/runtime/calibrate.h"

#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <memory>
#include <optional>

#include "core/target.h"
#include "imbrex/core/error.h"
#include "imbrex/inspect/gpu_model_file.h"
#include "imbrex/runtime/device_tensor.h"
#include "imbrex/runtime/ptx_module.h"
#include "imbrex/vgpu/gpu_numbers.h"
#include "imbrex/vgpu/timeline.h"
#include "imbrex/vgpu/virtual_gpu.h"
#include "runtime/measure/gpu_timer.h"
#include "runtime/measure/unit_kernels.h"

namespace imbrex {
namespace {

using runtime::UnitKernel;

enum class Measure : uint8_t {
  kClocks,   // per step, of the loop
  kSeconds,  // per byte, of the launch
};
enum class Effect : uint8_t {
  kAdds,     // a clock more of the number is a clock more per step
  kDivides,  // twice the number halves what is measured
};

struct Unit {
  const char *number, *what;
  UnitKernel (*kernel)();
  Measure measure;
  Effect effect;
  int first, last;       // how often the body runs, in the shorter and the longer launch
  uint32_t mask = 0;     // parameter of the kernel; for a chain, the distance of its elements
  int chain = 0;         // elements; 0: no chain
  int times_on_gpu = 1;  // more of everything than the virtual GPU has the time for
};

constexpr uint32_t kInL2 = (8u << 20) - 1;  // or less, so that the shorter launch reads it four times
constexpr uint32_t kRegion = 1u << 30;      // of memory, on a GPU; the virtual one touches the beginning only

constexpr Unit kUnits[] = {
    {"shared_latency_cycles", "loads from shared memory, each depending on the one before",
     runtime::shared_chase, Measure::kClocks, Effect::kAdds, 4, 12},
    {"alu_latency", "multiply-adds, each depending on the one before", runtime::dependent_fma,
     Measure::kClocks, Effect::kAdds, 4, 12},
    {"mufu_issue", "independent exponentials of a warp", runtime::special_functions, Measure::kClocks,
     Effect::kAdds, 4, 12},
    {"barrier_latency", "barriers of four warps", runtime::cta_barriers, Measure::kClocks, Effect::kAdds, 4,
     12},
    {"l2_latency_cycles", "loads that hit in L2, each depending on the one before", runtime::global_chase,
     Measure::kClocks, Effect::kAdds, 256, 512, 128, 4096},
    {"hbm_latency_cycles", "loads from memory, each depending on the one before", runtime::global_chase,
     Measure::kClocks, Effect::kAdds, 8, 56, 4096, 1024},
    {"mma_sync_latency", "mma.sync m16n8k16, each adding to the one before", runtime::dependent_products,
     Measure::kClocks, Effect::kAdds, 4, 12},
    {"mma_sync_flops", "mma.sync m16n8k16 of 16 warps", runtime::independent_products, Measure::kClocks,
     Effect::kDivides, 4, 12},
    {"l2_bytes_per_second", "all SMs load from L2", runtime::streaming_loads, Measure::kSeconds,
     Effect::kDivides, 6, 16, kInL2, 0, 10},
    {"hbm_bytes_per_second", "all SMs load from memory", runtime::streaming_loads, Measure::kSeconds,
     Effect::kDivides, 2, 5, kRegion - 1, 0, 10},
    {"mbarrier_wake", "two warps that wait for each other by mbarriers", runtime::barrier_handover,
     Measure::kClocks, Effect::kAdds, 8, 40},
    {"tma_latency", "bulk loads of 1 KiB from L2, one after the other", runtime::bulk_loads, Measure::kClocks,
     Effect::kAdds, 8, 40},
};

double number_of(GpuModel model, const std::string& name) {
  if (const double* own = find_number(model, name)) return *own;
  for (const vgpu::GpuNumber& number : vgpu::gpu_numbers(model))
    if (name == number.name) return number.value;
  throw InternalError("calibrate: no number " + name);
}

Device device_of(const GpuModel& model) {
  vgpu::Options machine;
  machine.target = model.target;
  machine.num_sms = model.sms;
  machine.checks = vgpu::CheckSet::none();
  machine.tensor_math = vgpu::TensorMath::kNone;
  machine.timeline = {.record = true, .gpu = std::make_shared<const GpuModel>(model)};
  return Device::virtual_gpu(machine);
}

/// A device on which units are measured.
class Stand {
 public:
  explicit Stand(const Device& device)
      : device_(device),
        data_(DeviceTensor::empty(device, uint8, {kRegion})),
        out_(DeviceTensor::empty(device, int64, {2})) {
    if (!device.is_virtual()) timer_ = std::make_unique<runtime::GpuTimer>(device);
  }

  /// Clocks per step, or seconds per byte.
  double measure(const Unit& unit) {
    const UnitKernel kernel = unit.kernel();
    uint32_t mask = unit.mask;
    if (mask == kInL2) {
      const int64_t read = int64_t{unit.first} * kernel.steps * kernel.threads * ctas(kernel);
      mask = std::bit_floor(static_cast<uint32_t>(std::min<int64_t>(read / 4, int64_t{kInL2} + 1))) - 1;
    }
    if (unit.chain > 0) launch(runtime::chain_writer(), unit.chain, unit.mask);
    const int times = device_.is_virtual() ? 1 : unit.times_on_gpu;
    const Took shorter = took(kernel, unit.first * times, mask),
               longer = took(kernel, unit.last * times, mask);
    const double bodies = static_cast<double>(unit.last - unit.first) * times;
    if (unit.measure == Measure::kClocks) return (longer.clocks - shorter.clocks) / (bodies * kernel.steps);
    const double bytes = bodies * kernel.steps * kernel.threads * ctas(kernel);
    return (longer.seconds - shorter.seconds) / bytes;
  }

 private:
  struct Took {
    double clocks = 0, seconds = 0;
  };

  int ctas(const UnitKernel& kernel) const {
    return kernel.ctas_per_sm > 0 ? kernel.ctas_per_sm * device_.multiprocessors() : kernel.cluster;
  }

  LaunchReport launch(const UnitKernel& kernel, int n, uint32_t mask) {
    const std::string text = runtime::ptx_of(kernel);
    auto& module = modules_[text];
    if (!module) module.emplace(device_, text, "unit.ptx");
    uint64_t data = data_.address(), out = out_.address();
    void* arguments[] = {&data, &out, &n, &mask};
    vgpu::Launch how{.grid = {ctas(kernel)}, .block = {kernel.threads}, .arguments = arguments};
    if (kernel.cluster > 1) how.cluster = {kernel.cluster};
    LaunchReport report = module->launch("unit", how);
    report.expect_clean();
    return report;
  }

  Took took(const UnitKernel& kernel, int n, uint32_t mask) {
    if (device_.is_virtual()) {
      const auto timeline = launch(kernel, n, mask).virtual_report.timeline;
      if (timeline == nullptr || !timeline->complete)
        throw LaunchError(Diagnostic{{}, "the virtual GPU that is calibrated records no timeline", {}, ""});
      return {static_cast<double>(timeline->cycles), timeline->microseconds() * 1e-6};
    }
    constexpr int kTurns = 7;
    launch(kernel, n, mask);  // which assembles it
    std::vector<double> clocks, microseconds;
    for (int turn = 0; turn < kTurns; ++turn) {
      microseconds.push_back(timer_->measure({[&] { launch(kernel, n, mask); }}, {.launches = 1})[0][0]);
      clocks.push_back(out_.to_host().get(0));
    }
    return {runtime::quartiles(clocks).median, runtime::quartiles(microseconds).median * 1e-6};
  }

  Device device_;
  DeviceTensor data_, out_;
  std::unique_ptr<runtime::GpuTimer> timer_;
  std::map<std::string, std::optional<PtxModule>> modules_;
};

/// Where a prediction is this near to what was measured, the number is found.
constexpr double kNear = 0.002;
/// Where the best prediction is farther away than this, the number does not explain what was measured.
constexpr double kFar = 0.05;

/// Adapts one number of `model` until it predicts `measured`. Returns what it predicted at first.
double adapt(GpuModel& model, const Unit& unit, double measured, double& last_off) {
  double first = 0;
  for (int turn = 0; turn < 5; ++turn) {
    const double predicted = Stand(device_of(model)).measure(unit);
    if (turn == 0) first = predicted;
    last_off = std::abs(predicted / measured - 1);
    if (last_off < kNear) break;
    const double now = number_of(model, unit.number);
    const double next =
        unit.effect == Effect::kAdds ? now + measured - predicted : now * predicted / measured;
    set_number(model, unit.number, std::max(unit.effect == Effect::kAdds ? 0 : 1e-3, next));
  }
  return first;
}

}  // namespace

Calibration calibrate(const Device& device, const GpuModel& model,
                      const std::function<void(const std::string& what)>& progress) {
  if (!device.can_run("sm_80"))
    throw LaunchError(Diagnostic{
        {}, fmt::format("{} is older than every GPU that can be calibrated", device.name()), {}, ""});
  Calibration result{.model = model, .numbers = {}, .left_out = {}};
  result.model.sms = device.multiprocessors();
  result.model.is_measured = true;
  result.model.calibration = device.name();
  Stand stand(device);
  for (const Unit& unit : kUnits) {
    const UnitKernel kernel = unit.kernel();
    if (!device.can_run(kernel.target)) {
      result.left_out.push_back(fmt::format("{}: {} has no such instructions", unit.number, device.target()));
      continue;
    }
    if (progress) progress(unit.what);
    const double measured = stand.measure(unit);
    GpuModel changed = result.model;
    const double before = number_of(changed, unit.number);
    double off = 0;
    const double predicted = adapt(changed, unit, measured, off);
    const bool by_time = unit.measure == Measure::kSeconds;
    const auto shown = [&](double value) { return by_time ? 1e-9 / value : value; };
    if (measured <= 0 || off > kFar) {
      result.left_out.push_back(
          fmt::format("{}: {:.2f} {} were measured, which this number alone does not explain; {:g} is kept",
                      unit.number, shown(measured), by_time ? "GB/s" : "clocks per step", before));
      continue;
    }
    result.model = std::move(changed);
    result.numbers.push_back({unit.number, unit.what, by_time ? "GB/s" : "clocks per step", shown(predicted),
                              shown(measured), before, number_of(result.model, unit.number)});
  }
  return result;
}

}  // namespace imbrex
