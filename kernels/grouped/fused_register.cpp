// SPDX-License-Identifier: Apache-2.0
// The kernels behind imbrex::gated_matmul and imbrex::quantised_matmul, for `imbrex run`, `bench` and the tests.
#include <algorithm>
#include <cmath>

#include "imbrex/kernels/grouped/few_rows.h"
#include "imbrex/kernels/grouped/hopper_grouped.h"
#include "imbrex/kernels/matmul/matmul_h8.h"
#include "imbrex/runtime/registry.h"

namespace imbrex::kernels {
namespace {

using Gated = HopperGroupedMatmul<OneGroup, GatedBy>;
using Quantised = HopperGroupedMatmul<OneGroup, QuantiseBlocks, Convert>;
using GatedInTurns = HopperMatmulH8<GatedBy>;
using GatedFewRows = HopperFewRows<GatedBy>;
using QuantisedFewRows = HopperFewRows<QuantiseBlocks, Convert>;

std::vector<SizeOption> sizes(int64_t m) {
  return {{"m", m, "rows of A and C"}, {"n", 272, "columns of C"}, {"k", 136, "columns of A"}};
}

/// What is not read of one group.
DeviceTensor no_groups(Case& c) { return c.input(HostTensor(int32, {1})); }

double dot(std::span<const double> a, std::span<const double> b, int64_t i, int64_t j, int64_t k) {
  double sum = 0;
  for (int64_t l = 0; l < k; ++l) sum += a[i * k + l] * b[j * k + l];
  return sum;
}

/// `launch` gets the sizes, A, B, the other B and C.
void run_gated(Case& c, const auto& launch) {
  const int64_t m = c.size("m"), n = c.size("n"), k = c.size("k");
  DeviceTensor a = c.input(bfloat16, {m, k}), b = c.input(bfloat16, {n, k}), up = c.input(bfloat16, {n, k}),
               out = c.output(bfloat16, {m, n});
  launch(ProductSizesArguments(m, n, k, 0, 132), a, b, up, out);
  c.flop = 4.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  const std::vector<double> from_a = c.values(a), from_b = c.values(b), from_up = c.values(up);
  const auto element = [&](int64_t at) {
    const double gate = dot(from_a, from_b, at / n, at % n, k);
    return gate / (1 + std::exp(-gate)) * dot(from_a, from_up, at / n, at % n, k);
  };
  c.expect_samples(out, element, 20000);
}

/// `launch` gets the sizes, A, B, C and its scales.
void run_quantised(Case& c, const auto& launch) {
  const int64_t m = c.size("m"), n = c.size("n"), k = c.size("k");
  constexpr int64_t kBlock = QuantiseBlocks::kBlock, kSamples = 500;  // each takes a block of sums
  DeviceTensor a = c.input(bfloat16, {m, k}), b = c.input(bfloat16, {n, k}),
               out = c.output(float8_e4m3, {m, n}), scale = c.output(float32, {(n + kBlock - 1) / kBlock, m});
  launch(ProductSizesArguments(m, n, k, 0, 132), a, b, out, scale);
  c.flop = 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  const std::vector<double> from_a = c.values(a), from_b = c.values(b);
  const auto scale_of = [&](int64_t row, int64_t block) {
    double largest = 0;
    for (int64_t j = block * kBlock; j < std::min(n, (block + 1) * kBlock); ++j)
      largest = std::max(largest, std::abs(dot(from_a, from_b, row, j, k)));
    return largest > 0 ? largest / QuantiseBlocks::kLargest : 1;
  };
  c.expect_samples(
      scale, [&](int64_t at) { return scale_of(at % m, at / m); }, kSamples);
  const auto element = [&](int64_t at) {
    const int64_t row = at / n, column = at % n;
    return dot(from_a, from_b, row, column, k) / scale_of(row, column / kBlock);
  };
  c.expect_samples(out, element, kSamples);
}

const KernelRegistration<Gated> gated{
    {"hopper_gated_matmul", "C = silu(A B^T) * (A U^T), the products of SwiGLU in one kernel", sizes(200)},
    [](Case& c, Kernel<Gated>& kernel) {
      run_gated(c, [&](const auto& sizes, const auto& a, const auto& b, const auto& up, const auto& out) {
        c.launch(kernel, sizes, 1, 1, false, 0, bfloat16, no_groups(c), a, b, out, true, Activation::kSilu,
                 up);
      });
    }};

const KernelRegistration<GatedInTurns> gated_in_turns{
    {"hopper_gated_in_turns", "the same for many rows of A: consumers take turns, a tile each", sizes(200)},
    [](Case& c, Kernel<GatedInTurns>& kernel) {
      run_gated(c, [&](const auto& sizes, const auto& a, const auto& b, const auto& up, const auto& out) {
        c.launch(kernel, sizes, bfloat16, a, b, out, true, Activation::kSilu, up);
      });
    }};

const KernelRegistration<GatedFewRows> gated_few_rows{
    {"hopper_gated_few_rows", "the same for few rows of A: B and U give wgmma its rows", sizes(20)},
    [](Case& c, Kernel<GatedFewRows>& kernel) {
      run_gated(c, [&](const auto& sizes, const auto& a, const auto& b, const auto& up, const auto& out) {
        c.launch(kernel, sizes, bfloat16, a, b, out, true, Activation::kSilu, up);
      });
    }};

const KernelRegistration<Quantised> quantised{
    {"hopper_quantised_matmul", "C = A B^T in float8, with a scale for each row of each 128 columns",
     sizes(200)},
    [](Case& c, Kernel<Quantised>& kernel) {
      run_quantised(c, [&](const auto& sizes, const auto& a, const auto& b, const auto& out,
                           const DeviceTensor& scale) {
        c.launch(kernel, sizes, 1, 1, false, 0, bfloat16, no_groups(c), a, b, out, true, scale,
                 scale.shape()[1], float8_e4m3);
      });
    }};

const KernelRegistration<QuantisedFewRows> quantised_few_rows{
    {"hopper_quantised_few_rows", "the same for few rows of A: B gives wgmma its rows", sizes(20)},
    [](Case& c, Kernel<QuantisedFewRows>& kernel) {
      run_quantised(c, [&](const auto& sizes, const auto& a, const auto& b, const auto& out,
                           const DeviceTensor& scale) {
        c.launch(kernel, sizes, bfloat16, a, b, out, true, scale, scale.shape()[1], float8_e4m3);
      });
    }};

}  // namespace
}  // namespace imbrex::kernels
