// SPDX-License-Identifier: Apache-2.0
// The matrix kernels of cuda/ as nvcc 13.0 compiled them: mma.sync behind cp.async, wgmma and tcgen05 behind
// tensor maps.
#include "foreign_testing.h"

namespace imbrex::vgpu {
namespace {

class CudaMatmul : public ForeignSeeds {};
INSTANTIATE_TEST_SUITE_P(Seeds, CudaMatmul, testing::Values(0, 1, 2));

struct Size {
  int m, n, k;
};

/// a[m, k] times b, given as [k, n] or, transposed, as [n, k].
std::vector<double> product(const std::vector<Half>& a, const std::vector<Half>& b, Size size,
                            bool transposed) {
  const auto [m, n, k] = size;
  std::vector<double> result;
  for (int i = 0; i < m; ++i)
    for (int j = 0; j < n; ++j) {
      double sum = 0;
      for (int l = 0; l < k; ++l)
        sum += value(a[static_cast<size_t>(i * k + l)]) *
               value(b[static_cast<size_t>(transposed ? j * k + l : l * n + j)]);
      result.push_back(sum);
    }
  return result;
}

TEST_P(CudaMatmul, MmaSyncBehindCpAsync) {
  for (const Size size : {Size{64, 64, 32}, Size{70, 72, 40}, Size{1, 8, 8}, Size{130, 64, 200}}) {
    const auto [m, n, k] = size;
    Foreign kernel("cuda_matmul_mma.sm_80", seed());
    const auto a = kernel.uniform<Half>(m * k), b = kernel.uniform<Half>(k * n);
    const DeviceAddress c = kernel.output(m * n * 4);
    kernel.run({.grid = {(n + 63) / 64, (m + 63) / 64}, .block = {128}}, kernel.input(a), kernel.input(b), c,
               m, n, k);
    expect_close(kernel.read<float>(c, m * n), product(a, b, size, false), 1e-5, k * 1e-6);
  }
}

struct Generation {
  std::string name;
  int threads, shared_bytes;
};

TEST_P(CudaMatmul, TensorCoresBehindTensorMaps) {
  for (const Generation& g : {Generation{"matmul_wgmma.sm_90a", 384, 4 * 32768 + 2048},
                              Generation{"matmul_tcgen05.sm_100a", 128, 3 * 32768 + 2048}})
    for (const Size size : {Size{128, 128, 64}, Size{150, 131, 328}, Size{3, 9, 8}}) {
      const auto [m, n, k] = size;
      Foreign kernel("cuda_" + g.name, seed());
      kernel.function().set_max_dynamic_shared(g.shared_bytes);
      const auto a = kernel.uniform<Half>(m * k), b = kernel.uniform<Half>(n * k);
      const DeviceAddress c = kernel.output(m * n * 4);
      const TensorMap map_a = matrix_map<Half>(kernel.input(a), m, k, 128),
                      map_b = matrix_map<Half>(kernel.input(b), n, k, 128);
      kernel.run({.grid = {(n + 127) / 128, (m + 127) / 128},
                  .block = {g.threads},
                  .dynamic_shared_bytes = g.shared_bytes},
                 map_a, map_b, c, m, n, k);
      expect_close(kernel.read<float>(c, m * n), product(a, b, size, true), 1e-5, k * 1e-6);
    }
}

TEST_P(CudaMatmul, AttentionWithWmmaFragments) {
  for (const int length : {16, 37}) {
    Foreign kernel("cuda_attention_wmma.sm_80", seed());
    const int heads = 2, depth = 64, count = heads * length * depth;
    const auto q = kernel.uniform<Half>(count, -2, 2), k = kernel.uniform<Half>(count, -2, 2),
               v = kernel.uniform<Half>(count, -2, 2);
    const DeviceAddress out = kernel.output(count * 2);
    kernel.run({.grid = {(length + 15) / 16, heads}, .block = {32}}, kernel.input(q), kernel.input(k),
               kernel.input(v), out, length);
    std::vector<double> expected;
    for (int head = 0; head < heads; ++head)
      for (int row = 0; row < length; ++row) {
        const auto at = [&](const std::vector<Half>& x, int r, int d) {
          return value(x[static_cast<size_t>((head * length + r) * depth + d)]);
        };
        std::vector<double> sums(static_cast<size_t>(depth));
        double total = 0;
        for (int key = 0; key < length; ++key) {
          double score = 0;
          for (int d = 0; d < depth; ++d) score += at(q, row, d) * at(k, key, d);
          const double weight = std::exp(score / 8);
          total += weight;
          for (int d = 0; d < depth; ++d) sums[static_cast<size_t>(d)] += weight * at(v, key, d);
        }
        for (const double sum : sums) expected.push_back(sum / total);
      }
    expect_close(kernel.read<Half>(out, count), expected, 0x1p-10, 2 * 0x1p-10);
  }
}

}  // namespace
}  // namespace imbrex::vgpu
