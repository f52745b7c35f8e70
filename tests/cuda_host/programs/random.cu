// SPDX-License-Identifier: Apache-2.0
// Random numbers by cuRAND's host functions: their moments, and that seed and offset decide them.
#include <curand.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "check.h"

#define RAND(call) EXPECT((call) == CURAND_STATUS_SUCCESS)

struct Moments {
  double mean = 0, variance = 0, least = INFINITY, most = -INFINITY;
};
template <class T>
Moments moments(const std::vector<T>& numbers) {
  Moments m;
  for (const T x : numbers) {
    m.mean += double(x) / double(numbers.size());
    m.least = std::min(m.least, double(x));
    m.most = std::max(m.most, double(x));
  }
  for (const T x : numbers) m.variance += (double(x) - m.mean) * (double(x) - m.mean) / double(numbers.size());
  return m;
}
template <class T, class Generate>
std::vector<T> generated(size_t count, Generate&& generate) {
  T* device = nullptr;
  CHECK(cudaMalloc(&device, count * sizeof(T)));
  RAND(generate(device));
  std::vector<T> host(count);
  CHECK(cudaMemcpy(host.data(), device, count * sizeof(T), cudaMemcpyDeviceToHost));
  CHECK(cudaFree(device));
  return host;
}

int main() {
  const size_t n = 100000;
  curandGenerator_t generator;
  RAND(curandCreateGenerator(&generator, CURAND_RNG_PSEUDO_DEFAULT));
  RAND(curandSetPseudoRandomGeneratorSeed(generator, 20261123));
  const auto first = generated<float>(n, [&](float* to) { return curandGenerateUniform(generator, to, n); });
  Moments m = moments(first);
  EXPECT(m.least > 0 && m.most <= 1 && std::fabs(m.mean - 0.5) < 0.005 && std::fabs(m.variance - 1.0 / 12) < 0.002);
  // Goes on behind it; from the same place again with the same seed and offset.
  const auto second = generated<float>(n, [&](float* to) { return curandGenerateUniform(generator, to, n); });
  EXPECT(first != second);
  RAND(curandSetPseudoRandomGeneratorSeed(generator, 20261123));
  RAND(curandSetGeneratorOffset(generator, n));
  EXPECT(second == generated<float>(n, [&](float* to) { return curandGenerateUniform(generator, to, n); }));
  RAND(curandSetPseudoRandomGeneratorSeed(generator, 7));
  EXPECT(first != generated<float>(n, [&](float* to) { return curandGenerateUniform(generator, to, n); }));

  m = moments(generated<double>(n, [&](double* to) { return curandGenerateNormalDouble(generator, to, n, 3, 2); }));
  EXPECT(std::fabs(m.mean - 3) < 0.03 && std::fabs(m.variance - 4) < 0.1);
  m = moments(generated<float>(n, [&](float* to) { return curandGenerateLogNormal(generator, to, n, 0, 0.5f); }));
  EXPECT(std::fabs(m.mean - std::exp(0.125)) < 0.01 && m.least > 0);
  m = moments(generated<unsigned>(n, [&](unsigned* to) { return curandGeneratePoisson(generator, to, n, 6.5); }));
  EXPECT(std::fabs(m.mean - 6.5) < 0.05 && std::fabs(m.variance - 6.5) < 0.15);
  m = moments(generated<unsigned>(n, [&](unsigned* to) { return curandGenerate(generator, to, n); }));
  EXPECT(std::fabs(m.mean / 4294967296.0 - 0.5) < 0.005);
  float* device = nullptr;
  CHECK(cudaMalloc(&device, 64));
  EXPECT(curandGenerateNormal(generator, device, 3, 0, 1) == CURAND_STATUS_LENGTH_NOT_MULTIPLE);
  curandGenerator_t quasi;
  EXPECT(curandCreateGenerator(&quasi, CURAND_RNG_QUASI_SOBOL32) != CURAND_STATUS_SUCCESS);
  RAND(curandDestroyGenerator(generator));
}
