// SPDX-License-Identifier: Apache-2.0
// A layer of a neural network, C = gelu(A B^T + bias), by one kernel of the kernel library, checked against float64.
#include <cmath>
#include <cstdio>
#include <vector>

#include "imbrex/imbrex.h"
#include "imbrex/kernels/matmul.h"

using namespace imbrex;

int main() {
  const int64_t m = 200, n = 264, k = 192;
  Device device = Device::open("auto", "sm_90a");
  // [layer]
  DeviceTensor a = DeviceTensor::random(device, bfloat16, {m, k}, 1),
               b = DeviceTensor::random(device, bfloat16, {n, k}, 2),
               bias = DeviceTensor::random(device, float32, {n}, 3),
               c = DeviceTensor::empty(device, bfloat16, {m, n});
  c.poison();  // an element that is not written is noticed
  matmul(a, b, c, {.bias = bias, .activation = Activation::kGeluErf}).expect_clean();
  // [layer]

  const std::vector<double> a_host = a.to_host().to_doubles(), b_host = b.to_host().to_doubles(),
                            bias_host = bias.to_host().to_doubles();
  std::vector<double> expected(static_cast<size_t>(m * n));
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) {
      double x = bias_host[j];
      for (int64_t l = 0; l < k; ++l) x += a_host[i * k + l] * b_host[j * k + l];
      expected[i * n + j] = x / 2 * (1 + std::erf(x / std::sqrt(2.0)));
    }
  const Comparison comparison = compare(c.to_host(), expected, default_tolerance(bfloat16));
  std::printf("%s: %s\n", device.name().c_str(), comparison.format().c_str());
  return comparison.passed ? 0 : 1;
}
