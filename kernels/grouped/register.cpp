// SPDX-License-Identifier: Apache-2.0
#include "grouped/group_case.h"
#include "imbrex/kernels/grouped/hopper_grouped.h"
#include "imbrex/kernels/grouped/weight_gradient.h"
#include "imbrex/kernels/parts/product_sizes.h"

namespace imbrex::kernels {
namespace {

std::vector<SizeOption> sizes() {
  return {{"m", 700, "rows of A and C, of all groups; masked: room of each"},
          {"n", 264, "columns of C"},
          {"k", 136, "columns of A"},
          {"groups", 7, "groups"},
          {"masked", 0, "1: each group has room for m rows, of which it uses some"},
          {"even", 0, "1: groups of equal size"}};
}

std::vector<SizeOption> scaled_sizes() {
  return {{"m", 700, "rows of A and C, of all groups"},
          {"n", 264, "columns of C"},
          {"k", 272, "columns of A"},
          {"groups", 7, "groups"},
          {"even", 0, "1: groups of equal size"}};
}

void run(Case& c, const auto& launch) {
  const int64_t n = c.size("n"), k = c.size("k"), groups = c.size("groups"), room = c.size("m");
  const bool masked = c.size("masked") != 0, even = c.size("even") != 0;
  const int64_t m = masked ? room * groups : room;
  std::vector<int64_t> first = group_boundaries(c, room, groups, even);
  std::vector<int64_t> given = first;
  if (masked) {
    given.resize(static_cast<size_t>(groups));
    for (int64_t g = 0; g < groups; ++g) given[g] = even ? room : first[g];
  }
  DeviceTensor rows = c.input(int32_tensor(given)), a = c.input(bfloat16, {m, k}),
               b = c.input(bfloat16, {groups, n, k}), out = c.output(bfloat16, {m, n});
  launch(m, n, k, groups, masked, room, rows, a, b, out);
  c.flop = 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  const std::vector<double> from_a = c.values(a), from_b = c.values(b);
  const auto element = [&](int64_t at) {
    const int64_t row = at / n, column = at % n;
    const int64_t group = masked ? row / room : group_of(first, row);
    if (masked && row % room >= given[group]) return std::nan("");  // as it was: poisoned
    double sum = 0;
    for (int64_t i = 0; i < k; ++i) sum += from_a[row * k + i] * from_b[(group * n + column) * k + i];
    return sum;
  };
  c.expect_samples(out, element, 20000);
}

/// float8 numbers, and a scale for each of their blocks.
void run_scaled(Case& c, Kernel<HopperGroupedMatmul<BlockScales, Convert>>& kernel) {
  const int64_t n = c.size("n"), k = c.size("k"), groups = c.size("groups"), m = c.size("m"),
                k_blocks = (k + 127) / 128, n_blocks = (n + 127) / 128;
  const std::vector<int64_t> first = group_boundaries(c, m, groups, c.size("even") != 0);
  DeviceTensor rows = c.input(int32_tensor(first)), a = c.input(float8_e4m3, {m, k}),
               b = c.input(float8_e4m3, {groups, n, k}), scale_a = c.input(float32, {k_blocks, m}),
               scale_b = c.input(float32, {groups, n_blocks, k_blocks}), out = c.output(bfloat16, {m, n});
  c.launch(kernel, ProductSizesArguments(m, n, k, 0, 132), groups, 128, false, 0, float8_e4m3, rows, a, b,
           out, scale_a, m, scale_b, bfloat16);
  c.flop = 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  const std::vector<double> from_a = c.values(a), from_b = c.values(b), by_a = c.values(scale_a),
                            by_b = c.values(scale_b);
  const auto element = [&](int64_t at) {
    const int64_t row = at / n, column = at % n, group = group_of(first, row);
    double sum = 0;
    for (int64_t i = 0; i < k; ++i)
      sum += from_a[row * k + i] * by_a[i / 128 * m + row] * from_b[(group * n + column) * k + i] *
             by_b[(group * n_blocks + column / 128) * k_blocks + i / 128];
    return sum;
  };
  c.expect_samples(out, element, 20000);
}

const KernelRegistration<HopperGroupedMatmul<>> registration{
    {"hopper_grouped_matmul", "C = A B[g]^T of every group of rows, persistent clusters with multicast",
     sizes()},
    [](Case& c, Kernel<HopperGroupedMatmul<>>& kernel) {
      run(c, [&](int64_t m, int64_t n, int64_t k, int64_t groups, bool masked, int64_t room,
                 const DeviceTensor& rows, const DeviceTensor& a, const DeviceTensor& b,
                 const DeviceTensor& out) {
        c.launch(kernel, ProductSizesArguments(m, n, k, 0, 132), groups, 128, masked, room, bfloat16, rows, a,
                 b, out);
      });
    }};

const KernelRegistration<HopperGroupedMatmul<BlockScales, Convert>> scaled{
    {"hopper_grouped_matmul_fp8",
     "the same of float8 operands with a scale per 1 x 128 of A and 128 x 128 of B", scaled_sizes()},
    [](Case& c, Kernel<HopperGroupedMatmul<BlockScales, Convert>>& kernel) { run_scaled(c, kernel); }};

const KernelRegistration<HopperWeightGradient<>> weight_gradient{
    {"hopper_weight_gradient",
     "C[g] = A[rows of g, :]^T B[rows of g, :] of every group of rows",
     {{"p", 136, "columns of A, rows of C"},
      {"n", 264, "columns of B and C"},
      {"rows", 700, "rows of A and B, of all groups"},
      {"groups", 7, "groups"},
      {"even", 0, "1: groups of equal size"}}},
    [](Case& c, Kernel<HopperWeightGradient<>>& kernel) {
      const int64_t m = c.size("p"), n = c.size("n"), groups = c.size("groups"), rows = c.size("rows");
      const std::vector<int64_t> first = group_boundaries(c, rows, groups, c.size("even") != 0);
      DeviceTensor first_row = c.input(int32_tensor(first)), a = c.input(bfloat16, {rows, m}),
                   b = c.input(bfloat16, {rows, n}), out = c.output(bfloat16, {groups, m, n});
      c.launch(kernel, rows, m, n, groups, 128, false, 0, bfloat16, first_row, a, b, out);
      c.flop = 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(rows);
      const std::vector<double> from_a = c.values(a), from_b = c.values(b);
      const auto element = [&](int64_t at) {
        const int64_t column = at % n, row = at / n % m, group = at / n / m;
        double sum = 0;
        for (int64_t i = first[group]; i < first[group + 1]; ++i)
          sum += from_a[i * m + row] * from_b[i * n + column];
        return sum;
      };
      c.expect_samples(out, element, 20000);
    }};

}  // namespace
}  // namespace imbrex::kernels
