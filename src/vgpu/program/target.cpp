// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "imbrex/core/error.h"
#include "imbrex/inspect/gpu_model.h"
#include "vgpu/program/launch.h"

namespace imbrex::vgpu {

const Target& target_limits(const std::string& name) {
  // The family variant of sm_100 differs from the specific one in what else it runs on.
  if (const Target* target = find_target(name == "sm_100f" ? "sm_100a" : name)) return *target;
  throw LaunchError({{},
                     fmt::format("virtual gpu: there is no target {}", name),
                     {},
                     "targets: sm_80, sm_90, sm_90a, sm_100, sm_100a, sm_100f"});
}

int sm_count(const Target& target) {
  return gpu_model(target.sm >= 100 ? "b200" : target.sm >= 90 ? "h200" : "a100").sms;
}

}  // namespace imbrex::vgpu
