// SPDX-License-Identifier: Apache-2.0
// What the host waits in the first call of imbrex::matmul for each of many shapes, in a fresh process: random shapes one
// after the other, three times.
//
//   bench_first_calls [SEED] [SHAPES]
//
// What the first pass meets depends on the environment: IMBREX_CODE_DIR is a folder that `imbrex cache fill` filled,
// IMBREX_CACHE_DIR what earlier processes left, IMBREX_PTXAS=none a machine without ptxas. The time includes everything
// but the product itself, which runs on; each begins when the GPU is idle.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "contenders.h"
#include "imbrex/kernels/matmul.h"

namespace imbrex {
namespace {

struct Product {
  int64_t m, n, k;
  DeviceTensor a, b, c;
};

double microseconds(const auto& action) {
  const auto begin = std::chrono::steady_clock::now();
  action();
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count();
}

int run(int argc, char** argv) {
  std::mt19937_64 random(argc > 1 ? std::stoull(argv[1]) : 1);
  const int shapes = argc > 2 ? std::stoi(argv[2]) : 60;
  const auto between = [&](double low, double high) {
    const double at = static_cast<double>(random() >> 11) / static_cast<double>(uint64_t{1} << 53);
    return static_cast<int64_t>(low * std::pow(high / low, at));
  };
  const Device device = Device::cuda();
  std::vector<Product> products;
  for (int i = 0; i < shapes; ++i) {
    const int64_t m = between(1, 8192), n = between(16, 1024) * 8, k = between(8, 1024) * 8;
    products.push_back({m, n, k, DeviceTensor::random(device, bfloat16, {m, k}, 1),
                        DeviceTensor::random(device, bfloat16, {n, k}, 2),
                        DeviceTensor::empty(device, bfloat16, {m, n})});
  }
  for (int pass = 1; pass <= 3; ++pass) {
    std::vector<double> times;
    for (const Product& p : products) {
      device.synchronize();
      times.push_back(microseconds([&] { matmul(p.a, p.b, p.c); }));
      if (pass == 1)
        fmt::print("{:9.1f} us  {}x{}x{}  {}\n", times.back(), p.m, p.n, p.k,
                   matmul_choice(p.m, p.n, p.k, device.multiprocessors()));
    }
    std::sort(times.begin(), times.end());
    double sum = 0;
    for (const double time : times) sum += time;
    fmt::print("call {}: median {:.1f} us, mean {:.1f}, longest {:.1f}, {} of {} above 2 ms\n", pass,
               times[times.size() / 2], sum / shapes, times.back(),
               std::count_if(times.begin(), times.end(), [](double time) { return time > 2000; }), shapes);
  }
  device.synchronize();
  return 0;
}

}  // namespace
}  // namespace imbrex

int main(int argc, char** argv) {
  return imbrex::bench::run_main("bench_first_calls", [&] { return imbrex::run(argc, argv); });
}
