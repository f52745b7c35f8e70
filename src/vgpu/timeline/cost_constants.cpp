// SPDX-License-Identifier: Apache-2.0
#include "vgpu/timeline/cost_constants.h"

#include <fmt/format.h>

#include "core/sha256.h"
#include "core/target.h"
#include "imbrex/core/error.h"
#include "imbrex/vgpu/gpu_numbers.h"
#include "vgpu/timeline/chip_rates.h"
#include "vgpu/timeline/link_rates.h"

namespace imbrex::vgpu {

namespace {

/// `sources`: of Ampere's and Ada's number, Hopper's, Blackwell's and that of Blackwell's chips for graphics. M: measured
/// on an H200; P: published; D: documented; S: scaled, or taken over from Hopper; F: fitted; A: assumed; a blank: it has no such thing.
struct Constant {
  const char* name;
  double CostModel::*value;
  const char *unit, *what, *sources;
};

constexpr Constant kConstants[] = {
    {"alu_latency", &CostModel::alu_latency, "clocks", "until a dependent instruction may issue", "PPPP"},
    {"mufu_issue", &CostModel::mufu_issue, "clocks", "of a sub-partition, for a warp's special function",
     "DDDD"},
    {"l1_latency", &CostModel::l1_latency, "clocks", "ld.local, ld.const", "PPAA"},
    {"cta_launch", &CostModel::cta_launch, "clocks", "from a free place to a CTA's first instruction",
     "AMAA"},
    {"l2_port_bytes", &CostModel::l2_port_bytes, "bytes per clock", "an SM's way to L2", "DMFA"},
    {"tma_latency", &CostModel::tma_latency, "clocks", "a bulk load, beyond a thread's load", " MSS"},
    {"tma_issue", &CostModel::tma_issue, "clocks", "of the TMA engine, an instruction at least", " MAA"},
    {"tma_bytes", &CostModel::tma_bytes, "bytes per clock", "an SM's TMA engine", " AAA"},
    {"store_latency", &CostModel::store_latency, "clocks", "until a bulk store is written", " MAA"},
    {"store_read", &CostModel::store_read, "clocks", "until a bulk store's source was read", " MAA"},
    {"mbarrier_wake", &CostModel::mbarrier_wake, "clocks", "from the last arrival to who waits", "AMAA"},
    {"mbarrier_issue", &CostModel::mbarrier_issue, "clocks", "an arrival, or a wait that succeeds", "AAAA"},
    {"barrier_latency", &CostModel::barrier_latency, "clocks", "bar.sync, from the last arrival on", "AMAA"},
    {"cluster_latency", &CostModel::cluster_latency, "clocks", "barrier.cluster, and arrivals at other CTAs",
     " MSS"},
    {"fence_latency", &CostModel::fence_latency, "clocks", "fences that wait for stores", "AAAA"},
    {"cancel_latency", &CostModel::cancel_latency, "clocks", "a request of cluster launch control", "  AA"},
    {"tensor_latency", &CostModel::tensor_latency, "clocks", "from a product's last clock to its result",
     " MAA"},
    {"mma_sync_flops", &CostModel::mma_sync_flops, "operations per clock",
     "mma.sync with 16-bit operands, an SM", "DMAD"},
    {"mma_sync_latency", &CostModel::mma_sync_latency, "clocks", "mma.sync, until its result", "PMSA"},
    {"tensor_memory_bytes", &CostModel::tensor_memory_bytes, "bytes per clock",
     "tcgen05.ld and st, a sub-partition", "  D "},
    {"tensor_memory_latency", &CostModel::tensor_memory_latency, "clocks", "tcgen05.ld and st", "  A "},
};

size_t generation_of(int sm) { return sm >= 120 ? 3 : sm >= 100 ? 2 : sm >= 90 ? 1 : 0; }

NumberSource source_of(char letter) {
  switch (letter) {
    case 'M':
      return NumberSource::kMeasured;
    case 'P':
      return NumberSource::kPublished;
    case 'D':
      return NumberSource::kDocumented;
    case 'S':
      return NumberSource::kScaled;
    case 'F':
      return NumberSource::kFitted;
    default:
      return NumberSource::kAssumed;
  }
}

}  // namespace

const char* name(NumberSource source) {
  switch (source) {
    case NumberSource::kCalibrated:
      return "calibrated";
    case NumberSource::kMeasured:
      return "measured";
    case NumberSource::kPublished:
      return "published";
    case NumberSource::kDocumented:
      return "documented";
    case NumberSource::kScaled:
      return "scaled";
    case NumberSource::kFitted:
      return "fitted";
    case NumberSource::kAssumed:
      return "assumed";
  }
  return "";
}

const char* meaning(NumberSource source) {
  switch (source) {
    case NumberSource::kCalibrated:
      return "by `imbrex calibrate`, on the GPU at hand";
    case NumberSource::kMeasured:
      return "on an H200";
    case NumberSource::kPublished:
      return "measurements by others, of this chip or its generation";
    case NumberSource::kDocumented:
      return "data sheet, white paper or PTX manual";
    case NumberSource::kScaled:
      return "measured on or published of Hopper's chips, and taken over, in proportion where there is one";
    case NumberSource::kFitted:
      return "to the rates that were published of the matmul ladder on a B200";
    case NumberSource::kAssumed:
      return "near its neighbours' numbers; nobody has measured it";
  }
  return "";
}

void apply_constants(CostModel& model, const GpuModel& gpu) {
  for (const auto& [name, value] : gpu.constants) {
    const Constant* found = nullptr;
    for (const Constant& constant : kConstants)
      if (name == constant.name) found = &constant;
    if (found == nullptr)
      throw LaunchError(
          Diagnostic{{},
                     fmt::format("the model of {} names a number that there is not: {}", gpu.title, name),
                     {},
                     "make it anew by `imbrex calibrate`"});
    model.*found->value = value;
  }
}

std::vector<GpuNumber> gpu_numbers(const GpuModel& gpu) {
  const bool is_calibrated = !gpu.calibration.empty();
  const auto own = [&](NumberSource otherwise) {
    return is_calibrated ? NumberSource::kCalibrated : otherwise;
  };
  const NumberSource latencies = own(gpu.is_measured ? NumberSource::kMeasured : NumberSource::kPublished);
  const int sm = TargetName::parse(gpu.target)->sm;
  const CostModel model = cost_model(sm, 0, &gpu);
  const double reached = model.hbm_bytes * model.clock_ghz * 1e9 / gpu.hbm_bytes_per_second;
  std::vector<GpuNumber> numbers = {
      {"sms", static_cast<double>(gpu.sms), "", "multiprocessors", NumberSource::kDocumented},
      {"clock_ghz", gpu.clock_ghz, "GHz", "of the SMs, which power may lower",
       own(NumberSource::kDocumented)},
      {"hbm_bytes_per_second", gpu.hbm_bytes_per_second / 1e9, "GB/s", "memory, as quoted",
       own(NumberSource::kDocumented)},
      {"hbm_reached", reached, "of what is quoted", "memory, reading",
       own(gpu.is_measured ? NumberSource::kMeasured : NumberSource::kScaled)},
      {"l2_bytes", static_cast<double>(gpu.l2_bytes) / (1 << 20), "MiB", "L2", NumberSource::kDocumented},
      {"l2_bytes_per_second", gpu.l2_bytes_per_second / 1e9, "GB/s", "L2, all SMs together",
       own(gpu.is_measured ? NumberSource::kMeasured : NumberSource::kAssumed)},
      {"hbm_latency_cycles", gpu.hbm_latency_cycles, "clocks", "a load that misses L2", latencies},
      {"l2_latency_cycles", gpu.l2_latency_cycles, "clocks", "a load that hits in L2", latencies},
      {"shared_latency_cycles", gpu.shared_latency_cycles, "clocks", "a load from shared memory", latencies}};
  for (const GpuModel::Rate& rate : gpu.tensor_rates)
    numbers.push_back({"tensor_rate_" + std::string(rate.dtype.name()), rate.ops_per_clock,
                       "operations per clock", "tensor core, an SM", NumberSource::kDocumented});
  for (const Constant& constant : kConstants) {
    const char letter = constant.sources[generation_of(sm)];
    if (letter == ' ') continue;
    numbers.push_back(
        {constant.name, model.*constant.value, constant.unit, constant.what,
         gpu.constants.contains(constant.name) ? NumberSource::kCalibrated : source_of(letter)});
  }
  const std::vector<GpuNumber> rates = chip_rate_numbers(sm);
  numbers.insert(numbers.end(), rates.begin(), rates.end());
  const std::vector<GpuNumber> links = link_numbers(gpu);
  numbers.insert(numbers.end(), links.begin(), links.end());
  return numbers;
}

std::string gpu_numbers_digest(const GpuModel& gpu) {
  std::string text;
  for (const GpuNumber& number : gpu_numbers(gpu)) text += fmt::format("{} {}\n", number.name, number.value);
  return sha256(text);
}

}  // namespace imbrex::vgpu
