// SPDX-License-Identifier: Apache-2.0
// How far launches run ahead of a CUDA GPU whose kernels may wait for other GPUs: the driver queues some thousand, and then
// waits without a bound.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <utility>

#include "runtime/device/cuda_event.h"
#include "runtime/device/wait_bounds.h"

namespace imbrex::runtime {

/// Used by several threads.
class LaunchPace {
 public:
  /// Counts a launch; whether keep() is to be called before it.
  bool is_due() { return ++launches_ % kEvery == 0; }
  /// Waits until what was launched twice as long ago has ended.
  void keep(const CudaDriver& driver, CUcontext context, CUstream stream, WaitBounds& bounds) {
    const std::lock_guard lock(mutex_);
    std::unique_ptr<CudaEvent>& before = marks_[turn_];
    if (before != nullptr) bounds.wait_until([&] { return before->has_passed(); });
    before = std::make_unique<CudaEvent>(driver, context);
    before->record(stream);
    turn_ = 1 - turn_;
  }

 private:
  static constexpr unsigned kEvery = 128;
  std::atomic<unsigned> launches_ = 0;
  std::mutex mutex_;
  std::unique_ptr<CudaEvent> marks_[2];
  size_t turn_ = 0;
};

}  // namespace imbrex::runtime
