// SPDX-License-Identifier: Apache-2.0
#include "grouped/group_case.h"
#include "imbrex/kernels/grouped/hopper_grouped.h"

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

const KernelRegistration<HopperGroupedMatmul<>> registration{
    {"hopper_grouped_matmul", "C = A B[g]^T of every group of rows, persistent clusters with multicast",
     sizes()},
    [](Case& c, Kernel<HopperGroupedMatmul<>>& kernel) {
      run(c, [&](int64_t m, int64_t n, int64_t k, int64_t groups, bool masked, int64_t room,
                 const DeviceTensor& rows, const DeviceTensor& a, const DeviceTensor& b,
                 const DeviceTensor& out) {
        c.launch(kernel, m, n, k, groups, 128, masked, room, bfloat16, rows, a, b, out);
      });
    }};

}  // namespace
}  // namespace imbrex::kernels
