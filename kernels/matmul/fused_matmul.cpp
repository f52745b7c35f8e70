// SPDX-License-Identifier: Apache-2.0
// Matmuls of the ladders with steps fused behind them, and before them: what epilogue.h is for, by name.
#include <cmath>
#include <numbers>

#include "imbrex/kernels/ampere_matmul/matmul_v4.h"
#include "imbrex/kernels/blackwell_matmul/matmul_v6.h"
#include "imbrex/kernels/hopper_matmul/matmul_h7.h"
#include "imbrex/kernels/matmul/ampere_fused_a.h"
#include "imbrex/kernels/matmul/blackwell_fused_a.h"
#include "imbrex/kernels/matmul/hopper_fused_a.h"
#include "imbrex/kernels/parts/matmul_case.h"

namespace imbrex::kernels {
namespace {

double gelu(double x) {
  return x / 2 * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
}

/// Launches with what the steps take; Blackwell's kernels have one type.
template <class K, class... Args>
void launch(Case& c, Kernel<K>& kernel, const DeviceTensor& a, const DeviceTensor& b, const DeviceTensor& out,
            const Args&... steps) {
  const int64_t m = a.shape()[0], n = b.shape()[0], k = a.shape()[1];
  if constexpr (std::string_view(K::target) == "sm_100a")
    c.launch(kernel, m, n, k, a, b, out, steps...);
  else
    c.launch(kernel, m, n, k, float16, a, b, out, steps...);
}

double dot(const std::vector<double>& a, const std::vector<double>& b, int64_t i, int64_t j, int64_t k) {
  double sum = 0;
  for (int64_t l = 0; l < k; ++l) sum += a[i * k + l] * b[j * k + l];
  return sum;
}

/// C[m, n] = gelu(A[m, k] * B[n, k]^T / 8 + bias[n]) in float16.
template <class K>
void run_bias_gelu(Case& c, Kernel<K>& kernel) {
  const int64_t m = c.size("m"), n = c.size("n"), k = c.size("k");
  DeviceTensor a = c.input(float16, {m, k}), b = c.input(float16, {n, k}), bias = c.input(float16, {n}),
               out = c.output(float16, {m, n});
  launch(c, kernel, a, b, out, 0.125f, float16, bias);
  const std::vector<double> x = c.values(a), y = c.values(b), z = c.values(bias);
  c.expect_samples(
      out, [&](int64_t i) { return gelu(0.125 * dot(x, y, i / n, i % n, k) + z[i % n]); }, 4096);
}

/// C[m, n] = (row[m] * A[m, k] * column[k]) * B[n, k]^T in float16, as behind a normalisation of A's rows.
template <class K>
void run_scaled_a(Case& c, Kernel<K>& kernel) {
  const int64_t m = c.size("m"), n = c.size("n"), k = c.size("k");
  DeviceTensor a = c.input(float16, {m, k}), b = c.input(float16, {n, k}), row = c.input(float32, {m}),
               column = c.input(float16, {k}), out = c.output(float16, {m, n});
  c.launch(kernel, m, n, k, float16, float16, a, b, out, float32, row, float16, column);
  const std::vector<double> x = c.values(a), y = c.values(b), r = c.values(row), s = c.values(column);
  std::vector<double> scaled;
  const auto element = [&](int64_t i) {
    if (scaled.empty()) {
      HostTensor rounded(float16, {m, k});  // as the tensor cores get it
      for (int64_t j = 0; j < m * k; ++j) rounded.set(j, x[j] * r[j / k] * s[j % k]);
      scaled = rounded.to_doubles();
    }
    return dot(scaled, y, i / n, i % n, k);
  };
  c.expect_samples(out, element, 4096);
}

template <template <class...> class K>
struct BiasGelu {
  using Fused = K<Scale, ColumnBias, Gelu>;
  explicit BiasGelu(const std::string& ladder)
      : registration({ladder + "_bias_gelu", "C = gelu(A B^T / 8 + bias)", matmul_sizes()},
                     run_bias_gelu<Fused>) {}
  KernelRegistration<Fused> registration;
};

const BiasGelu<AmpereMatmulV4> ampere("ampere_matmul_v4");
const BiasGelu<HopperMatmulH7> hopper("hopper_matmul_h7");
const BiasGelu<BlackwellMatmulV6> blackwell("blackwell_matmul_v6");

template <template <class...> class K>
struct ScaledA {
  using Fused = K<RowScale, ColumnScale>;
  explicit ScaledA(const std::string& ladder)
      : registration({ladder + "_fused_a", "C = (A scaled by rows and columns) B^T", matmul_sizes()},
                     run_scaled_a<Fused>) {}
  KernelRegistration<Fused> registration;
};

const ScaledA<AmpereMatmulFusedA> ampere_a("ampere_matmul");
const ScaledA<HopperMatmulFusedA> hopper_a("hopper_matmul");
const ScaledA<BlackwellMatmulFusedA> blackwell_a("blackwell_matmul");

}  // namespace
}  // namespace imbrex::kernels
