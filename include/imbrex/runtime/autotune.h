// SPDX-License-Identifier: Apache-2.0
// Tuning at the first call: what Kernel<K>::autotuned() takes and tells.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace imbrex {

/// What a tuning at a first call came to.
struct AutotuneReport {
  std::string kernel, device;
  std::vector<int64_t> shape;       ///< of the call (see KernelBase)
  std::string config;               ///< the winner: "block_m=128 block_n=64"
  double microseconds = 0;          ///< the winner's time, on the virtual GPU the timeline's prediction
  double default_microseconds = 0;  ///< the default configuration's
  int measured = 0;                 ///< candidates whose results were right
  int rejected = 0;                 ///< that do not compile, or do not fit the device
  int wrong = 0;        ///< whose results were not the default configuration's, or not the reference's
  int not_reached = 0;  ///< for want of time
  double seconds = 0;   ///< that it took
  /// "1 output of the default configuration": all candidates were compared with that. Where the kernel is registered
  /// with a case that makes such a call, the default and the winner were also run on the case's problem, and it goes on:
  /// ", and the reference of softmax with m=64 n=1000".
  std::string compared_with;

  /// The whole in one line.
  std::string text() const;
};

struct AutotuneOptions {
  double seconds = 10;  ///< no candidate is begun after so long
  /// False: nothing is tuned, as by Kernel<K>::tuned(). The environment variable IMBREX_AUTOTUNE=off does the same for
  /// all kernels.
  bool enabled = true;
  std::function<void(const AutotuneReport&)> report = {};  ///< called after each tuning
};

}  // namespace imbrex
