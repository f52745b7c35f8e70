// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "imbrex/parallel.h"

namespace imbrex::parallel {

/// How many ranks a test on GPUs takes: two, and more where this machine has them.
inline std::vector<int> gpu_counts() {
  std::vector<int> counts;
  for (const int count : {2, 3, 4, 8})
    if (count <= Ranks::cuda_devices()) counts.push_back(count);
  return counts;
}

}  // namespace imbrex::parallel
