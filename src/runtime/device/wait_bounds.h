// SPDX-License-Identifier: Apache-2.0
// Who bounds waits for a device.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "runtime/device/backend.h"

namespace imbrex::runtime {

/// Used by several threads.
class WaitBounds {
 public:
  void add(const std::shared_ptr<WaitBound>& bound) {
    const std::lock_guard lock(mutex_);
    std::erase_if(bounds_, [](const auto& known) { return known.expired(); });
    bounds_.push_back(bound);
    is_empty_ = false;
  }
  /// False for good on a device without ranks.
  bool may_be_bounded() const { return !is_empty_; }
  void wait_until(const std::function<bool()>& has_ended) {
    std::vector<std::shared_ptr<WaitBound>> alive;
    {
      const std::lock_guard lock(mutex_);
      for (const std::weak_ptr<WaitBound>& known : bounds_)
        if (std::shared_ptr<WaitBound> bound = known.lock()) alive.push_back(std::move(bound));
    }
    for (const std::shared_ptr<WaitBound>& bound : alive) bound->wait_until(has_ended);
  }

 private:
  std::mutex mutex_;
  std::vector<std::weak_ptr<WaitBound>> bounds_;
  std::atomic<bool> is_empty_ = true;
};

}  // namespace imbrex::runtime
