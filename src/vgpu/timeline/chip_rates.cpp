// SPDX-License-Identifier: Apache-2.0
#include "vgpu/timeline/chip_rates.h"

namespace imbrex::vgpu {

namespace {

constexpr double kEndless = 1e30;  // bytes per clock

struct Rate {
  const char* name;
  double ChipRates::*value;
  const char *unit, *what;
  bool was_measured;  // on an H200; else assumed
};

constexpr Rate kRates[] = {
    {"warp_start", &ChipRates::warp_start, "clocks", "an SM's, for each warp of a CTA that it starts", true},
    {"grid_start", &ChipRates::grid_start, "clocks", "the chip's, for each CTA that it starts", true},
    {"cold_start", &ChipRates::cold_start, "clocks",
     "what a launch waits for besides that finds nothing in caches", false},
    {"gpcs", &ChipRates::gpcs, "", "groups of SMs whose requests for the same bytes are served together",
     true},
    {"merge_window", &ChipRates::merge_window, "clocks", "how long such a request is under way", false},
    {"l2_fill_cost", &ChipRates::l2_fill_cost, "bytes", "what a byte from memory takes of L2 besides", true},
    {"memory_spread", &ChipRates::memory_spread, "clocks",
     "by how much each doubling of lines asked for together delays the last", true},
    {"store_bytes", &ChipRates::store_bytes, "bytes per clock", "an SM's way to L2, storing", true},
    {"map_store_latency", &ChipRates::map_store_latency, "clocks",
     "until a bulk store by a tensor map has been read, besides", true},
    {"store_cost", &ChipRates::store_cost, "bytes", "what a byte written takes of L2, in bytes read", true},
    {"partial_line_cost", &ChipRates::partial_line_cost, "sectors",
     "what a line that gets sectors in part takes besides those", true},
    {"partial_load_cost", &ChipRates::partial_load_cost, "sectors",
     "what a line that a bulk load reads so takes besides those", true},
    {"outside_cost", &ChipRates::outside_cost, "bytes",
     "what a byte of a box outside of its tensor takes of L2, in bytes read", true},
    {"write_back_cost", &ChipRates::write_back_cost, "bytes",
     "what a byte written takes of memory, in bytes read", true},
    {"dirty_share", &ChipRates::dirty_share, "of L2",
     "bytes written that are not in memory when a launch ends", true},
    {"update_issue", &ChipRates::update_issue, "clocks", "an SM's way to L2, for a pass of an atomic update",
     true},
    {"update_cost", &ChipRates::update_cost, "bytes", "what such a pass takes of L2, in bytes read", true},
    {"update_line", &ChipRates::update_line, "clocks",
     "a line's, for each of the passes that follow each other", true},
    {"bulk_update_issue", &ChipRates::bulk_update_issue, "bytes",
     "what a byte that a bulk copy updates takes of an SM's way to L2", true},
    {"bulk_update_cost", &ChipRates::bulk_update_cost, "bytes",
     "what a sector of those takes of L2, in bytes read", true},
    {"far_fence", &ChipRates::far_fence, "clocks",
     "a fence beyond the CTA, or a release, behind the last store", true},
    {"flag_latency", &ChipRates::flag_latency, "clocks", "from a flag in L2 to who polls it", true},
    {"map_latency", &ChipRates::map_latency, "clocks", "a bulk load by a tensor map, beside its latency",
     true},
    {"multicast_latency", &ChipRates::multicast_latency, "clocks",
     "a bulk load to CTAs of a cluster, beside its latency", true},
    {"mixing", &ChipRates::mixing, "of what is there",
     "what of the requests behind it at memory a bulk load waits for", true},
    {"tma_submit", &ChipRates::tma_submit, "clocks", "of the warp that issues a copy", true},
    {"cluster_barrier_latency", &ChipRates::cluster_barrier_latency, "clocks",
     "barrier.cluster, from the last arrival on", true},
    {"code_bytes", &ChipRates::code_bytes, "bytes", "machine code that an SM holds", true},
    {"code_line", &ChipRates::code_line, "clocks",
     "an SM's way to machine code, for 128 bytes that it does not hold", true},
};

}  // namespace

ChipRates chip_rates(int sm) {
  ChipRates rates;
  if (sm < 90)
    rates.map_latency = rates.map_store_latency = rates.multicast_latency = rates.tma_submit =
        rates.cluster_barrier_latency = rates.partial_load_cost = rates.outside_cost = 0;
  if (sm >= 100)  // nothing was measured there
    rates = {.warp_start = 0,
             .grid_start = 0,
             .gpcs = 8,
             .merge_window = 0,
             .l2_fill_cost = 0,
             .memory_spread = 0,
             .store_bytes = 128,
             .map_store_latency = 0,
             .store_cost = 1,
             .partial_line_cost = 0,
             .partial_load_cost = 0,
             .outside_cost = 1,
             .write_back_cost = 1,
             .dirty_share = 0,
             .update_issue = 1,
             .update_cost = 32,
             .update_line = 1,
             .bulk_update_issue = 1,
             .bulk_update_cost = 32,
             .far_fence = 0,
             .flag_latency = 0,
             .map_latency = 0,
             .multicast_latency = 0,
             .mixing = 0,
             .tma_submit = 0,
             .cluster_barrier_latency = 190,
             .code_bytes = 0,
             .code_line = 0};
  return rates;
}

std::vector<GpuNumber> chip_rate_numbers(int sm) {
  const ChipRates rates = chip_rates(sm);
  std::vector<GpuNumber> numbers;
  for (const Rate& rate : kRates)
    if (const double value = rates.*rate.value; value != 0)
      numbers.push_back({rate.name, value, rate.unit, rate.what,
                         rate.was_measured && sm < 100 ? NumberSource::kMeasured : NumberSource::kAssumed});
  return numbers;
}

ChipRates without(ChipRates rates, Resource resource) {
  if (resource == Resource::kStart) rates.warp_start = rates.grid_start = 0;
  if (resource == Resource::kTma)
    rates.tma_submit = rates.map_latency = rates.map_store_latency = rates.multicast_latency = 0;
  if (resource == Resource::kL2Bandwidth) {
    rates.store_bytes = kEndless;
    rates.store_cost = rates.l2_fill_cost = 0;
    rates.partial_load_cost = rates.outside_cost = 0;
  }
  if (resource == Resource::kMemoryLatency) rates.memory_spread = 0;
  if (resource == Resource::kInstructions) rates.code_line = 0;
  if (resource == Resource::kMemoryBandwidth) rates.write_back_cost = rates.mixing = 0;
  if (resource == Resource::kSynchronisation)
    rates.cluster_barrier_latency = rates.far_fence = rates.flag_latency = 0;
  return rates;
}

}  // namespace imbrex::vgpu
