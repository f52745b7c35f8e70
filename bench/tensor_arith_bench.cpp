// SPDX-License-Identifier: Apache-2.0
// How fast the exact tensor-core sum is. One core; items are multiply-adds.
#include <benchmark/benchmark.h>

#include <random>
#include <vector>

#include "core/tensor_arith.h"

namespace imbrex::arith {
namespace {

void exact_product(benchmark::State& state, TensorInstruction instruction, DataType type, DataType result,
                   int sm, MatrixShape shape) {
  const auto arith = tensor_arith(sm, instruction, type, type, result, shape.k);
  if (!arith) return state.SkipWithError("no model for this combination");
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  auto fill = [&](int64_t count) {
    std::vector<float> values(static_cast<size_t>(count));
    for (float& value : values) value = normal(random);
    std::vector<uint32_t> patterns(static_cast<size_t>(count));
    encode_array(float_format(type), values.data(), patterns.data(), count);
    return patterns;
  };
  const auto a = fill(shape.m * shape.k), b = fill(shape.n * shape.k);
  std::vector<uint32_t> d(static_cast<size_t>(shape.m * shape.n));
  for (auto _ : state) {
    multiply_accumulate(*arith, shape, a.data(), b.data(), d.data(), d.data());
    benchmark::DoNotOptimize(d.data());
  }
  state.SetItemsProcessed(state.iterations() * shape.m * shape.n * shape.k);
}

using enum TensorInstruction;
BENCHMARK_CAPTURE(exact_product, mma_m16n8k16_f16, kMma, float16, float32, 90, MatrixShape{16, 8, 16});
BENCHMARK_CAPTURE(exact_product, wgmma_m64n256k16_f16, kWgmma, float16, float32, 90,
                  MatrixShape{64, 256, 16});
BENCHMARK_CAPTURE(exact_product, wgmma_m64n256k16_f16_f16, kWgmma, float16, float16, 90,
                  MatrixShape{64, 256, 16});
BENCHMARK_CAPTURE(exact_product, wgmma_m64n256k8_tf32, kWgmma, tfloat32, float32, 90,
                  MatrixShape{64, 256, 8});
BENCHMARK_CAPTURE(exact_product, wgmma_m64n256k32_e4m3, kWgmma, float8_e4m3, float32, 90,
                  MatrixShape{64, 256, 32});
BENCHMARK_CAPTURE(exact_product, tcgen05_m128n256k16_f16, kTcgen05, float16, float32, 100,
                  MatrixShape{128, 256, 16});

/// nvf4: groups of products under their own scale factors.
void exact_product_scaled(benchmark::State& state) {
  const MatrixShape shape{128, 256, 64};
  const auto arith = tensor_arith(100, kMxf4, float4_e2m1, float4_e2m1, float32, shape.k, float8_e4m3, 16);
  if (!arith) return state.SkipWithError("no model for this combination");
  std::mt19937 random(1);
  auto fill = [&](int64_t count, uint32_t mask, uint32_t base) {
    std::vector<uint8_t> patterns(static_cast<size_t>(count));
    for (uint8_t& pattern : patterns) pattern = static_cast<uint8_t>(base + (random() & mask));
    return patterns;
  };
  const auto a = fill(shape.m * shape.k, 15, 0), b = fill(shape.n * shape.k, 15, 0);
  const auto a_scales = fill(shape.m * shape.k / 16, 15, 0x30),
             b_scales = fill(shape.n * shape.k / 16, 15, 0x30);
  std::vector<uint32_t> d(static_cast<size_t>(shape.m * shape.n));
  for (auto _ : state) {
    multiply_accumulate(*arith, shape, a.data(), b.data(), d.data(), d.data(),
                        {.a_scales = a_scales.data(), .b_scales = b_scales.data()});
    benchmark::DoNotOptimize(d.data());
  }
  state.SetItemsProcessed(state.iterations() * shape.m * shape.n * shape.k);
}
BENCHMARK(exact_product_scaled);

}  // namespace
}  // namespace imbrex::arith
