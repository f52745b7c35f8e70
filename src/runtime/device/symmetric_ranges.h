// SPDX-License-Identifier: Apache-2.0
// Addresses of symmetric memory, which a device may use whichever GPU it lies on.
#pragma once

#include <algorithm>
#include <cstdint>
#include <mutex>
#include <utility>
#include <vector>

namespace imbrex::runtime {

/// Used by several threads.
class SymmetricRanges {
 public:
  void add(uint64_t address, uint64_t bytes) {
    const std::lock_guard lock(mutex_);
    ranges_.emplace_back(address, bytes);
  }
  bool contains(uint64_t address) const {
    const std::lock_guard lock(mutex_);
    return std::any_of(ranges_.begin(), ranges_.end(),
                       [&](const auto& range) { return address - range.first < range.second; });
  }

 private:
  mutable std::mutex mutex_;
  std::vector<std::pair<uint64_t, uint64_t>> ranges_;  // address and bytes
};

}  // namespace imbrex::runtime
