// SPDX-License-Identifier: Apache-2.0
#include <type_traits>

#include "imbrex/kernels/low_precision/ampere_low_precision.h"
#include "imbrex/kernels/low_precision/blackwell_low_precision.h"
#include "imbrex/kernels/low_precision/decode_matmul.h"
#include "imbrex/kernels/low_precision/direct_matmul.h"
#include "imbrex/kernels/low_precision/prefill_matmul.h"
#include "imbrex/runtime/registry.h"

namespace imbrex::kernels {
namespace {

/// C = X W^T with signed integers of some bits as weights, and random factors.
template <class K>
void run(Case& c, Kernel<K>& kernel) {
  constexpr bool is_hopper_prefill = std::is_same_v<K, HopperLowPrecisionPrefill>,
                 rounds_weights = is_hopper_prefill || std::is_same_v<K, BlackwellLowPrecision>;
  const int64_t m = c.size("m"), n = c.size("n"), k = c.size("k"), group = c.size("group"),
                bits = c.size("bits"), zero = c.size("zero");
  const DataType dtype = c.size("bf16") ? bfloat16 : float16;
  const DataType type = bits == 8 ? int8 : DataType{static_cast<DataType::Code>(DataType::kInt1 + bits - 1)};
  const int64_t groups = (k + group - 1) / group;
  const HostTensor weights = c.random(type, {n, k}), scales = c.random(dtype, {n, groups});
  HostTensor codes(uint8, {n, k});
  const std::vector<double> values = weights.to_doubles();
  for (int64_t i = 0; i < n * k; ++i)
    codes.set(i, values[static_cast<size_t>(i)] + static_cast<double>(1 << (bits - 1)));
  HostTensor points(dtype, {n, groups});
  for (int64_t i = 0; zero && i < n * groups; ++i) points.set(i, static_cast<double>(i * 5 % 7 - 3));
  const int64_t x_bits = rounds_weights ? 16 : c.size("x_bits");
  const DataType x_type = x_bits == 8 ? DataType(int8) : dtype;
  DeviceTensor x = c.input(x_type, {m, k}), words = c.input(pack_weights(codes, static_cast<int>(bits))),
               factors = c.input(pack_group_values(scales, zero ? &points : nullptr)),
               out = c.output(dtype, {m, n}), row_factors = x_bits == 8 ? c.input(float32, {m}) : x;
  const int unit = 16 / x_type.bytes(), c_unit = n % 8 == 0 ? 8 : 1;
  const ActivationRowsArguments<const DeviceTensor&> rows{x_type, x, {unit, k / unit, 0}};
  const MatrixStridesArguments c_strides{c_unit, n / c_unit, 0};
  PackedFinishArguments finish(out.address(), dtype);
  if (x_bits == 8) {
    finish.factors = static_cast<int>(Factors::kPerRow);
    finish.row_factors = row_factors.address();
  }
  if constexpr (is_hopper_prefill)
    c.launch(kernel, m, n, k, group, zero, type, dtype, rows, words, factors, out, c_strides, finish,
             n % 16 == 0);
  else
    c.launch(kernel, m, n, k, group, zero, type, dtype, rows, words, factors, out, c_strides, finish);
  // Prefill rounds the weights to x's type after the factors, decoding multiplies sums by the factors.
  HostTensor scaled(rounds_weights ? dtype : float64, {n, k});
  const std::vector<double> from_scales = scales.to_doubles();
  for (int64_t row = 0; row < n; ++row)
    for (int64_t i = 0; i < k; ++i) {
      const int64_t at = row * groups + i / group;
      scaled.set(row * k + i, (values[static_cast<size_t>(row * k + i)] - points.get(at)) *
                                  from_scales[static_cast<size_t>(at)]);
    }
  std::vector<double> activations = c.values(x);
  const std::vector<double> of_rows = c.values(row_factors);
  if (x_bits == 8)
    for (size_t i = 0; i < activations.size(); ++i) activations[i] *= of_rows[i / static_cast<size_t>(k)];
  c.expect_matmul(out, activations, scaled.to_doubles());
}

std::vector<SizeOption> sizes(int64_t m, bool has_bytes) {
  std::vector<SizeOption> all = {{"m", m, "rows of X and C"},
                                 {"n", 256, "columns of C"},
                                 {"k", 512, "columns of X, a multiple of 8"},
                                 {"bits", 4, "of a weight, 1 to 8"},
                                 {"group", 128, "elements of a row of W that share a factor"},
                                 {"zero", 0, "1: with zero points"},
                                 {"bf16", 0, "1: bfloat16, 0: float16"}};
  if (has_bytes) all.push_back({"x_bits", 16, "8: X is int8, with a factor for each row"});
  return all;
}

const KernelRegistration<HopperLowPrecisionDecode> decode{
    {"low_precision_decode", "C = X W^T: few rows of X, packed weights of 1 to 8 bits", sizes(16, true)},
    run<HopperLowPrecisionDecode>};

const KernelRegistration<HopperLowPrecisionDirect> direct{
    {"low_precision_direct", "C = X W^T: few rows of X, packed weights of 1 to 8 bits straight to registers",
     sizes(16, true)},
    run<HopperLowPrecisionDirect>};

const KernelRegistration<AmpereLowPrecision> ampere{
    {"low_precision_ampere", "C = X W^T: packed weights of 1 to 8 bits, from sm_80 on", sizes(16, true)},
    run<AmpereLowPrecision>};

const KernelRegistration<BlackwellLowPrecision> blackwell{
    {"low_precision_blackwell", "C = X W^T: many rows of X, packed weights of 1 to 8 bits, by tcgen05",
     sizes(256, false)},
    run<BlackwellLowPrecision>};

const KernelRegistration<HopperLowPrecisionPrefill> prefill{
    {"low_precision_prefill", "C = X W^T: many rows of X, packed weights of 1 to 8 bits", sizes(512, false)},
    run<HopperLowPrecisionPrefill>};

}  // namespace
}  // namespace imbrex::kernels
