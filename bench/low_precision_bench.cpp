// SPDX-License-Identifier: Apache-2.0
// Packed weights of few bits times few rows of activations on a CUDA GPU, beside cuBLASLt's product of 16-bit weights in
// the same run: verified by sampled elements, then timed in turns with weights out of the L2 cache.
//
//   bench_low_precision [--sizes 8192x8192,28672x8192] [--types int4,int2] [--m 1,16] [--group 128] [--dtype fp16] [--x int8]
//                       [--rounds 7] [--ms 10] decode decode:stages=12 prefill function ...
//
// `function` is low_precision_matmul(), which chooses. Sizes are N x K. The line per kernel ends with the time over that of
// the roof, 2.1 us + all bytes at 4.55 TB/s.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "contenders.h"
#include "core/float_formats.h"
#include "imbrex/kernels/low_precision/ampere_low_precision.h"
#include "imbrex/kernels/low_precision/decode_matmul.h"
#include "imbrex/kernels/low_precision/direct_matmul.h"
#include "imbrex/kernels/low_precision/prefill_matmul.h"
#include "imbrex/kernels/low_precision_matmul.h"
#include "imbrex/runtime/kernel.h"
#include "runtime/device/backend.h"
#include "runtime/host/parallel.h"
#include "runtime/measure/cublas_lt.h"
#include "runtime/measure/gpu_timer.h"

