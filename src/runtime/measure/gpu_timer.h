// SPDX-License-Identifier: Apache-2.0
// Measuring launches on a CUDA device: each with a cold L2 that holds no dirty lines, and the mean clock over
// any stretch of work.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "imbrex/runtime/device_tensor.h"
#include "runtime/device/backend.h"

namespace imbrex::runtime {

class GpuTimer {
 public:
  explicit GpuTimer(Device device);

  using Launch = std::function<void()>;  ///< on the device's stream, without waiting

  /// Device times in microseconds of `count` launches of each of `contenders` in turn (A, B, A, B, ...), each
  /// after reading through twice the L2's size: nothing of the operands is left, and no dirty line whose
  /// write-back the next launch would pay for. With `cold` false nothing is flushed. Stops after the first
  /// round once it took more than `limit_us` (0: no limit).
  std::vector<std::vector<double>> measure(const std::vector<Launch>& contenders, int count, bool cold = true,
                                           double limit_us = 0);

  /// Notes every multiprocessor's clock and time now, in order with the launches.
  void stamp_begin() { stamp(0); }
  void stamp_end() { stamp(1); }
  /// The mean clock in MHz between the two stamps; waits for the second. 0 when too little time lies between.
  double mean_clock_mhz();

 private:
  void flush();
  void stamp(int which);

  Device device_;
  std::shared_ptr<LoadedKernel> flush_kernel_, stamp_kernel_;
  DeviceTensor flushed_, sink_, stamps_[2];
  int64_t vectors_ = 0;  // of 16 bytes in flushed_
};

struct Quartiles {
  double low = 0, median = 0, high = 0;
  /// Half the interquartile range over the median.
  double spread() const { return median > 0 ? (high - low) / 2 / median : 0; }
};
Quartiles quartiles(std::vector<double> values);

}  // namespace imbrex::runtime
