// SPDX-License-Identifier: Apache-2.0
// The kernels behind imbrex::matmul that are no steps of a ladder.
#include <algorithm>

#include "imbrex/kernels/matmul/matmul_h8.h"
#include "imbrex/kernels/matmul/matmul_h9.h"
#include "imbrex/kernels/matmul/matmul_skinny.h"
#include "imbrex/kernels/matmul/matmul_stream_k.h"
#include "imbrex/kernels/matmul/sum_of_k_parts.h"
#include "imbrex/kernels/parts/matmul_case.h"
#include "matmul/matmul_choice.h"
#include "matmul/matmul_time.h"

namespace imbrex::kernels {
namespace {

/// The persistent CTAs of a product: as many as imbrex::matmul launches. Large clusters leave some multiprocessors without one, and a
/// grid that is not on the GPU all at once takes two turns.
template <class K>
int64_t ctas_of(const K& kernel, const ProductShape& shape, int64_t parts = 1) {
  constexpr int kMultiprocessors = 132;
  MatmulChoice choice{.block_m = kernel.block_m,
                      .block_n = kernel.block_n,
                      .cluster_m = kernel.cluster_m,
                      .cluster_n = kernel.cluster_n,
                      .split_k = kernel.split_k,
                      .parts = static_cast<int>(parts)};
  set_ctas(choice, shape, kMultiprocessors);
  return choice.ctas;
}

const KernelRegistration<HopperMatmulH8<>> h8{
    {"hopper_matmul_h8", "any shape: the CTAs of a cluster divide k, rows of C begin at any address",
     half_matmul_sizes()},
    [](Case& c, Kernel<HopperMatmulH8<>>& kernel, const HopperMatmulH8<>& tiles) {
      const int64_t m = c.size("m"), n = c.size("n"), k = c.size("k");
      const DataType dtype = c.size("bf16") ? bfloat16 : float16;
      DeviceTensor a = c.input(dtype, {m, k}), b = c.input(dtype, {n, k}), out = c.output(dtype, {m, n});
      c.launch(kernel, ProductSizesArguments(m, n, k, 0, ctas_of(tiles, {m, n, k})), dtype, a, b, out);
      c.expect_matmul(out, a, b);
    }};

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

const KernelRegistration<HopperMatmulH8<PartsOfK>> parts{
    {"hopper_matmul_parts", "hopper_matmul_h8 of parts of k, whose sums it leaves to sum_of_k_parts",
     [] {
       std::vector<SizeOption> sizes = half_matmul_sizes();
       sizes.push_back({"parts", 3, "into which k is divided; 0: one"});
       return sizes;
     }()},
    [](Case& c, Kernel<HopperMatmulH8<PartsOfK>>& kernel, const HopperMatmulH8<PartsOfK>& tiles) {
      const int64_t m = c.size("m"), n = c.size("n"), k = c.size("k");
      const int64_t parts = std::max<int64_t>(c.size("parts"), 1);
      const DataType dtype = c.size("bf16") ? bfloat16 : float16;
      DeviceTensor a = c.input(dtype, {m, k}), b = c.input(dtype, {n, k}),
                   sums = c.output(float32, {parts, m, n});
      c.launch(kernel, ProductSizesArguments(m, n, k, 0, ctas_of(tiles, {m, n, k}, parts)), dtype, a, b, sums,
               parts);
      if (c.mode() != Case::Mode::kRun) return;
      const DeviceTensor out = DeviceTensor::empty(a.device(), dtype, {m, n});
      Kernel<SumOfKParts<>>({}, a.device())(ProductSizesArguments(m, n, 1, 0, 0), parts, dtype, sums, out);
      c.expect_matmul(out, a, b);
    }};

const KernelRegistration<SumOfKParts<Scale>> sum{
    {"sum_of_k_parts",
     "C = the sum of parts of a product / 4",
     {{"m", 100, "rows of C"}, {"n", 200, "columns of C"}, {"parts", 6, "that are added up"}}},
    [](Case& c, Kernel<SumOfKParts<Scale>>& kernel) {
      const int64_t m = c.size("m"), n = c.size("n"), parts = c.size("parts");
      DeviceTensor x = c.input(float32, {parts, m, n}), out = c.output(bfloat16, {m, n});
      c.launch(kernel, ProductSizesArguments(m, n, 1, 0, 0), parts, bfloat16, x, out, 0.25f);
      c.expect(out, [&](std::span<double> sums) {
        const std::vector<double> in = c.values(x);
        for (int64_t i = 0; i < m * n * parts; ++i) sums[i % (m * n)] += in[i] / 4;
      });
    }};

}  // namespace
}  // namespace imbrex::kernels
