// SPDX-License-Identifier: Apache-2.0
// Two kernels over columns of a matrix, of any size: a weight for each column multiplies it; and bfloat16 becomes
// float8_e4m3 with a factor for each 128 rows of a column, as products along the rows want it.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <utility>

#include "imbrex/imbrex.h"

using namespace imbrex;

namespace {

/// y = x * weights, float32.
struct ScaleColumns {
  int rows = 1, columns = 256;
  static auto space() {
    return Space<ScaleColumns>().choose<&ScaleColumns::rows>({1, 2, 4}).choose<&ScaleColumns::columns>(
        {256, 512, 1024});
  }

  void operator()(Int32 m, Int32 n, Ptr<float32> x_ptr, Ptr<float32> weights_ptr, Ptr<float32> y_ptr) const {
    grid(cdiv(m, rows), cdiv(n, columns));
    warps(4);
    Int32 row = block_idx.x * rows, column = block_idx.y * columns;
    auto x = load_global(global_view(x_ptr, {m, n}), {row, column}, {rows, columns});
    auto weights = load_global(global_view(weights_ptr, {n}), {column}, {columns});
    store_global(global_view(y_ptr, {m, n}), x * weights, {row, column});
  }
};

constexpr double kLargest = 448, kLeast = 1e-4;  // of float8_e4m3; of the maxima that make the factors

/// y = x / factors, factors [ceil(m / 128), n]: the largest magnitude of the rows over that of float8_e4m3.
struct QuantiseColumns {
  int columns = 64;
  static auto space() { return Space<QuantiseColumns>().choose<&QuantiseColumns::columns>({64, 32, 128}); }

  void operator()(Int32 m, Int32 n, Ptr<bfloat16> x_ptr, Ptr<float8_e4m3> y_ptr,
                  Ptr<float32> factors_ptr) const {
    constexpr int kRows = 128;
    grid(cdiv(m, kRows), cdiv(n, columns));
    warps(8);
    Int32 row = block_idx.x * kRows, column = block_idx.y * columns;
    auto x = load_global(global_view(x_ptr, {m, n}), {row, column}, {kRows, columns}).to(float32);
    auto largest = max(max(abs(x), {.axis = 0, .keep = true}), kLeast);
    store_global(global_view(factors_ptr, {cdiv(m, kRows), n}), largest / kLargest, {block_idx.x, column});
    store_global(global_view(y_ptr, {m, n}), (x * (kLargest / largest)).to(float8_e4m3), {row, column});
  }
};

int wrong_weighted(const Device& device, int64_t m, int64_t n) {
  const HostTensor x = HostTensor::random(float32, {m, n}, 1), weights = HostTensor::random(float32, {n}, 2);
  DeviceTensor y = DeviceTensor::empty(device, float32, {m, n});
  y.poison();
  Kernel<ScaleColumns>({}, device)(m, n, DeviceTensor::from_host(device, x),
                                   DeviceTensor::from_host(device, weights), y)
      .expect_clean();
  const HostTensor got = y.to_host();
  int wrong = 0;
  for (int64_t i = 0; i < m * n; ++i)
    wrong += got.get(i) != static_cast<float>(x.get(i)) * static_cast<float>(weights.get(i % n));
  return wrong;
}

int wrong_quantised(const Device& device, int64_t m, int64_t n) {
  const HostTensor x = HostTensor::random(bfloat16, {m, n}, 3, 5);
  DeviceTensor y = DeviceTensor::empty(device, float8_e4m3, {m, n}),
               factors = DeviceTensor::empty(device, float32, {(m + 127) / 128, n});
  y.poison();
  factors.poison();
  Kernel<QuantiseColumns>({}, device)(m, n, DeviceTensor::from_host(device, x), y, factors).expect_clean();
  const HostTensor got = y.to_host(), got_factors = factors.to_host();
  int wrong = 0;
  for (int64_t first = 0; first < m; first += 128)
    for (int64_t j = 0; j < n; ++j) {
      double largest = kLeast;
      for (int64_t i = first; i < std::min(first + 128, m); ++i)
        largest = std::max(largest, std::abs(x.get(i * n + j)));
      const double factor = largest / kLargest, stored = got_factors.get(first / 128 * n + j);
      wrong += !(std::abs(stored - factor) <= 1e-6 * factor);
      for (int64_t i = first; i < std::min(first + 128, m);
           ++i)  // to half of the last place, or of the smallest number
        wrong += !(std::abs(got.get(i * n + j) * factor - x.get(i * n + j)) <=
                   std::max(std::abs(x.get(i * n + j)) / 16, factor / 1024) * 1.0001);
    }
  return wrong;
}

}  // namespace

int main() {
  const Device device = Device::open("auto", "sm_90a");
  int wrong = 0;
  for (const auto& [m, n] : {std::pair<int64_t, int64_t>{24, 4096}, {300, 200}, {1, 7}}) {
    wrong += wrong_weighted(device, m, n) + wrong_quantised(device, m, n);
    std::printf("%lld x %lld on %s: %d wrong so far\n", static_cast<long long>(m), static_cast<long long>(n),
                device.name().c_str(), wrong);
  }
  return wrong != 0;
}
