// SPDX-License-Identifier: Apache-2.0
#include "imbrex/kernels/grouped_matmul.h"

#include <algorithm>
#include <cmath>

#include "imbrex/runtime/registry.h"

namespace imbrex::kernels {

namespace {

/// Where the groups begin: random, some of them empty.
std::vector<int64_t> boundaries(Case& c, int64_t m, int64_t groups) {
  const HostTensor chance = c.random(float64, {groups});
  std::vector<int64_t> first(static_cast<size_t>(groups) + 1, 0);
  for (int64_t g = 1; g < groups; ++g)
    first[g] = g % 5 == 2 ? first[g - 1] : static_cast<int64_t>(std::abs(chance.get(g)) * 1e6) % (m + 1);
  first.back() = m;
  std::sort(first.begin(), first.end());
  return first;
}

}  // namespace

static const KernelRegistration<GroupedMatmul> registration{
    {"grouped_matmul",
     "C = A B[g]^T of every group of rows, whose boundaries are in memory",
     {{"m", 600, "rows of A and C"},
      {"n", 200, "columns of C"},
      {"k", 136, "columns of A"},
      {"groups", 7, "groups"}}},
    [](Case& c, Kernel<GroupedMatmul>& kernel) {
      const int64_t m = c.size("m"), n = c.size("n"), k = c.size("k"), groups = c.size("groups");
      const std::vector<int64_t> first = boundaries(c, m, groups);
      HostTensor host(int32, {groups + 1});
      for (int64_t g = 0; g <= groups; ++g) host.set(g, static_cast<double>(first[g]));
      DeviceTensor first_row = c.input(host), a = c.input(float16, {m, k}),
                   b = c.input(float16, {groups, n, k}), out = c.output(float16, {m, n});
      c.launch(kernel, m, n, k, groups, float16, first_row, a, b, out);
      c.flop = 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
      const std::vector<double> from_a = c.values(a), from_b = c.values(b);
      const auto element = [&](int64_t at) {
        const int64_t row = at / n, column = at % n;
        const int64_t group = std::upper_bound(first.begin(), first.end(), row) - first.begin() - 1;
        double sum = 0;
        for (int64_t i = 0; i < k; ++i) sum += from_a[row * k + i] * from_b[(group * n + column) * k + i];
        return sum;
      };
      c.expect_samples(out, element, 20000);
    }};

}  // namespace imbrex::kernels
