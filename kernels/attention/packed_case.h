// SPDX-License-Identifier: Apache-2.0
// Packed sequences of registered kernels' problems.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "imbrex/runtime/registry.h"

namespace imbrex::kernels {

/// Divides `rows` among sequences, unevenly; every fourth is empty.
inline std::vector<int64_t> divided(int64_t rows, int64_t sequences, int64_t seed) {
  std::vector<int64_t> begins{0};
  for (int64_t s = 0; s < sequences; ++s) {
    const int64_t left = rows - begins.back();
    const int64_t fair = 2 * left / std::max<int64_t>(sequences - s, 1) + 1;
    const int64_t here = s + 1 == sequences ? left : s % 4 == 3 ? 0 : (s * 7919 + seed) % fair;
    begins.push_back(begins.back() + std::min(left, here));
  }
  return begins;
}
/// The numbers as int32, of this shape; without one a vector.
inline DeviceTensor as_input(Case& c, const std::vector<int64_t>& numbers, std::vector<int64_t> shape = {}) {
  if (shape.empty()) shape = {static_cast<int64_t>(numbers.size())};
  HostTensor host(int32, std::move(shape));
  for (size_t i = 0; i < numbers.size(); ++i)
    host.set(static_cast<int64_t>(i), static_cast<double>(numbers[i]));
  return c.input(host);
}

/// The sequence that has the row.
inline size_t sequence_of(const std::vector<int64_t>& begins, int64_t row) {
  return static_cast<size_t>(std::upper_bound(begins.begin(), begins.end(), row) - begins.begin()) - 1;
}

}  // namespace imbrex::kernels