namespace imbrex {
namespace {

using bench::split;
using Launch = std::function<void(const DeviceTensor& x, const DeviceTensor& words,
                                  const DeviceTensor& scales, const DeviceTensor& c)>;

template <class K>
Launch launch_of(const std::string& configuration, const Device& device, int group, DataType type) {
  auto kernel = std::make_shared<Kernel<K>>(bench::configured<K>(configuration), device);
  return [=](const DeviceTensor& x, const DeviceTensor& words, const DeviceTensor& scales,
             const DeviceTensor& c) {
    const int64_t m = c.shape()[0], n = c.shape()[1], k = x.shape()[1];
    const int unit = 16 / x.dtype().bytes(), c_unit = n % 8 == 0 ? 8 : 1;
    const kernels::ActivationRowsArguments<const DeviceTensor&> rows{x.dtype(), x, {unit, k / unit, 0}};
    const kernels::PackedFinishArguments finish(c.address(), c.dtype());
    const kernels::MatrixStridesArguments c_strides{c_unit, n / c_unit, 0};
    if constexpr (std::is_same_v<K, kernels::HopperLowPrecisionPrefill>)
      (*kernel)(m, n, k, group, 0, type, c.dtype(), rows, words, scales, c, c_strides, finish, n % 16 == 0);
    else
      (*kernel)(m, n, k, group, 0, type, c.dtype(), rows, words, scales, c, c_strides, finish);
  };
}

Launch contender(const std::string& spec, const Device& device, int group, DataType type) {
  const size_t colon = spec.find(':');
  const std::string name = spec.substr(0, colon),
                    rest = colon == std::string::npos ? "" : spec.substr(colon + 1);
  if (name == "function")
    return [=](const DeviceTensor& x, const DeviceTensor& words, const DeviceTensor& scales,
               const DeviceTensor& c) {
      low_precision_matmul(x, {type, c.shape()[1], x.shape()[1], group, words, scales}, c);
    };
  if (name == "decode") return launch_of<kernels::HopperLowPrecisionDecode>(rest, device, group, type);
  if (name == "direct") return launch_of<kernels::HopperLowPrecisionDirect>(rest, device, group, type);
  if (name == "ampere") return launch_of<kernels::AmpereLowPrecision>(rest, device, group, type);
  if (name == "prefill") return launch_of<kernels::HopperLowPrecisionPrefill>(rest, device, group, type);
  throw std::runtime_error("no kernel '" + name +
                           "'; there are function, decode, direct, prefill and ampere");
}

/// Prefill multiplies the weights by their factors first.
bool rounds_weights(const std::string& contender, int64_t m) {
  return contender[0] == 'p' || (contender[0] == 'f' && m > 32);
}

/// What a code stands for.
double weight(DataType type, int code) {
  if (type.is_integer()) return type.is_signed() ? code - (1 << (type.bits() - 1)) : code;
  return arith::decode(arith::float_format(type), static_cast<uint64_t>(code));
}

/// The code at (row, column) of packed weights.
int code_at(const HostTensor& packed, int bits, int64_t row, int64_t column) {
  const auto* words = reinterpret_cast<const uint32_t*>(packed.bytes().data());
  const int64_t tile = row / 64 * packed.shape()[1] + column / 256, r = row % 64, c = column % 256;
  const int64_t thread = 32 * (r / 16) + r % 8 * 4 + c % 8 / 2, word = r / 8 % 2 + 2 * (c / 8 % 2);
  uint32_t code = 0;
  for (const kernels::CodePart& part : kernels::code_parts(bits, static_cast<int>(c / 16)))
    code |= (words[((tile * bits + part.plane) * 128 + thread) * 4 + word] >> (c % 2 * 16 + part.from) &
             ((1u << part.width) - 1))
            << part.to;
  return static_cast<int>(code);
}

/// Elements of the product, in float64.
struct Sample {
  int64_t row, column;
  double value, size;  // of the sum, and of its terms: the root of their squares
};
std::vector<Sample> samples_of(const HostTensor& x, int64_t n, const HostTensor& words,
                               const HostTensor& scales, DataType type, int group) {
  const int64_t m = x.shape()[0], k = x.shape()[1], groups = scales.shape()[1];
  std::mt19937_64 random(7);
  std::vector<Sample> samples(500);
  for (Sample& s : samples) {
    s.row = static_cast<int64_t>(random() % static_cast<uint64_t>(m));
    s.column = static_cast<int64_t>(random() % static_cast<uint64_t>(n));
  }
  const std::vector<double> activations = x.to_doubles();
  runtime::parallel_for(samples.size(), 16, [&](size_t at) {
    Sample& s = samples[at];
    double sum = 0, squares = 0;
    for (int64_t j = 0; j < k; ++j) {
      const double scale = scales.get((s.column / 64 * groups + j / group) * 64 + s.column % 64);
      const double term =
          activations[s.row * k + j] * scale * weight(type, code_at(words, type.bits(), s.column, j));
      sum += term;
      squares += term * term;
    }
    s.value = sum;
    s.size = std::sqrt(squares);
  });
  return samples;
}

/// The weights times their factors, rounded to the factors' type: what a product of that type takes.
HostTensor dequantised(const HostTensor& words, const HostTensor& scales, int64_t n, int64_t k, DataType type,
                       int group) {
  HostTensor wide(scales.dtype(), {n, k});
  const int64_t groups = scales.shape()[1];
  runtime::parallel_for(static_cast<size_t>(n), 16, [&](size_t row) {
    const auto i = static_cast<int64_t>(row);
    for (int64_t j = 0; j < k; ++j) {
      const double scale = scales.get((i / 64 * groups + j / group) * 64 + i % 64);
      wide.set(i * k + j, scale * weight(type, code_at(words, type.bits(), i, j)));
    }
  });
  return wide;
}

/// Where elements of c are farther from `expected` than rounding of sums and of weights explains. `size` is the root of
/// the mean square of the sums.
void compare_all(const DeviceTensor& c, const HostTensor& expected, bool rounds_weights) {
  const HostTensor got = c.to_host();
  const int64_t m = c.shape()[0], n = c.shape()[1];
  double squares = 0;
  for (int64_t i = 0; i < n; ++i) squares += expected.get(i) * expected.get(i);
  const double size = std::sqrt(squares / static_cast<double>(n)),
               unit = c.dtype() == bfloat16 ? 1.0 / 256 : 1.0 / 2048, each = rounds_weights ? 0.5 : 6;
  struct Wrong {
    int64_t row, column;
    double got, expected;
  };
  std::vector<std::vector<Wrong>> found(static_cast<size_t>(m));
  runtime::parallel_for(static_cast<size_t>(m), 16, [&](size_t row) {
    const auto i = static_cast<int64_t>(row);
    for (int64_t j = 0; j < n; ++j) {
      const double a = got.get(i * n + j), b = expected.get(i * n + j);
      if (!(std::abs(a - b) <= 2 * unit * std::abs(b) + each * unit * size))
        found[row].push_back({i, j, a, b});
    }
  });
  int64_t count = 0, rows = 0, by_warp[4] = {}, by_consumer[2] = {}, by_cta[2] = {};
  double least = 1e30, most = 0;
  std::vector<Wrong> all;
  for (const auto& row : found) {
    rows += !row.empty();
    for (const Wrong& w : row) {
      ++count;
      ++by_warp[w.column % 64 / 16];
      ++by_consumer[w.column / 64 % 2];
      ++by_cta[w.column / 128 % 2];
      least = std::min(least, std::abs(w.got - w.expected) / size);
      most = std::max(most, std::abs(w.got - w.expected) / size);
      all.push_back(w);
    }
  }
  if (count == 0) return;
  fmt::print(
      "    all elements: {} wrong of {} in {} rows; by warp {} {} {} {}; by consumer {} {}; by CTA {} {}; "
      "error/size {:.3f} to {:.3f}\n",
      count, m * n, rows, by_warp[0], by_warp[1], by_warp[2], by_warp[3], by_consumer[0], by_consumer[1],
      by_cta[0], by_cta[1], least, most);
  for (size_t i = 0; i < all.size(); i += std::max<size_t>(1, all.size() / 8))
    fmt::print("      [{}, {}]: {:.4f}, not {:.4f}\n", all[i].row, all[i].column, all[i].got,
               all[i].expected);
}

/// How many samples of c are farther from theirs than rounding explains.
int wrong_elements(const DeviceTensor& c, const std::vector<Sample>& samples, bool rounds_weights) {
  const HostTensor got = c.to_host();
  const double unit = c.dtype() == bfloat16 ? 1.0 / 256 : 1.0 / 2048;
  int wrong = 0;
  for (const Sample& s : samples) {
    const double value = got.get(s.row * c.shape()[1] + s.column);
    wrong += !(std::abs(value - s.value) <=
               unit * std::abs(s.value) + (rounds_weights ? 2.5 : 0.05) * unit * s.size);
  }
  return wrong;
}

/// Packed weights of random codes; of floats of 8 bits, whose codes are bytes of the words, those of numbers.
HostTensor random_words(const std::vector<int64_t>& shape, DataType type) {
  HostTensor words(uint32, shape);
  std::mt19937_64 random(3);
  const bool has_others = type.is_float() && type.bits() == 8;
  for (std::byte& byte : words.bytes()) {
    auto code = static_cast<uint8_t>(random());
    while (has_others && !std::isfinite(arith::decode(arith::float_format(type), code))) --code;
    byte = static_cast<std::byte>(code);
  }
  return words;
}

/// Copies of a tensor, more of them than twice the L2 holds.
std::vector<DeviceTensor> copies_of(const Device& device, const DeviceTensor& first) {
  std::vector<DeviceTensor> all{first};
  while (static_cast<int64_t>(all.size()) * first.bytes() < 2 * device.backend().l2_bytes() ||
         all.size() < 2) {
    all.push_back(DeviceTensor::empty(device, first.dtype(), first.shape()));
    all.back().copy_from(first);
  }
  return all;
}

int run(int argc, char** argv) {
  std::string sizes = "8192x8192", types = "int4", rows = "1,16";
  std::vector<std::string> configurations;
  DataType dtype = float16;
  std::optional<DataType> x_type;
  int group = 128, repeats = 2;
  runtime::GpuTimer::Runs runs{.turns = 7, .milliseconds = 10};
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const auto value = [&] { return i + 1 < argc ? std::string(argv[++i]) : std::string(); };
    if (word == "--sizes")
      sizes = value();
    else if (word == "--types")
      types = value();
    else if (word == "--m")
      rows = value();
    else if (word == "--group")
      group = std::stoi(value());
    else if (word == "--dtype")
      dtype = value() == "bf16" ? bfloat16 : float16;
    else if (word == "--x")
      x_type = DataType::from_name(value());
    else if (word == "--repeats")
      repeats = std::stoi(value());
    else if (word == "--rounds")
      runs.turns = std::stoi(value());
    else if (word == "--ms")
      runs.milliseconds = std::stod(value());
    else
      configurations.push_back(word);
  }
  if (configurations.empty()) configurations.push_back("decode");

