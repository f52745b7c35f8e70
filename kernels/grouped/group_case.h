// SPDX-License-Identifier: Apache-2.0
// How `imbrex run`, `bench` and the tests try grouped products: groups of random sizes, some of them empty.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "imbrex/runtime/registry.h"

namespace imbrex::kernels {

/// Where groups of `m` rows begin, groups + 1 numbers: even ones, or random ones of which every fifth is empty.
inline std::vector<int64_t> group_boundaries(Case& c, int64_t m, int64_t groups, bool even) {
  std::vector<int64_t> first(static_cast<size_t>(groups) + 1, 0);
  const HostTensor chance = c.random(float64, {groups});
  for (int64_t g = 1; g < groups; ++g)
    first[g] = even         ? m * g / groups
               : g % 5 == 2 ? first[g - 1]
                            : static_cast<int64_t>(std::abs(chance.get(g)) * 1e6) % (m + 1);
  first.back() = m;
  std::sort(first.begin(), first.end());
  return first;
}

inline HostTensor int32_tensor(const std::vector<int64_t>& values) {
  HostTensor host(int32, {static_cast<int64_t>(values.size())});
  for (size_t i = 0; i < values.size(); ++i)
    host.set(static_cast<int64_t>(i), static_cast<double>(values[i]));
  return host;
}

/// The group of a row.
inline int64_t group_of(const std::vector<int64_t>& first, int64_t row) {
  return std::upper_bound(first.begin(), first.end(), row) - first.begin() - 1;
}

}  // namespace imbrex::kernels
