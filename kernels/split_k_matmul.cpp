// SPDX-License-Identifier: Apache-2.0
#include "imbrex/kernels/split_k_matmul.h"

#include "imbrex/kernels/parts/matmul_case.h"

namespace imbrex::kernels {

static const KernelRegistration<SplitKMatmul> registration{
    {"split_k_matmul", "C = A B^T, k split among CTAs that take turns",
     [] {
       std::vector<SizeOption> sizes = matmul_sizes(96, 1000);
       sizes.push_back({"bf16", 0, "1: bfloat16, 0: float16"});
       return sizes;
     }()},
    [](Case& c, Kernel<SplitKMatmul>& kernel) {
      const int64_t m = c.size("m"), n = c.size("n"), k = c.size("k");
      const DataType dtype = c.size("bf16") ? bfloat16 : float16;
      // Enough turns for every configuration's tiles.
      const int64_t tiles = cdiv(m, int64_t{16}) * cdiv(n, int64_t{64});
      DeviceTensor a = c.input(dtype, {m, k}), b = c.input(dtype, {n, k}), sums = c.output(float32, {m, n}),
                   turns = c.input(HostTensor(int32, {tiles})), out = c.output(dtype, {m, n});
      c.launch(kernel, m, n, k, dtype, a, b, sums, turns, out);
      c.expect(turns, [](std::span<double> zeros) {
        for (double& x : zeros) x = 0;
      });
      c.expect_matmul(out, a, b);
    }};

}  // namespace imbrex::kernels
