// SPDX-License-Identifier: Apache-2.0
// imbrex::matmul of quantised operands, int8 and float8_e4m3 with a factor per token and per output channel, beside that of
// bfloat16, on a CUDA GPU: verified by sampled elements, then timed in turns with a cold L2.
//
//   bench_quantised [--rounds 15] 16x8192x8192 4096x8192x8192 ...       M x N x K
#include <fmt/format.h>

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "contenders.h"
#include "imbrex/kernels/matmul.h"
#include "runtime/device/backend.h"
#include "runtime/measure/gpu_timer.h"

namespace imbrex {
namespace {

struct Quantised {
  DeviceTensor a, b, c;
  MatmulOptions options;
};

Quantised operands(const Device& device, DataType type, const bench::MatmulSize& size) {
  Quantised q{bench::repeated_random(device, type, {size.m, size.k}, 1),
              bench::repeated_random(device, type, {size.n, size.k}, 2),
              DeviceTensor::empty(device, bfloat16, {size.m, size.n}),
              {}};
  if (type.bits() == 8) {
    q.options.scale_a = DeviceTensor::random(device, float32, {size.m}, 3);
    q.options.scale_b = DeviceTensor::random(device, float32, {size.n}, 4);
  }
  return q;
}

/// Elements of c that are farther from the product in float64 than rounding explains, of 200.
int wrong_elements(const Quantised& q, const bench::MatmulSize& size) {
  const HostTensor c = q.c.to_host(), a = q.a.to_host(), b = q.b.to_host();
  const auto factors = [](const DeviceTensor& t) {
    return t.is_null() ? std::vector<double>() : t.to_host().to_doubles();
  };
  const std::vector<double> of_rows = factors(q.options.scale_a), of_columns = factors(q.options.scale_b);
  std::mt19937_64 random(7);
  int wrong = 0;
  for (int s = 0; s < 200; ++s) {
    const auto i = static_cast<int64_t>(random() % static_cast<uint64_t>(size.m)),
               j = static_cast<int64_t>(random() % static_cast<uint64_t>(size.n));
    double sum = 0, squares = 0;
    for (int64_t l = 0; l < size.k; ++l) {
      const double term = a.get(i * size.k + l) * b.get(j * size.k + l);
      sum += term;
      squares += term * term;
    }
    const double factor = of_rows.empty() ? 1 : of_rows[i] * of_columns[j];
    // The tensor cores cut sums of float8 to 13 bits at each 32 of k, of int8 never.
    const double sums = q.a.dtype() == float8_e4m3 ? static_cast<double>(size.k) / 32 / 8192 : 1.0 / 65536;
    wrong += !(std::abs(c.get(i * size.n + j) - factor * sum) <=
               std::abs(factor) * (std::abs(sum) / 256 + std::sqrt(squares) * sums));
  }
  return wrong;
}

int run(int argc, char** argv) {
  int rounds = 15;
  std::vector<bench::MatmulSize> sizes;
  for (int i = 1; i < argc; ++i)
    if (std::string(argv[i]) == "--rounds" && i + 1 < argc)
      rounds = std::stoi(argv[++i]);
    else
      sizes.push_back(bench::parse_size(argv[i]));
  const Device device = Device::cuda();
  runtime::GpuTimer timer(device);
  for (const bench::MatmulSize& size : sizes) {
    fmt::print("m = {}, n = {}, k = {}\n", size.m, size.n, size.k);
    std::vector<bench::Contender> contenders;
    std::vector<Quantised> all;
    for (const DataType type : {DataType(bfloat16), DataType(float8_e4m3), DataType(int8)})
      all.push_back(operands(device, type, size));
    for (const Quantised& q : all) {
      matmul(q.a, q.b, q.c, q.options);
      if (const int wrong = wrong_elements(q, size); wrong != 0)
        fmt::print("  {}: {} of 200 elements are wrong\n", q.a.dtype().name(), wrong);
      contenders.push_back({std::string(q.a.dtype().name()), [q] { matmul(q.a, q.b, q.c, q.options); }});
    }
    bench::measure(timer, contenders, size.flops(), rounds);
  }
  return 0;
}

}  // namespace
}  // namespace imbrex

int main(int argc, char** argv) {
  return imbrex::bench::run_main("bench_quantised", [&] { return imbrex::run(argc, argv); });
}
