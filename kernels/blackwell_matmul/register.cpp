// SPDX-License-Identifier: Apache-2.0
#include "imbrex/kernels/blackwell_matmul/matmul_v0.h"
#include "imbrex/kernels/blackwell_matmul/matmul_v1.h"
#include "imbrex/kernels/blackwell_matmul/matmul_v2.h"
#include "imbrex/kernels/blackwell_matmul/matmul_v3.h"
#include "imbrex/kernels/blackwell_matmul/matmul_v4.h"
#include "imbrex/kernels/blackwell_matmul/matmul_v5.h"
#include "imbrex/kernels/blackwell_matmul/matmul_v6.h"
#include "imbrex/kernels/parts/matmul_case.h"

namespace imbrex::kernels {
namespace {

template <class K>
void run(Case& c, Kernel<K>& kernel) {
  run_matmul(c, kernel, float16);
}

const KernelRegistration<BlackwellMatmulV0> v0{
    {"blackwell_matmul_v0", "C = A B^T: cp.async loads, tcgen05 into tensor memory, one mbarrier",
     matmul_sizes()},
    run<BlackwellMatmulV0>};

const KernelRegistration<BlackwellMatmulV1> v1{
    {"blackwell_matmul_v1", "TMA loads and stores, one stage", matmul_sizes()}, run<BlackwellMatmulV1>};

const KernelRegistration<BlackwellMatmulV2> v2{
    {"blackwell_matmul_v2", "a ring of stages: loads overlap products", matmul_sizes()},
    run<BlackwellMatmulV2>};

const KernelRegistration<BlackwellMatmulV3> v3{
    {"blackwell_matmul_v3", "warp specialisation: one warp loads, one multiplies", matmul_sizes()},
    run<BlackwellMatmulV3>};

const KernelRegistration<BlackwellMatmulV4> v4{
    {"blackwell_matmul_v4", "tile order for the L2 cache; Pipeline", matmul_sizes()}, run<BlackwellMatmulV4>};

const KernelRegistration<BlackwellMatmulV5> v5{
    {"blackwell_matmul_v5", "persistent CTAs by cluster launch control, overlapped epilogues",
     matmul_sizes()},
    run<BlackwellMatmulV5>};

const KernelRegistration<BlackwellMatmulV6<>> v6{
    {"blackwell_matmul_v6", "clusters of two CTAs multiply one tile together", matmul_sizes()},
    run<BlackwellMatmulV6<>>};

}  // namespace
}  // namespace imbrex::kernels
