// SPDX-License-Identifier: Apache-2.0
// Products with packed weights of every width, against float64 sums of codes and factors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "core/float_formats.h"
#include "imbrex/kernels/low_precision/ampere_low_precision.h"
#include "imbrex/kernels/low_precision/blackwell_low_precision.h"
#include "imbrex/kernels/low_precision/decode_matmul.h"
#include "imbrex/kernels/low_precision/direct_matmul.h"
#include "imbrex/kernels/low_precision/prefill_matmul.h"
#include "imbrex/kernels/low_precision_matmul.h"
#include "imbrex/runtime/kernel.h"

namespace imbrex {
namespace {

using kernels::AmpereLowPrecision;
using kernels::BlackwellLowPrecision;
using kernels::HopperLowPrecisionDecode;
using kernels::HopperLowPrecisionDirect;
using kernels::HopperLowPrecisionPrefill;
using ::testing::HasSubstr;

HostTensor random_codes(int64_t n, int64_t k, int bits, unsigned seed) {
  HostTensor codes(uint8, {n, k});
  std::mt19937 random(seed);
  for (int64_t i = 0; i < n * k; ++i) codes.set(i, static_cast<double>(random() % (1u << bits)));
  return codes;
}

/// What a code stands for: signed integers are stored with an offset.
double weight(DataType type, int code) {
  if (type.is_integer()) return type.is_signed() ? code - (1 << (type.bits() - 1)) : code;
  return arith::decode(arith::float_format(type), static_cast<uint64_t>(code));
}

struct Problem {
  int64_t m, n, k;
  int group = 128;
  DataType type = int4, dtype = float16;
  bool zero_points = false;
  DataType x = boolean;  // that of X; boolean: dtype
  DataType x_type() const { return x == boolean ? dtype : x; }
};

/// Prefill rounds the weights after they were multiplied by their factors.
template <class K>
void check(const K& configuration, const Problem& p) {
  constexpr bool is_hopper_prefill = std::is_same_v<K, HopperLowPrecisionPrefill>,
                 rounds_weights = is_hopper_prefill || std::is_same_v<K, BlackwellLowPrecision>;
  SCOPED_TRACE(::testing::Message() << p.type.name() << ", groups of " << p.group << ", " << p.dtype.name()
                                    << ", " << p.m << " x " << p.n << " x " << p.k);
  const Device device = Device::virtual_gpu({.target = K::target, .checks = vgpu::CheckSet::all()});
  const int64_t groups = (p.k + p.group - 1) / p.group;
  HostTensor codes = random_codes(p.n, p.k, p.type.bits(), 1);
  for (int64_t i = 0; i < p.n * p.k; ++i)
    if (!std::isfinite(weight(p.type, static_cast<int>(codes.get(i))))) codes.set(i, 1);
  const bool has_factors = p.x_type() != p.dtype;
  const HostTensor x = HostTensor::random(p.x_type(), {p.m, p.k}, 2),
                   row_factors = HostTensor::random(float32, {p.m}, 4),
                   scales = HostTensor::random(p.dtype, {p.n, groups}, 3,
                                               facts_of(p.type).exponent_bits > 4 ? 1e-3 : 1);
  HostTensor points(p.dtype, {p.n, groups});
  for (int64_t i = 0; p.zero_points && i < points.elements(); ++i)
    points.set(i, weight(p.type, static_cast<int>(i * 7 % (1 << p.type.bits()))));
  DeviceTensor c = DeviceTensor::empty(device, p.dtype, {p.m, p.n});
  c.poison();
  Kernel<K> kernel(configuration, device);
  const DeviceTensor x_rows = DeviceTensor::from_host(device, x),
                     factors = DeviceTensor::from_host(device, row_factors),
                     words = DeviceTensor::from_host(device, kernels::pack_weights(codes, p.type.bits())),
                     values = DeviceTensor::from_host(
                         device, kernels::pack_group_values(scales, p.zero_points ? &points : nullptr));
  const int x_unit = 16 / x.dtype().bytes(), c_unit = p.n % 8 == 0 ? 8 : 1;
  const kernels::ActivationRowsArguments<const DeviceTensor&> rows{
      x.dtype(), x_rows, {x_unit, p.k / x_unit, 0}};
  kernels::PackedFinishArguments finish(c.address(), p.dtype);
  if (has_factors) {
    finish.factors = static_cast<int>(kernels::Factors::kPerRow);
    finish.row_factors = factors.address();
  }
  const kernels::MatrixStridesArguments c_strides{c_unit, p.n / c_unit, 0};
  const auto launch = [&](const auto&... more) {
    return kernel(p.m, p.n, p.k, p.group, p.zero_points ? 1 : 0, p.type, p.dtype, rows, words, values, c,
                  c_strides, finish, more...);
  };
  const LaunchReport report = [&] {
    if constexpr (is_hopper_prefill)
      return launch(p.n % 16 == 0);
    else
      return launch();
  }();
  EXPECT_TRUE(report.clean()) << report.virtual_report.format();
  const HostTensor got = c.to_host();
  const double unit = p.dtype == bfloat16 ? 1.0 / 256 : 1.0 / 2048;
  int wrong = 0;
  for (int64_t i = 0; i < p.m; ++i)
    for (int64_t j = 0; j < p.n; ++j) {
      double sum = 0, size = 0;
      for (int64_t l = 0; l < p.k; ++l) {
        const int64_t at = j * groups + l / p.group;
        const double term = x.get(i * p.k + l) * (has_factors ? row_factors.get(i) : 1) * scales.get(at) *
                            (weight(p.type, static_cast<int>(codes.get(j * p.k + l))) - points.get(at));
        sum += term;
        size += term * term;
      }
      const double value = got.get(i * p.n + j), each = rounds_weights ? 4 * unit : 1e-5;
      if (!(std::abs(value - sum) <= unit * std::abs(sum) + each * std::sqrt(size)) && ++wrong < 5)
        ADD_FAILURE() << "[" << i << ", " << j << "]: " << value << ", not " << sum;
    }
  EXPECT_EQ(wrong, 0);
}

/// Calls body(type of a weight, dtype) for every pair that there are kernels for.
template <class Body>
void for_each_type(Body&& body) {
  for (DataType dtype : {float16, bfloat16})
    for (int code = 0; code < DataType::kCount; ++code) {
      const DataType type{static_cast<DataType::Code>(code)};
      if (type.bits() > 8 || type.is_bool() || type == float8_e8m0 ||
          (type == float7_e5m1 && dtype == float16))
        continue;
      body(type, dtype);
    }
}

TEST(LowPrecisionDecode, EveryType) {
  for_each_type([](DataType type, DataType dtype) {
    check(HopperLowPrecisionDecode{.block_m = 8, .row_tiles = 1, .stages = 2, .split_k = 1},
          {3, 64, 768, 128, type, dtype});
  });
}

TEST(LowPrecisionDecode, GroupsAndEdges) {
  for (int group : {16, 32, 64, 256, 512})
    check(HopperLowPrecisionDecode{.stages = 2}, {13, 200, 1000, group});
  check(HopperLowPrecisionDecode{.block_m = 8, .row_tiles = 4, .k_tiles = 1, .split_k = 4},
        {1, 136, 264, 128, int3, bfloat16});
  check(HopperLowPrecisionDecode{.block_m = 32, .k_tiles = 1, .warp_rows = 16, .stages = 4, .split_k = 8},
        {33, 300, 2816, 128, int2});
  check(HopperLowPrecisionDecode{.row_tiles = 1, .k_tiles = 4, .warp_rows = 64, .split_k = 1},
        {16, 64, 1600, 128});
}

TEST(LowPrecisionDirect, EveryType) {
  for_each_type([](DataType type, DataType dtype) {
    check(HopperLowPrecisionDirect{.block_m = 8, .row_tiles = 1, .k_tiles = 2, .ahead = 1, .split_k = 1},
          {3, 64, 768, 128, type, dtype});
  });
}

TEST(LowPrecisionDirect, GroupsAndEdges) {
  for (int group : {16, 32, 64, 256}) check(HopperLowPrecisionDirect(), {13, 200, 1000, group});
  check(HopperLowPrecisionDirect{.block_m = 8, .row_tiles = 4, .k_tiles = 1, .split_k = 4},
        {1, 136, 2312, 128, int3, bfloat16});
  check(HopperLowPrecisionDirect{.row_tiles = 1, .k_tiles = 2, .warp_rows = 16, .ahead = 3},
        {21, 150, 4096, 128, int2});
  check(HopperLowPrecisionDirect{.k_tiles = 2}, {9, 130, 704, 64, uint4, float16, true});
}

TEST(LowPrecisionDecode, ZeroPoints) {
  for (DataType type : {uint4, int3, uint8})
    for (DataType dtype : {float16, bfloat16})
      check(HopperLowPrecisionDecode{.stages = 2}, {9, 130, 704, 64, type, dtype, true});
  check(HopperLowPrecisionDecode{.stages = 2}, {9, 130, 1504, 512, uint4, float16, true});
}

/// Activations of 8 bits, with a factor for each row.
TEST(LowPrecisionDecode, ActivationsOfEightBits) {
  for (DataType x : {int8, float8_e4m3})
    for (DataType dtype : {float16, bfloat16}) {
      check(HopperLowPrecisionDecode{.stages = 2}, {9, 130, 1056, 128, int4, dtype, false, x});
      check(AmpereLowPrecision{}, {9, 130, 1056, 128, int4, dtype, false, x});
    }
  check(HopperLowPrecisionDecode{.stages = 2}, {16, 64, 512, 64, uint4, float16, true, int8});
  check(HopperLowPrecisionDecode{.block_m = 64, .k_tiles = 1, .warp_rows = 16, .stages = 2},
        {50, 128, 512, 64, float4_e2m1, float16, false, float8_e4m3});
}

TEST(LowPrecisionAmpere, EveryType) {
  for_each_type([](DataType type, DataType dtype) {
    check(AmpereLowPrecision{.block_m = 8, .k_tiles = 1, .stages = 2}, {3, 64, 520, 128, type, dtype});
  });
}

TEST(LowPrecisionAmpere, TilesGroupsAndEdges) {
  for (int group : {16, 32, 64, 256, 512}) check(AmpereLowPrecision{}, {13, 200, 1000, group});
  check(AmpereLowPrecision{.block_m = 64, .row_tiles = 4, .k_tiles = 1, .warp_rows = 32, .stages = 2},
        {150, 300, 520, 64, uint4, bfloat16, true});
  check(AmpereLowPrecision{.block_m = 32, .k_tiles = 2, .warp_rows = 16, .stages = 2},
        {70, 77, 776, 128, int3});
  check(AmpereLowPrecision{.k_tiles = 4, .warp_rows = 64, .stages = 2}, {16, 64, 1600, 512, int2});
}

TEST(LowPrecisionBlackwell, TypesGroupsAndEdges) {
  check(BlackwellLowPrecision{.block_m = 64}, {70, 136, 600, 128, int4});
  check(BlackwellLowPrecision{.block_m = 128, .stages = 2}, {130, 300, 264, 64, int3, bfloat16});
  check(BlackwellLowPrecision{.block_m = 64, .weight_stages = 3}, {20, 77, 1032, 16, float4_e2m1, bfloat16});
  check(BlackwellLowPrecision{.block_m = 64}, {40, 130, 776, 32, uint8, float16, true});
  check(BlackwellLowPrecision{.block_m = 256, .stages = 2}, {30, 128, 520, 512, float6_e3m2});
}

/// Groups of less than a stage of X, as those of MXFP4 and NVFP4.
TEST(LowPrecisionPrefill, SmallGroups) {
  for (int group : {16, 32}) {
    check(HopperLowPrecisionPrefill{.block_m = 128}, {140, 200, 600, group, float4_e2m1, bfloat16});
    check(HopperLowPrecisionPrefill{.block_m = 128, .ctas = 2}, {70, 300, 520, group, uint5, float16, true});
  }
}

TEST(LowPrecisionPrefill, TypesAndEdges) {
  check(HopperLowPrecisionPrefill{.ctas = 2}, {300, 300, 600});
  check(HopperLowPrecisionPrefill{.block_m = 64, .stages = 8, .ctas = 4},
        {130, 512, 1032, 64, int3, bfloat16});
  check(HopperLowPrecisionPrefill{.block_m = 128, .stages = 3, .weight_stages = 3},
        {100, 77, 512, 256, uint8});
  check(HopperLowPrecisionPrefill{.block_m = 128}, {40, 200, 256, 512, float4_e2m1});
  check(HopperLowPrecisionPrefill{.block_m = 64, .stages = 8, .consumers = 1}, {50, 200, 776, 128, int4});
  for (int64_t k : {200, 512, 1288})  // of one tile, as many for both consumers, and one less for the second
    check(HopperLowPrecisionPrefill{.block_m = 64, .stages = 8, .weight_stages = 3, .k_parts = 2, .ctas = 4},
          {50, 400, k, 128, int4});
  check(HopperLowPrecisionPrefill{.block_m = 32, .stages = 6, .k_parts = 2},
        {30, 136, 776, 32, uint3, bfloat16, true});
  check(HopperLowPrecisionPrefill{.block_m = 128}, {40, 200, 600, 128, uint4, float16, true});
  check(HopperLowPrecisionPrefill{.block_m = 128}, {40, 200, 600, 64, uint8, bfloat16, true});
}

/// Every element (i, j) is the sum of k terms, off by at most these parts of itself and of the root of the terms' squares.
template <class Term>
void expect_sums(const HostTensor& got, int64_t k, double of_sum, double of_root, const Term& term) {
  const int64_t n = got.shape()[1];
  int wrong = 0;
  for (int64_t e = 0; e < got.elements(); ++e) {
    double sum = 0, squares = 0;
    for (int64_t l = 0; l < k; ++l) {
      const double value = term(e / n, e % n, l);
      sum += value;
      squares += value * value;
    }
    wrong += !(std::abs(got.get(e) - sum) <= std::abs(sum) * of_sum + std::sqrt(squares) * of_root);
  }
  EXPECT_EQ(wrong, 0);
}

/// The public function: whatever kernel it takes, from tensors of small types.
TEST(LowPrecisionMatmul, EveryNumberOfRows) {
  const Device device = Device::virtual_gpu({.target = "sm_90a", .checks = vgpu::CheckSet::all()});
  const int64_t n = 136, k = 520;
  struct Format {
    DataType type, factors;
    int64_t group;
  };
  const Format formats[] = {{int4, bfloat16, 64},           {uint3, bfloat16, 32},
                            {float6_e3m2, bfloat16, 64},    {float6_e3m2, bfloat16, 32},
                            {float4_e2m1, float8_e8m0, 32},   // MXFP4
                            {float4_e2m1, float8_e4m3, 16}};  // NVFP4
  for (const auto& [type, factors, group] : formats) {
    const int64_t groups = (k + group - 1) / group;
    HostTensor weights = HostTensor::random(type, {n, k}, 1),
               scales = HostTensor::random(factors, {n, groups}, 2);
    auto w = LowPrecisionWeights::pack(device, weights, scales, group);
    for (int64_t m : {1, 9, 30, 70}) {
      SCOPED_TRACE(::testing::Message() << type.name() << ", groups of " << group << ", " << m << " rows");
      const HostTensor activations = HostTensor::random(bfloat16, {m, k}, 3);
      DeviceTensor x = DeviceTensor::from_host(device, activations),
                   c = DeviceTensor::empty(device, bfloat16, {m, n});
      c.poison();
      const LaunchReport report = low_precision_matmul(x, w, c);
      EXPECT_TRUE(report.clean()) << report.virtual_report.format();
      expect_sums(c.to_host(), k, 1. / 256, 1. / 64, [&](int64_t i, int64_t j, int64_t l) {
        return activations.get(i * k + l) * weights.get(j * k + l) * scales.get(j * groups + l / group);
      });
    }
  }
}

/// As many rows of W as give each multiprocessor a CTA: weights go straight to registers.
TEST(LowPrecisionMatmul, RowsForEveryMultiprocessor) {
  const Device device = Device::virtual_gpu({.target = "sm_90a", .checks = vgpu::CheckSet::all()});
  const int64_t n = 67 * 64 - 24, k = 264, group = 128, groups = 3;
  const HostTensor weights = HostTensor::random(int4, {n, k}, 1),
                   scales = HostTensor::random(float16, {n, groups}, 2);
  const auto w = LowPrecisionWeights::pack(device, weights, scales, group);
  for (int64_t m : {1, 9}) {
    SCOPED_TRACE(m);
    const HostTensor activations = HostTensor::random(float16, {m, k}, 3);
    DeviceTensor x = DeviceTensor::from_host(device, activations),
                 c = DeviceTensor::empty(device, float16, {m, n});
    c.poison();
    const LaunchReport report = low_precision_matmul(x, w, c);
    EXPECT_TRUE(report.clean()) << report.virtual_report.format();
    expect_sums(c.to_host(), k, 1. / 2048, 1e-3, [&](int64_t i, int64_t j, int64_t l) {
      return activations.get(i * k + l) * weights.get(j * k + l) * scales.get(j * groups + l / group);
    });
  }
}

/// k that units of 16 bytes, tiles and groups do not divide.
TEST(LowPrecisionMatmul, AnyK) {
  for (const char* target : {"sm_90a", "sm_80", "sm_100a"}) {
    const Device device = Device::virtual_gpu({.target = target, .checks = vgpu::CheckSet::all()});
    for (const int64_t k : {1, 7, 15, 33, 263})
      for (const auto& [weight, x_type] :
           {std::pair(DataType(int4), DataType(float16)), {DataType(uint3), DataType(float8_e4m3)}})
        for (const int64_t m : {3, 70}) {
          SCOPED_TRACE(::testing::Message() << target << " " << weight.name() << " " << m << " x " << k);
          const int64_t n = 40, groups = (k + 31) / 32;
          const HostTensor weights = HostTensor::random(weight, {n, k}, 1),
                           scales = HostTensor::random(float16, {n, groups}, 2),
                           x = HostTensor::random(x_type, {m, k}, 3);
          const auto w = LowPrecisionWeights::pack(device, weights, scales, 32);
          DeviceTensor c = DeviceTensor::empty(device, float16, {m, n});
          c.poison();
          const LaunchReport report = matmul(DeviceTensor::from_host(device, x), w, c);
          EXPECT_TRUE(report.clean()) << report.virtual_report.format();
          expect_sums(c.to_host(), k, 1. / 1024, 1. / 256, [&](int64_t i, int64_t j, int64_t l) {
            return x.get(i * k + l) * weights.get(j * k + l) * scales.get(j * groups + l / 32);
          });
        }
  }
}

/// matmul() with packed weights: every kind of rows, wherever they lie, on every generation.
TEST(LowPrecisionMatmul, OperandsOfEveryKind) {
  for (const char* target : {"sm_90a", "sm_80", "sm_89", "sm_100a", "sm_120a"}) {
    const Device device = Device::virtual_gpu({.target = target, .checks = vgpu::CheckSet::all()});
    const bool is_hopper = std::string(target) == "sm_90a";
    for (const int64_t k : {256, 197})
      for (const DataType type : {DataType(bfloat16), DataType(int8), DataType(float8_e4m3)}) {
        const int64_t n = 72, groups = (k + 63) / 64;
        const HostTensor weights = HostTensor::random(int4, {n, k}, 1),
                         scales = HostTensor::random(bfloat16, {n, groups}, 2);
        const auto w = LowPrecisionWeights::pack(device, weights, scales, 64);
        for (const int64_t m : {5, 67})
          for (const bool has_views : {false, true}) {
            if (has_views && !is_hopper) continue;
            SCOPED_TRACE(::testing::Message() << target << " " << type.name() << " " << m << " x " << k
                                              << (has_views ? " views" : ""));
            const HostTensor x_host = HostTensor::random(
                                 type, has_views ? std::vector{k, m} : std::vector{m, k}, 3),
                             factors = HostTensor::random(float32, {m}, 5);
            DeviceTensor x = DeviceTensor::from_host(device, x_host),
                         all = DeviceTensor::empty(device, bfloat16, {m, n + 5}),
                         c = all.slice({0, 3}, {m, n});
            if (!has_views) all = c = DeviceTensor::empty(device, bfloat16, {m, n});
            all.poison();
            const LaunchReport report =
                matmul(x, w, c, {.a_is_km = has_views, .scale_a = DeviceTensor::from_host(device, factors)});
            EXPECT_TRUE(report.clean()) << report.virtual_report.format();
            expect_sums(c.to_host(), k, 1. / 256, 1. / 64, [&](int64_t i, int64_t j, int64_t l) {
              return x_host.get(has_views ? l * m + i : i * k + l) * weights.get(j * k + l) *
                     scales.get(j * groups + l / 64) * factors.get(i);
            });
          }
      }
  }
}

/// What matmul()'s options ask for behind the sums: of every kernel, each step by itself and all together.
TEST(LowPrecisionMatmul, StepsBehindTheSums) {
  struct Steps {
    float alpha = 1;
    DataType bias = boolean;  // boolean: none
    bool is_row_bias = false;
    float beta = 0;
    bool has_residual = false;
    Activation activation = Activation::kNone;
  };
  const Steps all[] = {
      {.alpha = 0.5f},
      {.bias = float32},
      {.bias = bfloat16, .is_row_bias = true},
      {.beta = 1},
      {.alpha = -2, .bias = bfloat16, .beta = -1.5f, .has_residual = true, .activation = Activation::kSilu}};
  const int64_t n = 72, k = 264, groups = (k + 63) / 64;
  for (const char* target : {"sm_90a", "sm_80", "sm_100a"}) {
    const Device device = Device::virtual_gpu({.target = target, .checks = vgpu::CheckSet::all()});
    const HostTensor weights = HostTensor::random(int4, {n, k}, 1),
                     scales = HostTensor::random(bfloat16, {n, groups}, 2);
    const auto w = LowPrecisionWeights::pack(device, weights, scales, 64);
    for (const int64_t m : {5, 67})
      for (const Steps& steps : all) {
        SCOPED_TRACE(::testing::Message() << target << " " << m << " rows, step " << (&steps - all));
        const HostTensor x = HostTensor::random(bfloat16, {m, k}, 3),
                         before = HostTensor::random(bfloat16, {m, n}, 4),
                         residual = HostTensor::random(bfloat16, {m, n + 8}, 5),
                         bias = HostTensor::random(
                             steps.bias == boolean ? DataType(float32) : steps.bias,
                             steps.is_row_bias ? std::vector{m, int64_t{1}} : std::vector{n}, 6);
        DeviceTensor c = DeviceTensor::from_host(device, before);
        MatmulOptions options{.alpha = steps.alpha, .beta = steps.beta, .activation = steps.activation};
        if (steps.bias != boolean) options.bias = DeviceTensor::from_host(device, bias);
        if (steps.has_residual)
          options.residual = DeviceTensor::from_host(device, residual).slice({0, 3}, {m, n});
        const LaunchReport report = matmul(DeviceTensor::from_host(device, x), w, c, options);
        EXPECT_TRUE(report.clean()) << report.virtual_report.format();
        const HostTensor got = c.to_host();
        int wrong = 0;
        for (int64_t i = 0; i < m; ++i)
          for (int64_t j = 0; j < n; ++j) {
            double sum = 0, size = 0;
            for (int64_t l = 0; l < k; ++l) {
              const double term = x.get(i * k + l) * weights.get(j * k + l) * scales.get(j * groups + l / 64);
              sum += term;
              size += term * term;
            }
            double value = steps.alpha * sum;
            if (steps.bias != boolean) value += bias.get(steps.is_row_bias ? i : j);
            value +=
                steps.beta * (steps.has_residual ? residual.get(i * (n + 8) + j + 3) : before.get(i * n + j));
            if (steps.activation == Activation::kSilu) value /= 1 + std::exp(-value);
            const double bound = std::abs(value) / 256 + std::abs(steps.alpha) * std::sqrt(size) / 64;
            wrong += !(std::abs(got.get(i * n + j) - value) <= bound);
          }
        EXPECT_EQ(wrong, 0);
      }
  }
}

/// Every choice of tiles compiles: what sums need when the stages are done fits too.
TEST(LowPrecisionMatmul, FitsSharedMemory) {
  const Device device = Device::virtual_gpu({.target = "sm_90a"});
  for (DataType type : {int1, int8})
    for (int64_t n : {64, 5000, 17000}) {
      const int64_t k = 256;
      const HostTensor weights(type, {n, k}), scales(float16, {n, k / 16});
      const HostTensor points(float16, {n, k / 16});
      const auto w = LowPrecisionWeights::pack(device, weights, scales, 16, &points);
      for (int64_t m : {16, 64, 100}) {
        DeviceTensor x = DeviceTensor::from_host(device, HostTensor(float16, {m, k})),
                     c = DeviceTensor::empty(device, float16, {m, n});
        EXPECT_TRUE(low_precision_matmul(x, w, c).clean()) << type.name() << " " << n << " " << m;
      }
    }
}

TEST(LowPrecisionMatmul, SaysWhatDoesNotFit) {
  const Device device = Device::virtual_gpu({.target = "sm_90a"});
  const auto says = [](const auto& call) -> std::string {
    try {
      call();
    } catch (const LaunchError& error) {
      return error.what();
    }
    return "";
  };
  const HostTensor weights(int4, {64, 256}), scales(float16, {64, 2});
  EXPECT_THAT(says([&] { LowPrecisionWeights::pack(device, weights, scales, 100); }),
              HasSubstr("groups of 100"));
  EXPECT_THAT(says([&] { LowPrecisionWeights::pack(device, weights, scales, 64); }), HasSubstr("[64, 4]"));
  HostTensor powers(float8_e8m0, {64, 2});
  for (int64_t i = 0; i < powers.elements(); ++i) powers.set(i, std::ldexp(1.0, -100));
  EXPECT_THAT(says([&] { LowPrecisionWeights::pack(device, weights, powers, 128, nullptr, float16); }),
              HasSubstr("float16 does not hold the factor"));
  EXPECT_THAT(says([&] { LowPrecisionWeights::pack(device, weights, powers, 128, nullptr, float32); }),
              HasSubstr("x and c are float16 or bfloat16"));
  EXPECT_THAT(says([&] {
                LowPrecisionWeights::pack(device, HostTensor(float16, {64, 256}), scales, 128);
              }),
              HasSubstr("at most 8 bits"));
  HostTensor points(float16, {64, 2});
  points.set(5, 8);
  EXPECT_THAT(says([&] { LowPrecisionWeights::pack(device, weights, scales, 128, &points); }),
              HasSubstr("zero point 8 for weights of int4"));
  const auto w = LowPrecisionWeights::pack(device, weights, scales, 128);
  DeviceTensor x = DeviceTensor::empty(device, float16, {3, 256}),
               c = DeviceTensor::empty(device, float16, {3, 64});
  EXPECT_THAT(says([&] {
                low_precision_matmul(DeviceTensor::empty(device, bfloat16, {3, 256}), w, c);
              }),
              HasSubstr("of the factors' type, float16, or of int8 or float8_e4m3"));
  EXPECT_THAT(says([&] { matmul(x, w, c, {.bias = DeviceTensor::empty(device, float32, {63})}); }),
              HasSubstr("make it [64], one per column, or [3, 1], one per row"));
  EXPECT_THAT(says([&] { matmul(x, w, c, {.beta = 1, .residual = x}); }), HasSubstr("residual is"));
  EXPECT_THAT(says([&] { matmul(x, w, c, {.b_is_kn = true}); }), HasSubstr("leave out scale_b and b_is_kn"));
  EXPECT_THAT(says([&] { matmul(x, w, c, {.scale_a = DeviceTensor::empty(device, float32, {2})}); }),
              HasSubstr("neither one float32 nor 3, one per row of x"));
  EXPECT_THAT(says([&] {
                matmul(x, w, DeviceTensor::empty(device, float16, {64, 3}).transpose());
              }),
              HasSubstr("the rows of c are not neighbours"));
  EXPECT_THAT(says([&] {
                low_precision_matmul(x, w, DeviceTensor::empty(device, float16, {3, 65}));
              }),
              HasSubstr("the weights [64, 256]"));
  EXPECT_THAT(says([&] { low_precision_matmul(DeviceTensor(), w, c); }), HasSubstr("x is null"));
}

}  // namespace
}  // namespace imbrex
