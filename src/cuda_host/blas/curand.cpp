// SPDX-License-Identifier: Apache-2.0
// cuRAND's pseudorandom generators, computed by the host: programs that fill their inputs with random numbers get them. The
// numbers are of the right distribution and depend on seed and offset alone; they are not those of any generator of cuRAND.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <limits>
#include <mutex>
#include <numbers>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "cuda_host/abi/driver_functions.h"

extern "C" void imbrexNoteStandIn(const char* function);

namespace {

/// curandStatus_t.
enum Status : int {
  kSuccess = 0,
  kNotInitialized = 101,
  kTypeError = 103,
  kOutOfRange = 104,
  kLengthNotMultiple = 105,
  kLaunchFailure = 201,
  kInternalError = 999
};
constexpr int kFirstPseudo = 100, kFirstQuasi = 200;  // curandRngType_t

/// curandGenerator_t.
struct Generator {
  bool on_host = false;
  CUstream stream = nullptr;
  uint64_t seed = 0, next = 0;  // number `next` of the seed's sequence comes next
};

Status refuse(const char* function, const char* what) {
  static std::mutex mutex;
  static std::set<std::string> told;
  const std::lock_guard lock(mutex);
  if (told.insert(std::string(function) + what).second)
    std::fprintf(stderr, "imbrex: %s: the stand-in for cuRAND does not have this: %s\n", function, what);
  return kInternalError;
}

/// 64 random bits for every number of a seed's sequence: the finaliser of SplitMix64, twice.
uint64_t bits(uint64_t seed, uint64_t index) {
  uint64_t x = seed;
  for (const uint64_t step : {index, uint64_t{0x9E3779B97F4A7C15}}) {
    x += step * 0x9E3779B97F4A7C15 + 0xD1B54A32D192ED03;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
    x ^= x >> 31;
  }
  return x;
}
/// In (0, 1], as cuRAND's.
template <class T>
T uniform(uint64_t random) {
  constexpr int kDigits = std::numeric_limits<T>::digits;
  return std::ldexp(static_cast<T>((random >> (64 - kDigits)) + 1), -kDigits);
}
/// By Box and Muller, a pair of numbers from a pair.
double normal(uint64_t seed, uint64_t index) {
  const double radius = std::sqrt(-2 * std::log(uniform<double>(bits(seed, index & ~uint64_t{1}))));
  const double angle = 2 * std::numbers::pi * uniform<double>(bits(seed, index | 1));
  return radius * ((index & 1) == 0 ? std::cos(angle) : std::sin(angle));
}
/// What the standard library's distributions draw from, for one number of the sequence.
struct Engine {
  using result_type = uint64_t;
  uint64_t seed, at = 0;
  static constexpr result_type min() { return 0; }
  static constexpr result_type max() { return ~result_type{0}; }
  result_type operator()() { return bits(seed, at++); }
};

/// `value(index)` for the next `count` numbers, to where they are wanted.
template <class T, class Value>
Status fill(const char* function, Generator* generator, T* to, size_t count, Value&& value) {
  if (generator == nullptr) return kNotInitialized;
  std::vector<T> numbers(count);
  for (T& number : numbers) number = static_cast<T>(value(generator->next++));
  if (count == 0) return kSuccess;
  if (generator->on_host) {
    std::memcpy(to, numbers.data(), count * sizeof(T));
    return kSuccess;
  }
  int capturing = 0;
  if (generator->stream != nullptr && cuStreamIsCapturing(generator->stream, &capturing) == CUDA_SUCCESS &&
      capturing != 0)
    return refuse(function, "numbers while a stream is captured");
  if (cuMemcpyHtoDAsync_v2(reinterpret_cast<CUdeviceptr>(to), numbers.data(), count * sizeof(T),
                           generator->stream) != CUDA_SUCCESS)
    return kLaunchFailure;
  imbrexNoteStandIn(function);
  return kSuccess;
}

Status create(const char* function, Generator** generator, int type, bool on_host) {
  if (generator == nullptr) return kNotInitialized;
  if (type >= kFirstQuasi) return refuse(function, "quasirandom generators");
  if (type < kFirstPseudo) return kTypeError;
  *generator = new Generator{.on_host = on_host};
  return kSuccess;
}

}  // namespace

