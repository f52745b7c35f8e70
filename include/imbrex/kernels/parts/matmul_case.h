// SPDX-License-Identifier: Apache-2.0
// How `imbrex run`, `bench` and the tests try a matmul: what the kernels' registrations share.
#pragma once

#include "imbrex/kernels/parts/product_sizes.h"
#include "imbrex/runtime/registry.h"

namespace imbrex::kernels {

/// C[m, n] = A[m, k] * B[n, k]^T of random A and B, checked against a float64 reference. `dtype` is the first
/// of the kernel's arguments behind the sizes, but for Blackwell's kernels, which are of float16 alone.
template <class K>
void run_matmul(Case& c, Kernel<K>& kernel, DataType dtype) {
  const int64_t m = c.size("m"), n = c.size("n"), k = c.size("k");
  DeviceTensor a = c.input(dtype, {m, k}), b = c.input(dtype, {n, k}), out = c.output(dtype, {m, n});
  if constexpr (std::string_view(K::target) == "sm_100a")
    c.launch(kernel, m, n, k, a, b, out);
  else
    c.launch(kernel, product_sizes<K>(m, n, k), dtype, a, b, out);
  c.expect_matmul(out, a, b);
}

/// The same, in the type that the size option "bf16" says.
template <class K>
void run_half_matmul(Case& c, Kernel<K>& kernel) {
  run_matmul(c, kernel, c.size("bf16") ? bfloat16 : float16);
}

inline std::vector<SizeOption> matmul_sizes(int64_t m = 256, int64_t k = 256) {
  return {{"m", m, "rows of A and C"}, {"n", 256, "columns of C"}, {"k", k, "columns of A"}};
}
/// Those of run_half_matmul().
inline std::vector<SizeOption> half_matmul_sizes(int64_t m = 256) {
  std::vector<SizeOption> sizes = matmul_sizes(m);
  sizes.push_back({"bf16", 0, "1: bfloat16, 0: float16"});
  return sizes;
}

}  // namespace imbrex::kernels
