// SPDX-License-Identifier: Apache-2.0
// Timing a registered kernel on a CUDA device beside what NVIDIA ships: cuBLASLt for matrix products, cuDNN for
// attention where a Python with PyTorch is found, a copy of as many bytes for everything else. The kernel and
// cuBLASLt's product are verified first; then both are launched in turn (A, B, A, B, ...), so that heat and
// clocks are the same for both. Times are device time, of launches that were queued ahead.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "imbrex/runtime/registry.h"

namespace imbrex {

/// Device times of many launches, in microseconds.
struct Timing {
  double median = 0, low = 0, high = 0;  ///< the median and the quartiles
  int launches = 0;
  /// Half the interquartile range over the median.
  double spread() const { return median > 0 ? (high - low) / 2 / median : 0; }
};

struct BenchMode {
  std::string name;  ///< "burst": a few launches after a pause; "sustained": after seconds of load
  Timing kernel, rival;
  double clock_mhz = 0;  ///< mean over the measured launches of both, from the chip's own counters
  /// Above 1: the kernel is faster than its rival.
  double ratio() const { return kernel.median > 0 ? rival.median / kernel.median : 0; }
};

struct BenchResult {
  std::string kernel, device, config, rival;  ///< rival: "cuBLASLt 13.0", "device copy", "" without one
  bool is_rival_cublas_lt = false;            ///< the rival is cuBLASLt, not a copy
  std::string
      rival_missing;  ///< why neither cuBLASLt nor cuDNN is the rival of a kernel that they have; or ""
  std::map<std::string, int64_t> sizes;
  bool verified = false;
  std::string wrong;  ///< what is wrong, where not verified; then nothing is timed
  double max_rel_err = 0;
  double flop = 0;    ///< floating-point operations of the problem; 0 where it does not say
  int64_t bytes = 0;  ///< of all tensors, read or written once
  int multiprocessors = 0;
  std::vector<BenchMode> modes;
};

struct BenchOptions {
  std::optional<Device>
      device;  ///< a CUDA device to measure on; none: cuda(0). Runs that share `data` share it
  uint64_t seed = 1;
  bool burst = true, sustained = false;
  double pause_s = 3;            ///< before a burst, for the chip to cool
  int burst_launches = 10;       ///< of each contender
  double warm_up_s = 3;          ///< of load before sustained launches are timed
  int sustained_launches = 100;  ///< of each contender
  bool alone = false;            ///< no rival; the clock is that of the kernel's own launches, 32 at most
  bool cold_l2 = true;           ///< each launch begins with a cold L2 that holds no dirty lines
  /// Inputs and references that several kernels for one problem, of the same sizes and seed, share; made by the
  /// first. Null: its own.
  std::shared_ptr<CaseData> data;
};

/// Measures one configuration of `kernel` for `sizes` (every declared one). Throws DeviceError without a CUDA
/// device that runs the kernel, and CompileError and LaunchError as launching does.
BenchResult bench(const RegisteredKernel& kernel, const std::map<std::string, int64_t>& sizes,
                  const Configuration& configuration, const BenchOptions& options = {});

}  // namespace imbrex
