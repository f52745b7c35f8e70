// SPDX-License-Identifier: Apache-2.0
// Grouped products on a CUDA GPU, in many configurations, beside imbrex::matmul's dense product of the same work.
//
//   bench_grouped [--rounds 11] [--types bfloat16,float8_e4m3,blocks,gradient] [--shapes 4x8192x4096x7168,...] CONFIGURATION ...
//
// Shapes are groups x rows of each x n x k; of "32x~64x..." rows are drawn at random, 64 on average. Contenders take
// turns, each launch with a cold L2 cache; figures are medians. Results of bfloat16 must agree with products of single
// groups, of float8 with those of the first configuration. "blocks" are float8 with a scale per 128 of k, "gradient" is that
// of the weights.
#include <fmt/format.h>

#include <random>
#include <string>
#include <thread>
#include <vector>

#include "contenders.h"
#include "imbrex/kernels/grouped/hopper_grouped.h"
#include "imbrex/kernels/grouped/weight_gradient.h"
#include "imbrex/kernels/matmul.h"
#include "imbrex/runtime/kernel.h"
#include "runtime/host/parallel.h"
#include "runtime/measure/gpu_timer.h"

namespace imbrex {
namespace {

using bench::Contender;
using bench::split;

struct Shape {
  int64_t groups, rows, n, k;
  bool random;
};

Shape parse_shape(const std::string& text) {
  const std::vector<std::string> parts = split(text, 'x');
  if (parts.size() != 4) throw std::runtime_error("a shape is GROUPSxROWSxNxK, not '" + text + "'");
  const bool random = parts[1][0] == '~';
  return {std::stoll(parts[0]), std::stoll(parts[1].substr(random)), std::stoll(parts[2]),
          std::stoll(parts[3]), random};
}

struct Problem {
  Shape shape;
  DataType dtype;
  std::vector<int64_t> first;
  int64_t m;
  DeviceTensor a, b, rows, scale_a, scale_b, block_a, block_b;
};

Problem make_problem(const Device& device, const Shape& shape, DataType dtype) {
  std::vector<int64_t> first(static_cast<size_t>(shape.groups) + 1, 0);
  std::mt19937 random(1);
  for (int64_t g = 0; g < shape.groups; ++g)
    first[g + 1] =
        first[g] + (shape.random ? static_cast<int64_t>(random() % (2 * shape.rows + 1)) : shape.rows);
  const int64_t m = first.back();
  HostTensor host(int32, {shape.groups + 1});
  for (int64_t g = 0; g <= shape.groups; ++g) host.set(g, static_cast<double>(first[g]));
  return {shape,
          dtype,
          first,
          m,
          bench::repeated_random(device, dtype, {m, shape.k}, 1),
          bench::repeated_random(device, dtype, {shape.groups, shape.n, shape.k}, 2),
          DeviceTensor::from_host(device, host),
          DeviceTensor::random(device, float32, {m, 1}, 3),
          DeviceTensor::random(device, float32, {shape.groups, shape.n}, 4),
          bench::repeated_random(device, float32, {(shape.k + 127) / 128, m}, 5),
          bench::repeated_random(device, float32,
                                 {shape.groups, (shape.n + 127) / 128, (shape.k + 127) / 128}, 6)};
}

template <class K>
kernels::ProductSizesArguments sizes_of(const K& kernel, const Problem& p) {
  return kernels::product_sizes(kernel, p.m, p.shape.n, p.shape.k);
}

using Launcher = std::function<void(const Problem&, const DeviceTensor& c)>;

Launcher launcher(const std::string& spec, const std::string& type, DataType dtype, const Device& device) {
  using namespace kernels;
  if (type == "blocks") {
    using K = HopperGroupedMatmul<BlockScales, Convert>;
    const K instance = bench::configured<K>(spec);
    auto kernel = std::make_shared<Kernel<K>>(instance, device);
    return [kernel, instance](const Problem& p, const DeviceTensor& c) {
      (*kernel)(sizes_of(instance, p), p.shape.groups, 128, false, 0, p.dtype, p.rows, p.a, p.b, c, p.block_a,
                p.m, p.block_b, bfloat16);
    };
  }
  if (type == "gradient") {  // of the weights: a [m, k], b is the result, and c [m, n] the other operand
    using K = HopperWeightGradient<>;
    auto kernel = std::make_shared<Kernel<K>>(bench::configured<K>(spec), device);
    return [kernel](const Problem& p, const DeviceTensor& c) {
      (*kernel)(p.m, p.shape.n, p.shape.k, p.shape.groups, 128, false, 0, p.dtype, p.rows, c, p.a, p.b);
    };
  }
  if (dtype == float8_e4m3) {
    using K = HopperGroupedMatmul<RowScale, GroupColumnScale, Convert>;
    K instance = bench::configured<K>(spec);
    instance.block_k = 128;
    auto kernel = std::make_shared<Kernel<K>>(instance, device);
    return [kernel, instance](const Problem& p, const DeviceTensor& c) {
      (*kernel)(sizes_of(instance, p), p.shape.groups, 128, false, 0, p.dtype, p.rows, p.a, p.b, c, float32,
                p.scale_a, p.shape.groups, p.scale_b, bfloat16);
    };
  }
  using K = HopperGroupedMatmul<>;
  const K instance = bench::configured<K>(spec);
  auto kernel = std::make_shared<Kernel<K>>(instance, device);
  return [kernel, instance](const Problem& p, const DeviceTensor& c) {
    (*kernel)(sizes_of(instance, p), p.shape.groups, 128, false, 0, p.dtype, p.rows, p.a, p.b, c);
  };
}

/// The same by products of single groups, without scales; float8's are not compared.
void reference(const Problem& p, const DeviceTensor& c) {
  for (int64_t g = 0; g < p.shape.groups; ++g) {
    const int64_t rows = p.first[g + 1] - p.first[g];
    if (rows > 0)
      matmul(p.a.slice({p.first[g], 0}, {rows, p.shape.k}), p.b[g],
             c.slice({p.first[g], 0}, {rows, p.shape.n}));
  }
}

void run_problem(const Device& device, runtime::GpuTimer& timer, const Problem& p, const std::string& type,
                 const std::vector<std::string>& specs, int rounds) {
  const DeviceTensor c = bench::repeated_random(device, bfloat16, {p.m, p.shape.n}, 9),
                     wanted = DeviceTensor::empty(device, bfloat16, {p.m, p.shape.n});
  std::vector<Launcher> launchers;
  for (const std::string& spec : specs) launchers.push_back(launcher(spec, type, p.dtype, device));
  std::vector<std::string> errors(launchers.size());
  runtime::parallel_for(errors.size(), std::thread::hardware_concurrency(), [&](size_t i) {
    try {
      launchers[i](p, c);
    } catch (const std::exception& error) {
      errors[i] = error.what();
    }
  });
  device.synchronize();
  const Shape& s = p.shape;
  fmt::print("{} groups of {}{}x{}x{} {}\n", s.groups, s.random ? "about " : "", s.rows, s.n, s.k,
             p.dtype.name());
  std::vector<Contender> contenders;
  const DeviceTensor b = p.b[0];
  contenders.push_back({"dense, of as many rows", [&, b] { matmul(p.a, b, c); }});
  if (type == "bfloat16")
    reference(p, wanted);
  else if (errors[0].empty())
    launchers[0](p, wanted);
  for (size_t i = 0; i < specs.size(); ++i) {
    if (!errors[i].empty()) {
      fmt::print("  {:52} {}\n", specs[i], errors[i].substr(0, 200));
      continue;
    }
    if (type != "gradient") DeviceTensor(c).poison();
    launchers[i](p, c);
    device.synchronize();
    const double off = type == "gradient" ? 0 : bench::difference(c, wanted, 61);
    if (off < 0.03)
      contenders.push_back({specs[i], [&, i] { launchers[i](p, c); }});
    else
      fmt::print("  {:52} WRONG: differs by {:.4f}\n", specs[i], off);
  }
  const double flops = 2.0 * static_cast<double>(p.m) * static_cast<double>(s.n) * static_cast<double>(s.k);
  const std::vector<double> times = bench::measure(timer, contenders, flops, rounds);
  double best = times[0];
  for (size_t i = 1; i < times.size(); ++i) best = i == 1 ? times[i] : std::min(best, times[i]);
  fmt::print("  best {:.1f} TFLOPS, {:.3f} of dense, weights at {:.2f} TB/s\n", flops / best * 1e-6,
             times[0] / best, static_cast<double>(s.groups * s.n * s.k * p.dtype.bytes()) / best * 1e-6);
}

int run(int argc, char** argv) {
  int rounds = 11;
  std::string shapes =
      "4x8192x4096x7168,4x8192x7168x2048,8x4096x4096x7168,32x256x4096x7168,32x64x7168x2048,128x64x1536x4096,"
      "32x~256x4096x7168";
  std::string types = "bfloat16,float8_e4m3";
  std::vector<std::string> specs;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const auto value = [&] { return i + 1 < argc ? std::string(argv[++i]) : std::string(); };
    if (word == "--rounds")
      rounds = std::stoi(value());
    else if (word == "--shapes")
      shapes = value();
    else if (word == "--types")
      types = value();
    else
      specs.push_back(word);
  }
  const Device device = Device::cuda();
  runtime::GpuTimer timer(device);
  fmt::print("{}\n", device.name());
  for (const std::string& shape : split(shapes, ','))
    for (const std::string& type : split(types, ',')) {
      try {
        run_problem(device, timer,
                    make_problem(device, parse_shape(shape),
                                 type == "bfloat16" || type == "gradient" ? bfloat16 : float8_e4m3),
                    type, specs.empty() ? std::vector<std::string>{""} : specs, rounds);
      } catch (const std::exception& error) {
        fmt::print("{} {}: {}\n", shape, type, error.what());
      }
    }
  return 0;
}

}  // namespace
}  // namespace imbrex

int main(int argc, char** argv) {
  return imbrex::bench::run_main("bench_grouped", [&] { return imbrex::run(argc, argv); });
}
