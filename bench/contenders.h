// SPDX-License-Identifier: Apache-2.0
// Kernels that are timed against each other on a CUDA GPU.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "imbrex/runtime/device_tensor.h"
#include "runtime/measure/gpu_timer.h"

namespace imbrex::bench {

struct Contender {
  std::string name;
  runtime::GpuTimer::Launch launch;
};

/// Medians of `rounds` launches of each, in microseconds, in turn, each with a cold L2; a line about each
/// with its speed beside the first's.
inline std::vector<double> measure(runtime::GpuTimer& timer, const std::vector<Contender>& contenders,
                                   double flops, int rounds) {
  std::vector<runtime::GpuTimer::Launch> launches;
  for (const Contender& c : contenders) launches.push_back(c.launch);
  timer.measure(launches, 3);
  std::vector<double> medians;
  for (const auto& times : timer.measure(launches, rounds))
    medians.push_back(runtime::quartiles(times).median);
  for (size_t i = 0; i < contenders.size(); ++i)
    fmt::print("  {:52} {:9.2f} us {:7.1f} TFLOPS  {:.3f}\n", contenders[i].name, medians[i],
               flops / medians[i] * 1e-6, medians[0] / medians[i]);
  std::fflush(stdout);
  return medians;
}

/// The largest difference, relative to the element of `reference` or, if that is more, to their root mean
/// square; of every `stride`th row of a matrix.
inline double difference(const DeviceTensor& c, const DeviceTensor& reference, int64_t stride = 1) {
  const HostTensor got = c.to_host(), wanted = reference.to_host();
  const int64_t rows = c.shape().at(0), columns = c.shape().at(1);
  std::vector<double> x, y;
  for (int64_t row = 0; row < rows; row += stride) {
    x.resize(x.size() + columns), y.resize(x.size());
    got.to_doubles(row * columns, columns, x.data() + x.size() - columns);
    wanted.to_doubles(row * columns, columns, y.data() + y.size() - columns);
  }
  double worst = 0, squares = 0;
  for (const double value : y) squares += value * value;
  const double size = std::sqrt(squares / static_cast<double>(y.size()));
  for (size_t i = 0; i < x.size(); ++i) {
    const double off = std::abs(x[i] - y[i]) / std::max(std::abs(y[i]), size);
    worst = off <= worst ? worst : off;  // a NaN stays
  }
  return worst;
}

}  // namespace imbrex::bench
