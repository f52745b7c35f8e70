// SPDX-License-Identifier: Apache-2.0
#include "imbrex/kernels/hopper_matmul/matmul_h0.h"
#include "imbrex/kernels/hopper_matmul/matmul_h1.h"
#include "imbrex/kernels/hopper_matmul/matmul_h2.h"
#include "imbrex/kernels/hopper_matmul/matmul_h3.h"
#include "imbrex/kernels/hopper_matmul/matmul_h4.h"
#include "imbrex/kernels/hopper_matmul/matmul_h5.h"
#include "imbrex/kernels/hopper_matmul/matmul_h6.h"
#include "imbrex/kernels/hopper_matmul/matmul_h7.h"
#include "imbrex/kernels/parts/matmul_case.h"

namespace imbrex::kernels {
namespace {

const KernelRegistration<HopperMatmulH0> h0{
    {"hopper_matmul_h0", "C = A B^T: TMA loads, wgmma, one stage", half_matmul_sizes()},
    run_half_matmul<HopperMatmulH0>};

const KernelRegistration<HopperMatmulH1> h1{{"hopper_matmul_h1", "a larger tile", half_matmul_sizes()},
                                            run_half_matmul<HopperMatmulH1>};

const KernelRegistration<HopperMatmulH2> h2{
    {"hopper_matmul_h2", "a ring of stages, filled by a dedicated warp", half_matmul_sizes()},
    run_half_matmul<HopperMatmulH2>};

const KernelRegistration<HopperMatmulH3> h3{
    {"hopper_matmul_h3", "two warp groups multiply", half_matmul_sizes()}, run_half_matmul<HopperMatmulH3>};

const KernelRegistration<HopperMatmulH4> h4{
    {"hopper_matmul_h4", "persistent CTAs, one arrival per warp group, tile order for the L2 cache",
     half_matmul_sizes()},
    run_half_matmul<HopperMatmulH4>};

const KernelRegistration<HopperMatmulH5> h5{
    {"hopper_matmul_h5", "clusters of two CTAs share loads of B (multicast), products overlap",
     half_matmul_sizes()},
    run_half_matmul<HopperMatmulH5>};

const KernelRegistration<HopperMatmulH6> h6{
    {"hopper_matmul_h6", "TMA stores the result from shared memory while the next tile is computed",
     half_matmul_sizes()},
    run_half_matmul<HopperMatmulH6>};

const KernelRegistration<HopperMatmulH7<>> h7{
    {"hopper_matmul_h7", "unrolled by the ring's stages", half_matmul_sizes()},
    run_half_matmul<HopperMatmulH7<>>};

}  // namespace
}  // namespace imbrex::kernels
