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
/// on an H200; P: published; D: documented; A: assumed; a blank: it has no such thing.
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
     "AAAA"},
    {"l2_port_bytes", &CostModel::l2_port_bytes, "bytes per clock", "an SM's way to L2", "DDAD"},
    {"tma_latency", &CostModel::tma_latency, "clocks", "a bulk load, beyond a thread's load", " PPP"},
    {"tma_issue", &CostModel::tma_issue, "clocks", "of the TMA engine, an instruction at least", " AAA"},
    {"tma_bytes", &CostModel::tma_bytes, "bytes per clock", "an SM's TMA engine", " AAA"},
    {"store_latency", &CostModel::store_latency, "clocks", "until a bulk store is written", " AAA"},
    {"store_read", &CostModel::store_read, "clocks", "until a bulk store's source was read", " AAA"},
    {"mbarrier_wake", &CostModel::mbarrier_wake, "clocks", "from the last arrival to who waits", "AMMM"},
    {"mbarrier_issue", &CostModel::mbarrier_issue, "clocks", "an arrival, or a wait that succeeds", "AAAA"},
    {"barrier_latency", &CostModel::barrier_latency, "clocks", "bar.sync, from the last arrival on", "AAAA"},
    {"cluster_latency", &CostModel::cluster_latency, "clocks", "barrier.cluster, and arrivals at other CTAs",
     " PPP"},
    {"fence_latency", &CostModel::fence_latency, "clocks", "fences that wait for stores", "AAAA"},
    {"cancel_latency", &CostModel::cancel_latency, "clocks", "a request of cluster launch control", "  AA"},
    {"tensor_latency", &CostModel::tensor_latency, "clocks", "from a product's last clock to its result",
     " MAA"},
    {"mma_sync_flops", &CostModel::mma_sync_flops, "operations per clock",
     "mma.sync with 16-bit operands, an SM", "DMAD"},
    {"mma_sync_latency", &CostModel::mma_sync_latency, "clocks", "mma.sync, until its result", "PMMA"},
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
    case NumberSource::kAssumed:
      return "assumed";
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
  std::vector<GpuNumber> numbers = {
      {"sms", static_cast<double>(gpu.sms), "", "multiprocessors", NumberSource::kDocumented},
      {"clock_ghz", gpu.clock_ghz, "GHz", "of the SMs, which power may lower",
       own(NumberSource::kDocumented)},
      {"hbm_bytes_per_second", gpu.hbm_bytes_per_second / 1e9, "GB/s", "memory, as quoted",
       own(NumberSource::kDocumented)},
      {"l2_bytes", static_cast<double>(gpu.l2_bytes) / (1 << 20), "MiB", "L2", NumberSource::kDocumented},
      {"l2_bytes_per_second", gpu.l2_bytes_per_second / 1e9, "GB/s", "L2, all SMs together",
       own(gpu.is_measured ? NumberSource::kMeasured : NumberSource::kAssumed)},
      {"hbm_latency_cycles", gpu.hbm_latency_cycles, "clocks", "a load that misses L2", latencies},
      {"l2_latency_cycles", gpu.l2_latency_cycles, "clocks", "a load that hits in L2", latencies},
      {"shared_latency_cycles", gpu.shared_latency_cycles, "clocks", "a load from shared memory", latencies}};
  for (const GpuModel::Rate& rate : gpu.tensor_rates)
    numbers.push_back({"tensor_rate_" + std::string(rate.dtype.name()), rate.ops_per_clock,
                       "operations per clock", "tensor core, an SM", NumberSource::kDocumented});
  const int sm = TargetName::parse(gpu.target)->sm;
  const CostModel model = cost_model(sm, 0, &gpu);
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
