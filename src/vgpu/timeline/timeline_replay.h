// SPDX-License-Identifier: Apache-2.0
// Simulates the time of a recorded launch: a discrete-event simulation of warps, units and memory at the
// rates of the cost model. It knows the recordings only, so the order in which the launch was carried out is
// of no account.
#pragma once

#include <optional>
#include <vector>

#include "imbrex/vgpu/timeline.h"
#include "vgpu/program/program.h"
#include "vgpu/timeline/chip_rates.h"
#include "vgpu/timeline/cost_model.h"
#include "vgpu/timeline/recording.h"

namespace imbrex::vgpu {

/// What an extrapolation goes by (sampling.h), by cluster in the order of launch.
struct ReplayLog {
  /// Bytes stored so far.
  struct Store {
    double time;
    int64_t bytes;
  };
  std::vector<std::vector<Store>> stores;
  std::vector<double> ends;  // of clusters, in the order in which they ended
};

struct ReplayContext {
  const Program& program;
  CostModel model;
  ChipRates rates;
  int sms = 1;
  int64_t ctas_per_sm = 1;
  int64_t tensor_columns = 512;  // of an SM
  int64_t drawn_cta = -1;
  int64_t l1_bytes = 0;               // of an SM, beside the shared memory of its CTAs
  bool explain = false;               // Timeline::why, without its what-ifs
  std::optional<Resource> free = {};  // costs nothing; the model says so already where it can
  ReplayLog* log = nullptr;           // filled where it is there
  std::vector<int> groups = {};       // how many SMs each has (sm_groups.h)
};

/// `recordings` in the order of launch.
Timeline replay(const ReplayContext& context, const std::vector<Recording>& recordings);

}  // namespace imbrex::vgpu
