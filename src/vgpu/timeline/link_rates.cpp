// SPDX-License-Identifier: Apache-2.0
#include "vgpu/timeline/link_rates.h"

#include "core/target.h"

namespace imbrex::vgpu {

namespace {

/// NVLink's rate in each direction as data sheets quote it, by the target's number.
double quoted_rate(int sm) {
  switch (sm) {
    case 80:
      return 300e9;
    case 90:
      return 450e9;
    case 100:
    case 103:
      return 900e9;
    default:
      return 0;  // chips that have other links, or none
  }
}

/// M: a copy between two H200, of the 450 GB/s that are quoted; an all-gather of four reaches the same.
constexpr double kReached = 386.0 / 450;
/// A: between two H200 all-reduces of 4 to 256 KiB, which are latencies, come out 19 % too long to 4 % too short.
constexpr double kLatency = 500e-9;

int sm_of(const GpuModel& gpu) {
  const auto target = TargetName::parse(gpu.target);
  return target ? target->sm : 0;
}

}  // namespace

LinkRates link_rates(const GpuModel& gpu) {
  const double quoted = quoted_rate(sm_of(gpu));
  return {kReached * quoted, quoted > 0 ? kLatency : 0};
}

std::vector<GpuNumber> link_numbers(const GpuModel& gpu) {
  const LinkRates rates = link_rates(gpu);
  if (rates.bytes_per_second == 0) return {};
  return {{"link_bytes_per_second", rates.bytes_per_second / 1e9, "GB/s",
           "NVLink to other GPUs, each direction; of other chips the H200's part of the quoted rate",
           gpu.name == "h200" ? NumberSource::kMeasured : NumberSource::kScaled},
          {"link_latency_ns", rates.latency_seconds * 1e9, "ns", "a store to another GPU's L2",
           NumberSource::kAssumed}};
}

}  // namespace imbrex::vgpu
