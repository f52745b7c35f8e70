// SPDX-License-Identifier: Apache-2.0
#include "ampere_matmul/matmul_v0.h"
#include "ampere_matmul/matmul_v1.h"
#include "ampere_matmul/matmul_v2.h"
#include "ampere_matmul/matmul_v3.h"
#include "ampere_matmul/matmul_v4.h"
#include "imbrex/runtime/registry.h"

namespace imbrex::kernels {
namespace {

/// C[m, n] = A[m, k] * B[n, k]^T in `dtype`.
template <class K>
auto run_matmul(DataType dtype) {
  return [dtype](Case& c, Kernel<K>& kernel) {
    const int64_t m = c.size("m"), n = c.size("n"), k = c.size("k");
    DeviceTensor a = c.input(dtype, {m, k}), b = c.input(dtype, {n, k}), out = c.output(dtype, {m, n});
    c.launch(kernel, m, n, k, dtype, a, b, out);
    c.expect_matmul(out, a, b);
  };
}

std::vector<SizeOption> sizes(int64_t k) {
  return {{"m", 256, "rows of A and C"}, {"n", 256, "columns of C"}, {"k", k, "columns of A"}};
}

/// Registers a step in both types.
template <class K>
struct Registration {
  Registration(const std::string& name, const std::string& summary, int64_t k = 256)
      : half({name, summary, sizes(k)}, run_matmul<K>(float16)),
        brain({name + "_bf16", summary + " (bfloat16)", sizes(k)}, run_matmul<K>(bfloat16)) {}

  KernelRegistration<K> half, brain;
};

const Registration<AmpereMatmulV0> v0("ampere_matmul_v0", "C = A B^T: one thread per element");
const Registration<AmpereMatmulV1> v1("ampere_matmul_v1", "tiles in shared memory, sums in registers");
const Registration<AmpereMatmulV2> v2("ampere_matmul_v2", "tensor cores: ldmatrix and mma.sync");
const Registration<AmpereMatmulV3> v3("ampere_matmul_v3", "a ring of stages filled by cp.async");
const Registration<AmpereMatmulV4<>> v4("ampere_matmul_v4", "fragments loaded ahead, tile order, tuned tiles",
                                        512);  // with 4 or 5 blocks of k its largest tiles spill

}  // namespace
}  // namespace imbrex::kernels
