// SPDX-License-Identifier: Apache-2.0
// Timing launches on a CUDA device: device time, of launches that were queued before the first of them began,
// so that it holds no time of the host; and the mean clock over any stretch of work.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "imbrex/runtime/device_tensor.h"
#include "runtime/device/backend.h"

namespace imbrex::runtime {

class GpuTimer {
 public:
  /// `device` is a CUDA GPU.
  explicit GpuTimer(Device device);

  using Launch = std::function<void()>;  ///< on the device's stream, without waiting

  struct Single {
    int launches = 20;    ///< of each contender
    bool cold = true;     ///< each begins with a cold L2; else with what the launch before it left there
    double limit_us = 0;  ///< stop after the first round if the first contender took longer; 0: no limit
  };
  /// Times of single launches in microseconds, of each contender in turn (A, B, A, B, ...). Before each,
  /// twice the size of the L2 is read: nothing of the operands is left in it, and no modified line whose
  /// write-back would count as the launch's time.
  std::vector<std::vector<double>> measure(const std::vector<Launch>& contenders, const Single& options);

  /// Launch number `i` of a run. With copies of the operands used in rotation, more of them than the L2
  /// holds, each launch finds its own in memory.
  using NumberedLaunch = std::function<void(int i)>;

  struct Runs {
    int turns = 7;             ///< of each contender
    double milliseconds = 20;  ///< that a turn takes, about
    int most = 512;     ///< launches of a turn, 3 at least; more than 512 do not fit the driver's queue
    double idle_s = 0;  ///< before each turn, for the chip to cool
  };
  /// Mean times of launches in microseconds, one per turn, of each contender in turn. A turn launches one
  /// contender back to back, as a program that does nothing else would.
  std::vector<std::vector<double>> measure_runs(const std::vector<NumberedLaunch>& contenders,
                                                const Runs& options);

  struct WithClock {
    std::vector<double> times;  ///< of single launches, in microseconds
    double mhz = 0;             ///< the mean clock of the launches themselves
  };
  /// As measure() of one contender, at most kMostNoted launches. Every multiprocessor notes its clock and the time right before and
  /// after each launch; what lies between these notes and the launch is taken to run at the highest clock.
  WithClock measure_with_clock(const Launch& contender, const Single& options);
  static constexpr int kMostNoted = 32;

  /// Records the clock and the time of every multiprocessor, in order with the launches.
  void stamp_begin() { stamp(0); }
  void stamp_end() { stamp(1); }
  /// The mean clock in MHz between the two stamps; waits for the second. 0 when too little time lies between.
  double mean_clock_mhz();

 private:
  /// Keeps the device busy for so long, while launches are queued behind it.
  void hold(double microseconds);
  void flush();
  void stamp(int which);
  void note(const DeviceTensor& stamps, int64_t which);

  Device device_;
  std::shared_ptr<LoadedKernel> spin_kernel_, flush_kernel_, stamp_kernel_;
  DeviceTensor flushed_, sink_, stamps_[2];
  int64_t vectors_ = 0;  // of 16 bytes in flushed_
};

/// The quartiles of some values, interpolated between neighbours.
struct Quartiles {
  double low = 0, median = 0, high = 0;
  /// Half the interquartile range over the median.
  double spread() const { return median > 0 ? (high - low) / 2 / median : 0; }
};
/// All 0 without values.
Quartiles quartiles(std::vector<double> values);

}  // namespace imbrex::runtime
