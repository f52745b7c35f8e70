// SPDX-License-Identifier: Apache-2.0
// The cost model's numbers by name: what a model file may replace, and where each comes from.
#pragma once

#include "vgpu/timeline/cost_model.h"

namespace imbrex::vgpu {

/// Replaces the numbers of `model` by those that were measured on the GPU. LaunchError for one that there is not.
void apply_constants(CostModel& model, const GpuModel& gpu);

}  // namespace imbrex::vgpu
