// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/driver/cuda_driver.h"

namespace imbrex::runtime {

/// Makes a context current on this thread for a scope; what was current before is current again afterwards. Where
/// nothing was, the context stays: nobody relies on that, and every call would otherwise set it twice.
class ContextScope {
 public:
  /// Throws DeviceError.
  ContextScope(const CudaDriver& driver, CUcontext context) : driver_(driver) {
    CUresult result = driver.cuCtxGetCurrent(&before_);
    if (result == 0 && before_ == context) {
      before_ = nullptr;
      return;
    }
    if (result == 0) result = driver.cuCtxSetCurrent(context);
    if (result != 0) driver.check(result, "CUDA context");
  }
  ~ContextScope() {
    if (before_ != nullptr) driver_.cuCtxSetCurrent(before_);
  }
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;

 private:
  const CudaDriver& driver_;
  CUcontext before_ = nullptr;  // to be restored
};

}  // namespace imbrex::runtime
