// SPDX-License-Identifier: Apache-2.0
#include "blackwell_matmul/matmul_v0.h"
#include "blackwell_matmul/matmul_v1.h"
#include "blackwell_matmul/matmul_v2.h"
#include "blackwell_matmul/matmul_v3.h"
#include "blackwell_matmul/matmul_v4.h"
#include "blackwell_matmul/matmul_v5.h"
#include "blackwell_matmul/matmul_v6.h"
#include "imbrex/runtime/registry.h"

namespace imbrex::kernels {
namespace {

/// C[m, n] = A[m, k] * B[n, k]^T in float16.
template <class K>
void run_matmul(Case& c, Kernel<K>& kernel) {
  const int64_t m = c.size("m"), n = c.size("n"), k = c.size("k");
  DeviceTensor a = c.input(float16, {m, k}), b = c.input(float16, {n, k}), out = c.output(float16, {m, n});
  c.launch(kernel, m, n, k, a, b, out);
  c.expect_matmul(out, a, b);
}

const std::vector<SizeOption> kSizes{
    {"m", 256, "rows of A and C"}, {"n", 256, "columns of C"}, {"k", 256, "columns of A"}};

const KernelRegistration<BlackwellMatmulV0> v0{
    {"blackwell_matmul_v0", "C = A B^T: cp.async loads, tcgen05 into tensor memory, one mbarrier", kSizes},
    run_matmul<BlackwellMatmulV0>};

const KernelRegistration<BlackwellMatmulV1> v1{
    {"blackwell_matmul_v1", "TMA loads and stores, one stage", kSizes}, run_matmul<BlackwellMatmulV1>};

const KernelRegistration<BlackwellMatmulV2<>> v2{
    {"blackwell_matmul_v2", "a ring of stages: loads overlap products", kSizes},
    run_matmul<BlackwellMatmulV2<>>};

const KernelRegistration<BlackwellMatmulV3<>> v3{
    {"blackwell_matmul_v3", "one warp loads, one multiplies", kSizes}, run_matmul<BlackwellMatmulV3<>>};

const KernelRegistration<BlackwellMatmulV4<>> v4{
    {"blackwell_matmul_v4", "tiles in an order kind to the L2 cache; Pipeline", kSizes},
    run_matmul<BlackwellMatmulV4<>>};

const KernelRegistration<BlackwellMatmulV5<>> v5{
    {"blackwell_matmul_v5", "persistent CTAs by cluster launch control, overlapped epilogues", kSizes},
    run_matmul<BlackwellMatmulV5<>>};

const KernelRegistration<BlackwellMatmulV6<>> v6{
    {"blackwell_matmul_v6", "pairs of CTAs multiply together", kSizes}, run_matmul<BlackwellMatmulV6<>>};

}  // namespace
}  // namespace imbrex::kernels