#define RAND_API extern "C" __attribute__((visibility("default"))) Status

RAND_API curandCreateGenerator(Generator** generator, int type) {
  return create("curandCreateGenerator", generator, type, false);
}
RAND_API curandCreateGeneratorHost(Generator** generator, int type) {
  return create("curandCreateGeneratorHost", generator, type, true);
}
RAND_API curandDestroyGenerator(Generator* generator) {
  if (generator == nullptr) return kNotInitialized;
  delete generator;
  return kSuccess;
}
RAND_API curandGetVersion(int* version) {
  *version = 10000;
  return kSuccess;
}
RAND_API curandGetProperty(int which, int* value) {
  *value = which == 0 ? 10 : 0;
  return kSuccess;
}
RAND_API curandSetStream(Generator* generator, CUstream stream) {
  if (generator == nullptr) return kNotInitialized;
  generator->stream = stream;
  return kSuccess;
}
RAND_API curandSetPseudoRandomGeneratorSeed(Generator* generator, unsigned long long seed) {
  if (generator == nullptr) return kNotInitialized;
  generator->seed = seed;
  generator->next = 0;
  return kSuccess;
}
RAND_API curandSetGeneratorOffset(Generator* generator, unsigned long long offset) {
  if (generator == nullptr) return kNotInitialized;
  generator->next = offset;
  return kSuccess;
}
// The order is of the numbers of cuRAND's own generators, and their tables need no set-up here.
RAND_API curandSetGeneratorOrdering(Generator* generator, int) {
  return generator == nullptr ? kNotInitialized : kSuccess;
}
RAND_API curandGenerateSeeds(Generator* generator) {
  return generator == nullptr ? kNotInitialized : kSuccess;
}

RAND_API curandGenerate(Generator* g, unsigned* to, size_t count) {
  return fill("curandGenerate", g, to, count, [&](uint64_t i) { return bits(g->seed, i) >> 32; });
}
RAND_API curandGenerateLongLong(Generator*, unsigned long long*, size_t) {
  return kTypeError;  // of quasirandom generators of 64 bits alone
}
RAND_API curandGenerateUniform(Generator* g, float* to, size_t count) {
  return fill("curandGenerateUniform", g, to, count,
              [&](uint64_t i) { return uniform<float>(bits(g->seed, i)); });
}
RAND_API curandGenerateUniformDouble(Generator* g, double* to, size_t count) {
  return fill("curandGenerateUniformDouble", g, to, count,
              [&](uint64_t i) { return uniform<double>(bits(g->seed, i)); });
}
#define NORMAL(function, type, of)                                                                          \
  RAND_API function(Generator* g, type* to, size_t count, type mean, type deviation) {                      \
    if (count % 2 != 0) return kLengthNotMultiple;                                                          \
    return fill(#function, g, to, count, [&](uint64_t i) {                                                  \
      const double value = static_cast<double>(mean) + static_cast<double>(deviation) * normal(g->seed, i); \
      return of;                                                                                            \
    });                                                                                                     \
  }
NORMAL(curandGenerateNormal, float, value)
NORMAL(curandGenerateNormalDouble, double, value)
NORMAL(curandGenerateLogNormal, float, std::exp(value))
NORMAL(curandGenerateLogNormalDouble, double, std::exp(value))
#undef NORMAL
RAND_API curandGeneratePoisson(Generator* g, unsigned* to, size_t count, double mean) {
  if (!(mean > 0) || mean > 4e5) return kOutOfRange;
  std::poisson_distribution<unsigned> poisson(mean);
  return fill("curandGeneratePoisson", g, to, count, [&](uint64_t i) {
    Engine engine{bits(g->seed, i)};
    poisson.reset();
    return poisson(engine);
  });
}

#define MISSING(symbol) \
  RAND_API symbol() { return refuse(#symbol, "this function"); }
MISSING(curandCreatePoissonDistribution)
MISSING(curandDestroyDistribution)
MISSING(curandGeneratePoissonMethod)
MISSING(curandGetDirectionVectors32)
MISSING(curandGetDirectionVectors64)
MISSING(curandGetScrambleConstants32)
MISSING(curandGetScrambleConstants64)
MISSING(curandSetQuasiRandomGeneratorDimensions)
#undef MISSING
