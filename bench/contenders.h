// SPDX-License-Identifier: Apache-2.0
// What the benchmarks on a CUDA GPU share: contenders timed in turn, results compared, command lines read.
// Times are those of runtime::GpuTimer, cuBLASLt is runtime::CublasLtMatmul, as in `imbrex bench` and the
// tuner.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "imbrex/runtime/device_tensor.h"
#include "imbrex/runtime/kernel.h"
#include "runtime/device/backend.h"
#include "runtime/measure/gpu_timer.h"

namespace imbrex::bench {

/// The main() of a benchmark: what `run` throws is printed behind the program's name.
template <class Run>
int run_main(const char* name, Run&& run) {
  try {
    return run();
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}: {}\n", name, error.what());
    return 1;
  }
}

struct Contender {
  std::string name;
  runtime::GpuTimer::Launch launch;
};

/// Extents of C[m, n] = A[m, k] B[n, k]^T.
struct MatmulSize {
  int64_t m, n, k;
  double flops() const {
    return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  }
};

/// The parts of `text` between separators.
inline std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::stringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);) parts.push_back(part);
  return parts;
}

/// "8192" or "4096x4096x14336".
inline MatmulSize parse_size(const std::string& text) {
  const std::vector<std::string> extents = split(text, 'x');
  if (extents.size() != 1 && extents.size() != 3)
    throw std::runtime_error("a size is M or MxNxK, not '" + text + "'");
  const int64_t m = std::stoll(extents[0]);
  return extents.size() == 1 ? MatmulSize{m, m, m}
                             : MatmulSize{m, std::stoll(extents[1]), std::stoll(extents[2])};
}

/// K with the configuration "block_m=128,stages=4"; the default one for "".
template <class K>
K configured(std::string configuration) {
  K instance;
  std::replace(configuration.begin(), configuration.end(), ',', ' ');
  if (!configuration.empty()) tuning_space<K>().apply(&instance, tuning_space<K>().parse(configuration));
  return instance;
}

/// Medians of `rounds` launches of each contender, in microseconds, in turn, each with a cold L2. Prints a
/// line per contender; its last number is the first contender's time over its own.
inline std::vector<double> measure(runtime::GpuTimer& timer, const std::vector<Contender>& contenders,
                                   double flops, int rounds) {
  std::vector<runtime::GpuTimer::Launch> launches;
  for (const Contender& c : contenders) launches.push_back(c.launch);
  timer.measure(launches, {.launches = 3});
  std::vector<double> medians;
  for (const auto& times : timer.measure(launches, {.launches = rounds}))
    medians.push_back(runtime::quartiles(times).median);
  for (size_t i = 0; i < contenders.size(); ++i)
    fmt::print("  {:52} {:9.2f} us {:7.1f} TFLOPS  {:.3f}\n", contenders[i].name, medians[i],
               flops / medians[i] * 1e-6, medians[0] / medians[i]);
  std::fflush(stdout);
  return medians;
}

/// The largest difference of an element, over the element of `reference` or, where that is greater, the root
/// mean square of all; in every `stride`th row of a matrix.
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

/// Random numbers for a large tensor, made quickly: some millions of them, again and again.
inline DeviceTensor repeated_random(const Device& device, DataType dtype, const std::vector<int64_t>& shape,
                                    uint64_t seed) {
  constexpr int64_t kPeriod = 3'000'016;  // shares no large factor with usual extents
  const DeviceTensor all = DeviceTensor::empty(device, dtype, shape);
  const DeviceTensor part = DeviceTensor::random(device, dtype, {kPeriod}, seed);
  for (int64_t at = 0; at < all.bytes(); at += part.bytes())
    device.backend().copy_on_device(all.address() + at, part.address(),
                                    std::min(part.bytes(), all.bytes() - at));
  device.synchronize();
  return all;
}

}  // namespace imbrex::bench
