// SPDX-License-Identifier: Apache-2.0
// What a launch would take if one resource cost nothing: the same recordings, replayed by a changed cost model.
#pragma once

#include <algorithm>
#include <optional>
#include <vector>

#include "vgpu/timeline/cost_model.h"
#include "vgpu/timeline/recording.h"
#include "vgpu/timeline/timeline_replay.h"

namespace imbrex::vgpu {

/// `model` with a resource that costs nothing.
CostModel without(CostModel model, Resource resource);

/// What a stretch of a warp's instructions asks for.
struct RunDemand {
  double alone, issue, shared, matrix;
  PipeClocks pipes;
};
/// Of a recorded step, with the resource `free` that costs nothing.
inline RunDemand demand_of(const RecordedStep& step, std::optional<Resource> free) {
  RunDemand d{step.alone, step.issue, step.shared, step.matrix, step.pipes};
  if (!free) return d;
  // A step's time alone contains that of its accesses and products.
  if (*free == Resource::kInstructions) {
    d.issue = 0;
    d.pipes = {};
    d.alone = std::max(d.shared, d.matrix);
  } else if (*free == Resource::kSharedMemory) {
    d.alone = std::max(d.issue, d.alone - d.shared);
    d.shared = 0;
  } else if (*free == Resource::kTensorCore) {
    d.alone = std::max(d.issue, d.alone - d.matrix);
    d.matrix = 0;
  }
  return d;
}

/// Replays once for each resource that is on the critical path of `timeline`, which was explained, and notes in
/// its explanation what the launch would take.
void explain_by_replays(const ReplayContext& context, const std::vector<Recording>& recordings,
                        Timeline& timeline);

}  // namespace imbrex::vgpu
