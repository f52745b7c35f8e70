// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "imbrex/core/error.h"
#include "imbrex/inspect/gpu_model.h"
#include "vgpu/program/launch.h"

namespace imbrex::vgpu {

const Target& target_limits(const std::string& name) {
  if (const Target* target = find_target(name)) return *target;
  throw LaunchError({{},
                     fmt::format("virtual gpu: there is no target {}", name),
                     {},
                     fmt::format("targets: {}", fmt::join(target_names(), ", "))});
}

int sm_count(const Target& target) { return gpu_model_for(target.name).sms; }

}  // namespace imbrex::vgpu
