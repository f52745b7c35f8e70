// SPDX-License-Identifier: Apache-2.0
// Indices of rows that a registered kernel runs with.
#pragma once

#include <cmath>

#include "imbrex/runtime/registry.h"

namespace imbrex::kernels {

/// `n` rows of `rows`, as the case's seed has them; every seventeenth is -1, for none.
inline HostTensor random_indices(Case& c, int64_t n, int64_t rows) {
  const HostTensor chance = c.random(float64, {n});
  HostTensor indices(int32, {n});
  for (int64_t i = 0; i < n; ++i) {
    const double x = std::abs(chance.get(i)) * 1000;
    indices.set(i, i % 17 == 5 ? -1.0 : static_cast<double>(static_cast<int64_t>(x * 7919) % rows));
  }
  return indices;
}

}  // namespace imbrex::kernels
