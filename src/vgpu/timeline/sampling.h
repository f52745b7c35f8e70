// SPDX-License-Identifier: Apache-2.0
// Predicting a launch from a part of it. Two things repeat themselves:
//
// Waves. A grid of many more clusters than fit at once runs in waves. Some waves from the beginning and what is left
// over at the end are run and replayed; the waves between them take as long as those replayed did, from the second
// on. L2, memory and the SMs are all there, so what clusters share they share as in the whole launch.
//
// Rounds. A persistent kernel has few clusters, and each loops over pieces of work. All of them run, since nothing
// else tells how much work there is, but only the first rounds are recorded and replayed, and most clusters end with
// their recordings: a few of them, evenly spread, tell how much the others between them have to store. A round shows by what the
// cluster stores: bursts of stores with a pause between them, or stores all the time. What is left to store tells
// how long the rest takes.
//
// Where neither repeats, or clusters heed what others write (tickets, flags, launch control), everything is replayed.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "vgpu/program/launch.h"
#include "vgpu/timeline/timeline_replay.h"

namespace imbrex::vgpu {

struct SamplePlan {
  std::vector<int64_t> chosen;  // clusters to run; empty: all
  int64_t recorded_works = 0;   // of each cluster; 0: all
  std::vector<int64_t> whole;   // clusters that run to their end nevertheless
  int64_t clusters = 0;         // of the launch
  int64_t slots = 1;            // clusters that fit at once
};

/// What to run and to record of a launch of which `slots` clusters fit at once. Everything unless
/// TimelineOptions::sample asks for less.
SamplePlan plan_sample(const LaunchContext& launch, int64_t slots, bool is_cooperative);

/// The time of the launch that `plan` took `recordings` of. Nothing where they were cut and show no rounds: then
/// everything must be recorded.
std::optional<Timeline> predict_sample(ReplayContext context, const std::vector<Recording>& recordings,
                                       const SamplePlan& plan);

}  // namespace imbrex::vgpu
