// SPDX-License-Identifier: Apache-2.0
#include "vgpu/timeline/chip_rates.h"

namespace imbrex::vgpu {

namespace {
constexpr double kEndless = 1e30;  // bytes per clock
}

ChipRates chip_rates(int sm) {
  ChipRates rates;
  if (sm < 90) rates.tma_submit = rates.cluster_barrier_latency = 0;
  if (sm >= 100)  // nothing was measured there
    rates = {.warp_start = 0,
             .gpcs = 8,
             .merge_window = 0,
             .l2_fill_cost = 0,
             .memory_spread = 0,
             .store_bytes = 128,
             .store_cost = 1,
             .partial_store_cost = 1,
             .write_back_cost = 1,
             .dirty_share = 0,
             .tma_submit = 0,
             .cluster_barrier_latency = 190};
  return rates;
}

ChipRates without(ChipRates rates, Resource resource) {
  if (resource == Resource::kStart) rates.warp_start = 0;
  if (resource == Resource::kTma) rates.tma_submit = 0;
  if (resource == Resource::kL2Bandwidth) {
    rates.store_bytes = kEndless;
    rates.store_cost = rates.l2_fill_cost = 0;
  }
  if (resource == Resource::kMemoryLatency) rates.memory_spread = 0;
  if (resource == Resource::kMemoryBandwidth) rates.write_back_cost = 0;
  if (resource == Resource::kSynchronisation) rates.cluster_barrier_latency = 0;
  return rates;
}

}  // namespace imbrex::vgpu
