// SPDX-License-Identifier: Apache-2.0
// What the links between the GPUs of a server carry.
#pragma once

#include <vector>

#include "imbrex/inspect/gpu_model.h"
#include "imbrex/vgpu/gpu_numbers.h"

namespace imbrex::vgpu {

/// Of one GPU to all others together, through switches: which of them it is does not matter.
struct LinkRates {
  double bytes_per_second = 0;  // in each direction; 0: nothing is known of such links
  double latency_seconds = 0;   // of a store, from this GPU's L2 to the other's
};
LinkRates link_rates(const GpuModel& gpu);

/// The same by name, with where they come from; none where nothing is known.
std::vector<GpuNumber> link_numbers(const GpuModel& gpu);

}  // namespace imbrex::vgpu
