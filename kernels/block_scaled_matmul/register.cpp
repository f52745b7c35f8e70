// SPDX-License-Identifier: Apache-2.0
#include "imbrex/core/error.h"
#include "imbrex/kernels/block_scaled_matmul/block_scaled_matmul.h"
#include "imbrex/kernels/block_scaled_matmul/block_scaled_mma.h"
#include "imbrex/runtime/registry.h"
#include "imbrex/runtime/scale_factors.h"

namespace imbrex::kernels {
namespace {

/// A matrix of narrow floats, its factors, and the numbers they stand for.
struct ScaledInput {
  DeviceTensor elements, factors;
  std::vector<double> values;
};

ScaledInput scaled_input(Case& c, int64_t rows, int64_t k, DataType element, DataType scale, int64_t block) {
  const int64_t blocks = (k + block - 1) / block;
  const HostTensor elements = c.random(element, {rows, k}, element == float4_e2m1 ? 2.0 : 1.0);
  const HostTensor factors = c.random(scale, {rows, blocks});
  ScaledInput input{c.input(elements), c.input(tile_scale_factors(factors)), elements.to_doubles()};
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t i = 0; i < k; ++i) input.values[r * k + i] *= factors.get(r * blocks + i / block);
  return input;
}

/// C[m, n] = (A * scale_a)[m, k] * (B * scale_b)[n, k]^T in bfloat16.
template <class K>
void run_scaled(Case& c, Kernel<K>& kernel) {
  const int64_t m = c.size("m"), n = c.size("n"), k = c.size("k"), bits = c.size("bits");
  if (bits != 8 && bits != 4)
    throw LaunchError(Diagnostic{{},
                                 "a block-scaled matmul of " + std::to_string(bits) + "-bit elements",
                                 {},
                                 "bits is 8 (mxf8: float8_e4m3) or 4 (nvf4: float4_e2m1)"});
  const DataType element = bits == 8 ? float8_e4m3 : float4_e2m1;
  const DataType scale = bits == 8 ? float8_e8m0 : float8_ue4m3;
  const int64_t block = bits == 8 ? 32 : 16;
  const ScaledInput a = scaled_input(c, m, k, element, scale, block),
                    b = scaled_input(c, n, k, element, scale, block);
  DeviceTensor out = c.output(bfloat16, {m, n});
  c.launch(kernel, m, n, k, element, a.elements, b.elements, a.factors, b.factors, out);
  c.expect_matmul(out, a.values, b.values);
}

std::vector<SizeOption> sizes() {
  return {{"m", 256, "rows of A and C"},
          {"n", 256, "columns of C"},
          {"k", 512, "columns of A"},
          {"bits", 8, "of an element: 8 (mxf8) or 4 (nvf4)"}};
}

const KernelRegistration<BlockScaledMatmul> block_scaled{
    {"block_scaled_matmul", "C = A B^T of 8- or 4-bit floats with a scale factor per 32 or 16 of them",
     sizes()},
    run_scaled<BlockScaledMatmul>};
const KernelRegistration<BlockScaledMmaMatmul> block_scaled_mma{
    {"block_scaled_matmul_mma", "the same on GeForce RTX 50 and RTX PRO Blackwell, by mma.sync", sizes()},
    run_scaled<BlockScaledMmaMatmul>};

}  // namespace
}  // namespace imbrex::kernels
