// SPDX-License-Identifier: Apache-2.0
// Calibrating: small kernels, each of which waits for one part of the GPU, tell the numbers that predicted times rest
// on (docs/timeline.md, Calibrating).
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "imbrex/inspect/gpu_model.h"
#include "imbrex/runtime/device.h"

namespace imbrex {

/// One number, measured.
struct CalibratedNumber {
  std::string name;                    ///< "l2_latency_cycles", "tma_latency", ...
  std::string what;                    ///< "a chain of loads that hit in L2"
  std::string unit;                    ///< of the two below: "clocks per step", "GB/s"
  double predicted = 0, measured = 0;  ///< of the micro-benchmark, by the model so far and by the device
  double before = 0, after = 0;        ///< the number
  /// By how much the prediction was off, relative.
  double off() const { return measured > 0 ? predicted / measured - 1 : 0; }
};

struct Calibration {
  GpuModel model;  ///< the one given, with the numbers that were found
  std::vector<CalibratedNumber> numbers;
  std::vector<std::string> left_out;  ///< "tma_latency: sm_80 has no bulk copies"
};

/// Runs the micro-benchmarks on `device`, a CUDA GPU or a virtual one that records its timeline, and adapts `model` until
/// it predicts them. Takes some seconds. LaunchError where the device does not run the model's target.
Calibration calibrate(const Device& device, const GpuModel& model,
                      const std::function<void(const std::string& what)>& progress = {});

}  // namespace imbrex
