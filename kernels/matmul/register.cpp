// SPDX-License-Identifier: Apache-2.0
// The kernels behind imbrex::matmul that are no steps of a ladder.
#include "imbrex/kernels/matmul/matmul_h8.h"
#include "imbrex/kernels/matmul/matmul_h9.h"
#include "imbrex/kernels/matmul/matmul_skinny.h"
#include "imbrex/kernels/parts/matmul_case.h"

namespace imbrex::kernels {
namespace {

const KernelRegistration<HopperMatmulH8<>> h8{
    {"hopper_matmul_h8", "any shape: the CTAs of a cluster divide k, rows of C begin at any address",
     half_matmul_sizes()},
    run_half_matmul<HopperMatmulH8<>>};

const KernelRegistration<HopperMatmulH9<>> h9{
    {"hopper_matmul_h9", "two warp groups take turns: the epilogue of one overlaps the products of the other",
     half_matmul_sizes()},
    run_half_matmul<HopperMatmulH9<>>};

const KernelRegistration<HopperMatmulSkinny<>> skinny{
    {"hopper_matmul_skinny", "few rows of A: B gives wgmma its rows", half_matmul_sizes(16)},
    run_half_matmul<HopperMatmulSkinny<>>};

}  // namespace
}  // namespace imbrex::kernels
