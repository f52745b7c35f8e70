// SPDX-License-Identifier: Apache-2.0
// Tuning in the memory of the call that needs it: Kernel<K>::autotuned().
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "imbrex/runtime/autotune.h"
#include "imbrex/runtime/device.h"
#include "imbrex/runtime/device_tensor.h"

namespace imbrex::runtime {

struct FirstCallTuning {
  Device device;
  std::vector<DeviceTensor> written;        ///< what the kernel may write: saved, compared, restored
  std::vector<std::string> configurations;  ///< the default first
  double seconds = 0;                       ///< no candidate is begun after so long
  /// Compiles and loads; CompileError.
  std::function<void(const std::string& configuration)> prepare;
  /// Launches on the device's own stream, timed.
  std::function<LaunchReport(const std::string& configuration)> launch;
};

/// Measures the configurations. In the report: all but kernel and shape; `config` is the fastest whose results are those
/// of the first one that runs. CompileError where none does; DeviceError where the device fails.
AutotuneReport tune_first_call(const FirstCallTuning& tuning);

/// False where the environment variable IMBREX_AUTOTUNE says so: off, or 0.
bool is_autotuning_allowed();

}  // namespace imbrex::runtime
