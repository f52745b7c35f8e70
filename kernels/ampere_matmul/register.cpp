// SPDX-License-Identifier: Apache-2.0
#include "imbrex/kernels/ampere_matmul/matmul_v0.h"
#include "imbrex/kernels/ampere_matmul/matmul_v1.h"
#include "imbrex/kernels/ampere_matmul/matmul_v2.h"
#include "imbrex/kernels/ampere_matmul/matmul_v3.h"
#include "imbrex/kernels/ampere_matmul/matmul_v4.h"
#include "imbrex/kernels/parts/matmul_case.h"

namespace imbrex::kernels {
namespace {

template <class K>
auto run_in(DataType dtype) {
  return [dtype](Case& c, Kernel<K>& kernel) { run_matmul(c, kernel, dtype); };
}

/// Registers a step in both types.
template <class K>
struct Registration {
  Registration(const std::string& name, const std::string& summary, int64_t k = 256)
      : half({name, summary, matmul_sizes(256, k)}, run_in<K>(float16)),
        brain({name + "_bf16", summary + " (bfloat16)", matmul_sizes(256, k)}, run_in<K>(bfloat16)) {}

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