  const Device device = Device::cuda();
  runtime::GpuTimer timer(device);
  for (const std::string& size : split(sizes, ',')) {
    const std::vector<std::string> extents = split(size, 'x');
    const int64_t n = std::stoll(extents.at(0)), k = std::stoll(extents.at(1));
    for (const std::string& name : split(types, ',')) {
      const DataType type = DataType::from_name(name).value();
      const int bits = type.bits();
      const std::vector<int64_t> shape{(n + 63) / 64, (k + 255) / 256, 2 * bits, 256};
      const HostTensor words = random_words(shape, type);
      const std::vector<int64_t> scale_shape{shape[0], (k + group - 1) / group, 64};
      const HostTensor scales = HostTensor::random(dtype, scale_shape, 9, 0.01);
      const std::vector<DeviceTensor> packed = copies_of(device, DeviceTensor::from_host(device, words));
      std::vector<DeviceTensor> factors;
      for (size_t i = 0; i < packed.size(); ++i) factors.push_back(DeviceTensor::from_host(device, scales));
      const std::vector<DeviceTensor> wide =
          copies_of(device, DeviceTensor::from_host(device, dequantised(words, scales, n, k, type, group)));
      for (const std::string& row : split(rows, ',')) {
        const int64_t m = std::stoll(row);
        const HostTensor x_host = HostTensor::random(x_type.value_or(dtype), {m, k}, 1);
        HostTensor wide_x(dtype, {m, k});  // for the rival
        for (int64_t i = 0; i < m * k; ++i) wide_x.set(i, x_host.get(i));
        const DeviceTensor x = DeviceTensor::from_host(device, x_host),
                           x_of_rival = DeviceTensor::from_host(device, wide_x);
        DeviceTensor c = DeviceTensor::empty(device, dtype, {m, n});
        const auto bytes =
            static_cast<double>(packed[0].bytes() + factors[0].bytes() + x.bytes() + c.bytes());
        const double roof = 2.1 + bytes / 4.55e6;
        fmt::print("{} m {} n {} k {} {} groups of {}, {}: roof {:.2f} us\n", device.name(), m, n, k,
                   type.name(), group, dtype.name(), roof);
        const std::vector<Sample> samples = samples_of(x_host, n, words, scales, type, group);
        std::string why_not;
        const std::shared_ptr<runtime::CublasLtMatmul> rival =
            runtime::CublasLtMatmul::make(x_of_rival, wide[0], c, timer, &why_not);
        if (!rival) throw std::runtime_error(why_not);
        rival->launch(x_of_rival, wide[0], c);
        device.synchronize();
        const HostTensor expected = c.to_host();
        std::vector<std::string> names{rival->name()};
        std::vector<runtime::GpuTimer::NumberedLaunch> launches{
            [&](int i) { rival->launch(x_of_rival, wide[static_cast<size_t>(i) % wide.size()], c); }};
        for (const std::string& text : configurations) try {
            const Launch kernel = contender(text, device, group, type);
            const auto launch = [=](int i) {
              const size_t at = static_cast<size_t>(i) % packed.size();
              kernel(x, packed[at], factors[at], c);
            };
            for (int i = 0; i < repeats; ++i) {
              c.poison();
              launch(i);
              device.synchronize();
              compare_all(c, expected, rounds_weights(text, m));
            }
            if (const int wrong = wrong_elements(c, samples, rounds_weights(text, m))) {
              fmt::print("  {:50} WRONG: {} of {} elements\n", text, wrong, samples.size());
              continue;
            }
            names.push_back(text);
            launches.push_back(launch);
          } catch (const std::exception& error) {
            fmt::print("  {:50} {}\n", text, error.what());
          }
        const std::vector<std::vector<double>> times = timer.measure_runs(launches, runs);
        const double rival_us = runtime::quartiles(times[0]).median;
        for (size_t i = 0; i < names.size(); ++i) {
          const double us = runtime::quartiles(times[i]).median;
          fmt::print("  {:50} {:8.2f} us  {:.2f} of the rival  {:.3f} of the roof\n", names[i], us,
                     rival_us / us, us / roof);
        }
        std::fflush(stdout);
      }
    }
  }
  return 0;
}

}  // namespace
}  // namespace imbrex

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 1 << 16);
  return imbrex::bench::run_main("bench_low_precision", [&] { return imbrex::run(argc, argv); });
}
