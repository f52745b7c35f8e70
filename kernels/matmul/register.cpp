// SPDX-License-Identifier: Apache-2.0
// The kernels behind imbrex::matmul that are no steps of a ladder.
#include "imbrex/kernels/matmul/matmul_h8.h"
#include "imbrex/kernels/matmul/matmul_h9.h"
#include "imbrex/kernels/matmul/matmul_skinny.h"
#include "imbrex/kernels/matmul/matmul_stream_k.h"
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

const KernelRegistration<HopperMatmulStreamK<>> stream_k{
    {"hopper_matmul_stream_k", "tiles that do not fill a wave are divided among all CTAs along k",
     half_matmul_sizes()},
    [](Case& c, Kernel<HopperMatmulStreamK<>>& kernel) {
      const int64_t m = c.size("m"), n = c.size("n"), k = c.size("k");
      const DataType dtype = c.size("bf16") ? bfloat16 : float16;
      constexpr int64_t kCtas = 132, kTile = 128 * 256, kConsumers = 3;  // enough for every configuration
      DeviceTensor a = c.input(dtype, {m, k}), b = c.input(dtype, {n, k}), out = c.output(dtype, {m, n}),
                   partials = c.output(float32, {kCtas * kTile}),
                   turns = c.input(HostTensor(int32, {kCtas * kConsumers}));
      c.launch(kernel, ProductSizesArguments(m, n, k, 0, kCtas), dtype, a, b, out, partials, turns);
      c.expect(turns, [](std::span<double> zeros) {
        for (double& x : zeros) x = 0;
      });
      c.expect_matmul(out, a, b);
    }};

}  // namespace
}  // namespace imbrex::kernels
