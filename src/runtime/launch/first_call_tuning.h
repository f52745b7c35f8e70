// SPDX-License-Identifier: Apache-2.0
// Tuning in the memory of the call that needs it: Kernel<K>::autotuned().
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "imbrex/runtime/autotune.h"
#include "imbrex/runtime/device.h"
#include "imbrex/runtime/device_tensor.h"
#include "imbrex/runtime/kernel.h"

namespace imbrex::runtime {

/// The reference of a registered kernel at the sizes of a call.
struct CallReference {
  std::string text;  ///< "the reference of softmax with m=64 n=1000"
  /// What is wrong with the results of a configuration, or "". Null where there is no reference.
  std::function<std::string(const std::string& configuration)> verify;
};
/// The reference for a call of this shape whose tensors have so many bytes, if it is made in about so many seconds.
using FindCallReference = CallReference (*)(const KernelEntry& entry, const Device& device,
                                            const std::vector<int64_t>& shape, int64_t bytes, double seconds);
/// Set by the room that has the references, which is above this one, when a kernel is registered; null before.
inline FindCallReference call_references = nullptr;

struct FirstCallTuning {
  Device device;
  std::vector<DeviceTensor> written;        ///< what the kernel may write: saved, compared, restored
  std::vector<std::string> configurations;  ///< the default first
  double seconds = 0;                       ///< no candidate is begun after so long
  CallReference reference;                  ///< what the default and the fastest are compared with, too
  /// Compiles and loads; CompileError.
  std::function<void(const std::string& configuration)> prepare;
  /// Launches on the device's own stream, timed.
  std::function<LaunchReport(const std::string& configuration)> launch;
};

/// Measures the configurations. In the report: all but kernel and shape; `config` is the fastest whose results are those
/// of the first one that is right by the reference, or that runs where there is none, and are right by it too.
/// CompileError where none compiles; LaunchError where none is right; DeviceError where the device fails.
AutotuneReport tune_first_call(const FirstCallTuning& tuning);

/// False where the environment variable IMBREX_AUTOTUNE says so: off, or 0.
bool is_autotuning_allowed();

}  // namespace imbrex::runtime
