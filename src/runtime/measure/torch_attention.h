// SPDX-License-Identifier: Apache-2.0
// cuDNN's attention, through a Python that has PyTorch: what attention kernels are compared with. A process of its own, so that a
// benchmark needs neither to be linked; $IMBREX_PYTHON names the interpreter, or "none".
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "imbrex/runtime/registry.h"
#include "runtime/host/process.h"

namespace imbrex::runtime {

class TorchAttention {
 public:
  /// Null, with the reason in `why_not`, when there is no Python, PyTorch or cuDNN, or none that does this. The inputs are random
  /// numbers of the same distribution as a Case's.
  static std::unique_ptr<TorchAttention> make(const StatedAttention& attention, std::string* why_not);

  /// "cuDNN 9.19 by PyTorch 2.11.0".
  const std::string& name() const { return name_; }
  /// Device times of so many launches in microseconds. Nothing else may be running on the GPU. DeviceError when the process has
  /// ended or does not answer.
  std::vector<double> measure(int launches, bool cold);

 private:
  explicit TorchAttention(const std::string& python);

  WorkerProcess worker_;
  std::string name_;
};

}  // namespace imbrex::runtime
