// SPDX-License-Identifier: Apache-2.0
#include "vgpu/tensor_cores/zero_column_mask.h"

#include <algorithm>

namespace imbrex::vgpu {

std::vector<bool> masked_columns(uint64_t descriptor, uint32_t m, uint32_t n) {
  std::vector<bool> zero(n, false);
  const auto field = [&](int low, int width) {
    return static_cast<uint32_t>(descriptor >> low & ((uint64_t{1} << width) - 1));
  };
  if (field(39, 1) == 0) return zero;
  const uint32_t skip_run = field(40, 8) + 1, use_run = field(48, 8) + 1;
  const uint32_t parts = 128 / m;  // one mask for M = 128, two for 64, four for 32
  const uint32_t width = n / parts;
  for (uint32_t part = 0; part < parts; ++part) {
    bool value = field(32 + static_cast<int>(part), 1) != 0;
    uint32_t left = value ? skip_run : use_run;
    left -= std::min(left, field(8 * static_cast<int>(part), 8));
    for (uint32_t j = 0; j < width; ++j) {
      while (left == 0) {
        value = !value;
        left = value ? skip_run : use_run;
      }
      zero[part * width + j] = value;
      --left;
    }
  }
  return zero;
}

void clear_masked_columns(uint64_t descriptor, uint32_t m, uint32_t n, uint32_t k, Major major,
                          std::vector<uint8_t>& patterns) {
  const std::vector<bool> zero = masked_columns(descriptor, m, n);
  const size_t bytes = patterns.size() / (size_t{n} * k);
  for (uint32_t j = 0; j < n; ++j) {
    if (!zero[j]) continue;
    for (uint32_t i = 0; i < k; ++i) {
      const size_t at = (major == Major::kK ? size_t{j} * k + i : size_t{i} * n + j) * bytes;
      std::fill_n(patterns.begin() + static_cast<int64_t>(at), bytes, uint8_t{0});
    }
  }
}

}  // namespace imbrex::vgpu
