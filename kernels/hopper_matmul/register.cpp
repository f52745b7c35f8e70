// SPDX-License-Identifier: Apache-2.0
#include "hopper_matmul/matmul_h0.h"
#include "hopper_matmul/matmul_h1.h"
#include "hopper_matmul/matmul_h2.h"
#include "hopper_matmul/matmul_h3.h"
#include "hopper_matmul/matmul_h4.h"
#include "hopper_matmul/matmul_h5.h"
#include "hopper_matmul/matmul_h6.h"
#include "hopper_matmul/matmul_h7.h"
#include "imbrex/runtime/registry.h"
#include "matmul/matmul_h8.h"
#include "matmul/matmul_h9.h"
#include "matmul/matmul_skinny.h"

namespace imbrex::kernels {
namespace {

/// C[m, n] = A[m, k] * B[n, k]^T in float16, or bfloat16.
template <class K>
void run_matmul(Case& c, Kernel<K>& kernel) {
  const int64_t m = c.size("m"), n = c.size("n"), k = c.size("k");
  const DataType dtype = c.size("bf16") ? bfloat16 : float16;
  DeviceTensor a = c.input(dtype, {m, k}), b = c.input(dtype, {n, k}), out = c.output(dtype, {m, n});
  c.launch(kernel, m, n, k, dtype, a, b, out);
  c.expect_matmul(out, a, b);
}

const std::vector<SizeOption> kSizes{{"m", 256, "rows of A and C"},
                                     {"n", 256, "columns of C"},
                                     {"k", 256, "columns of A"},
                                     {"bf16", 0, "1: bfloat16, 0: float16"}};

const KernelRegistration<HopperMatmulH0> h0{
    {"hopper_matmul_h0", "C = A B^T: TMA loads, wgmma, one stage", kSizes}, run_matmul<HopperMatmulH0>};

const KernelRegistration<HopperMatmulH1> h1{{"hopper_matmul_h1", "a larger tile", kSizes},
                                            run_matmul<HopperMatmulH1>};

const KernelRegistration<HopperMatmulH2> h2{
    {"hopper_matmul_h2", "a ring of stages that a warp of its own fills", kSizes},
    run_matmul<HopperMatmulH2>};

const KernelRegistration<HopperMatmulH3> h3{{"hopper_matmul_h3", "two warp groups multiply", kSizes},
                                            run_matmul<HopperMatmulH3>};

const KernelRegistration<HopperMatmulH4> h4{
    {"hopper_matmul_h4", "persistent CTAs, one arrival a warp group, tiles in an order kind to the L2 cache",
     kSizes},
    run_matmul<HopperMatmulH4>};

const KernelRegistration<HopperMatmulH5<>> h5{
    {"hopper_matmul_h5", "pairs of CTAs share their loads, a product is always under way", kSizes},
    run_matmul<HopperMatmulH5<>>};

const KernelRegistration<HopperMatmulH6> h6{
    {"hopper_matmul_h6", "the result leaves through shared memory while the next tile is computed", kSizes},
    run_matmul<HopperMatmulH6>};

const KernelRegistration<HopperMatmulH7<>> h7{{"hopper_matmul_h7", "unrolled by the ring's stages", kSizes},
                                              run_matmul<HopperMatmulH7<>>};

const KernelRegistration<HopperMatmulH8<>> h8{
    {"hopper_matmul_h8", "any shape: the CTAs of a cluster divide k, rows of C begin anywhere", kSizes},
    run_matmul<HopperMatmulH8<>>};

const KernelRegistration<HopperMatmulH9<>> h9{
    {"hopper_matmul_h9", "two warp groups take turns: the steps of one run under the products of the other",
     kSizes},
    run_matmul<HopperMatmulH9<>>};

const KernelRegistration<HopperMatmulSkinny<>> skinny{
    {"hopper_matmul_skinny",
     "few rows of A: B streams through the tensor cores' rows",
     {{"m", 16, "rows of A and C"},
      {"n", 256, "columns of C"},
      {"k", 256, "columns of A"},
      {"bf16", 0, "1: bfloat16, 0: float16"}}},
    run_matmul<HopperMatmulSkinny<>>};

}  // namespace
}  // namespace imbrex::kernels
