// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "imbrex/core/error.h"
#include "runtime/device/backend.h"
#include "runtime/driver/context_scope.h"

namespace imbrex::runtime {

/// An event of the CUDA driver.
class CudaEvent : public DeviceEvent {
 public:
  CudaEvent(const CudaDriver& driver, CUcontext context) : driver_(driver), context_(context) {
    const ContextScope scope(driver_, context_);
    driver_.check(driver_.cuEventCreate(&event_, 0), "event");
  }
  ~CudaEvent() override {
    try {
      const ContextScope scope(driver_, context_);
      driver_.cuEventDestroy(event_);
    } catch (const Error&) {
      // The context is gone, and the event with it.
    }
  }
  void record(CUstream stream) override {
    const ContextScope scope(driver_, context_);
    driver_.check(driver_.cuEventRecord(event_, stream), "recording an event");
  }
  void hold(CUstream stream) override {
    const ContextScope scope(driver_, context_);
    driver_.check(driver_.cuStreamWaitEvent(stream, event_, 0), "waiting for an event on a stream");
  }
  void synchronize() override {
    const ContextScope scope(driver_, context_);
    driver_.check(driver_.cuEventSynchronize(event_), "waiting for an event");
  }
  /// Whether what was before it has ended; without waiting.
  bool has_passed() const {
    const ContextScope scope(driver_, context_);
    const CUresult result = driver_.cuEventQuery(event_);
    if (result != kErrorNotReady) driver_.check(result, "kernel execution");
    return result == 0;
  }
  double milliseconds_since(DeviceEvent& earlier) override {
    synchronize();
    const ContextScope scope(driver_, context_);
    float milliseconds = 0;
    driver_.check(driver_.cuEventElapsedTime(&milliseconds, static_cast<CudaEvent&>(earlier).event_, event_),
                  "elapsed time");
    return milliseconds;
  }

 private:
  const CudaDriver& driver_;
  CUcontext context_;
  CUevent event_ = nullptr;
};

}  // namespace imbrex::runtime
