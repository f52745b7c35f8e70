// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "imbrex/core/error.h"
#include "vgpu/program/launch.h"

namespace imbrex::vgpu {

TargetFacts target_facts(const std::string& target) {
  TargetFacts facts;
  if (target == "sm_80") {
    facts = {80, 108, 0, 166912, 167936, 1};
  } else if (target == "sm_90" || target == "sm_90a") {
    facts = {90, 132, 0x400, 232448, 233472, 16};
  } else if (target == "sm_100" || target == "sm_100a" || target == "sm_100f") {
    facts = {100, 148, 0x400, 232448, 233472, 16};
  } else {
    throw LaunchError({{},
                       fmt::format("virtual gpu: there is no target {}", target),
                       {},
                       "targets: sm_80, sm_90, sm_90a, sm_100, sm_100a, sm_100f"});
  }
  return facts;
}

}  // namespace imbrex::vgpu
