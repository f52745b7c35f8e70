// SPDX-License-Identifier: Apache-2.0
// Products with packed weights of every width, against float64 sums of codes and factors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "core/float_formats.h"
#include "imbrex/kernels/low_precision/decode_matmul.h"
#include "imbrex/kernels/low_precision/prefill_matmul.h"
#include "imbrex/kernels/low_precision_matmul.h"
#include "imbrex/runtime/kernel.h"

namespace imbrex {
namespace {

using kernels::HopperLowPrecisionDecode;
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
};

/// `rounds_weights`: they are rounded after they were multiplied by their factors.
template <class K>
void check(const K& configuration, const Problem& p, bool rounds_weights = false) {
  SCOPED_TRACE(::testing::Message() << p.type.name() << ", groups of " << p.group << ", " << p.dtype.name()
                                    << ", " << p.m << " x " << p.n << " x " << p.k);
  const Device device = Device::virtual_gpu({.target = "sm_90a", .checks = vgpu::CheckSet::all()});
  const int64_t groups = (p.k + p.group - 1) / p.group;
  HostTensor codes = random_codes(p.n, p.k, p.type.bits(), 1);
  for (int64_t i = 0; i < p.n * p.k; ++i)
    if (!std::isfinite(weight(p.type, static_cast<int>(codes.get(i))))) codes.set(i, 1);
  const HostTensor x = HostTensor::random(p.dtype, {p.m, p.k}, 2),
                   scales = HostTensor::random(p.dtype, {p.n, groups}, 3,
                                               facts_of(p.type).exponent_bits > 4 ? 1e-3 : 1);
  HostTensor points(p.dtype, {p.n, groups});
  for (int64_t i = 0; p.zero_points && i < points.elements(); ++i)
    points.set(i, weight(p.type, static_cast<int>(i * 7 % (1 << p.type.bits()))));
  DeviceTensor c = DeviceTensor::empty(device, p.dtype, {p.m, p.n});
  c.poison();
  Kernel<K> kernel(configuration, device);
  const LaunchReport report = kernel(
      p.m, p.n, p.k, p.group, p.zero_points ? 1 : 0, p.type, p.dtype, DeviceTensor::from_host(device, x),
      DeviceTensor::from_host(device, kernels::pack_weights(codes, p.type.bits())),
      DeviceTensor::from_host(device, kernels::pack_group_values(scales, p.zero_points ? &points : nullptr)),
      c);
  EXPECT_TRUE(report.clean()) << report.virtual_report.format();
  const HostTensor got = c.to_host();
  const double unit = p.dtype == bfloat16 ? 1.0 / 256 : 1.0 / 2048;
  int wrong = 0;
  for (int64_t i = 0; i < p.m; ++i)
    for (int64_t j = 0; j < p.n; ++j) {
      double sum = 0, size = 0;
      for (int64_t l = 0; l < p.k; ++l) {
        const int64_t at = j * groups + l / p.group;
        const double term = x.get(i * p.k + l) * scales.get(at) *
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

TEST(LowPrecisionDecode, EveryType) {
  for (DataType dtype : {float16, bfloat16})
    for (int code = 0; code < DataType::kCount; ++code) {
      const DataType type{static_cast<DataType::Code>(code)};
      if (type.bits() > 8 || type.is_bool() || type == float8_e8m0 ||
          (type == float7_e5m1 && dtype == float16))
        continue;
      check(HopperLowPrecisionDecode{.block_m = 8, .row_tiles = 1, .stages = 2, .split_k = 1},
            {3, 64, 768, 128, type, dtype});
    }
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

TEST(LowPrecisionDecode, ZeroPoints) {
  for (DataType type : {uint4, int3, uint8})
    for (DataType dtype : {float16, bfloat16})
      check(HopperLowPrecisionDecode{.stages = 2}, {9, 130, 704, 64, type, dtype, true});
  check(HopperLowPrecisionDecode{.stages = 2}, {9, 130, 1504, 512, uint4, float16, true});
}

TEST(LowPrecisionPrefill, TypesAndEdges) {
  check(HopperLowPrecisionPrefill{.ctas = 2}, {300, 300, 600}, true);
  check(HopperLowPrecisionPrefill{.block_m = 64, .stages = 8, .ctas = 4},
        {130, 512, 1032, 64, int3, bfloat16}, true);
  check(HopperLowPrecisionPrefill{.block_m = 128, .stages = 3, .weight_stages = 3},
        {100, 77, 512, 256, uint8}, true);
  check(HopperLowPrecisionPrefill{.block_m = 128}, {40, 200, 256, 512, float4_e2m1}, true);
  check(HopperLowPrecisionPrefill{.block_m = 128}, {40, 200, 600, 128, uint4, float16, true}, true);
  check(HopperLowPrecisionPrefill{.block_m = 128}, {40, 200, 600, 64, uint8, bfloat16, true}, true);
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
      const HostTensor got = c.to_host();
      int wrong = 0;
      for (int64_t i = 0; i < m; ++i)
        for (int64_t j = 0; j < n; ++j) {
          double sum = 0, size = 0;
          for (int64_t l = 0; l < k; ++l) {
            const double term =
                activations.get(i * k + l) * weights.get(j * k + l) * scales.get(j * groups + l / group);
            sum += term;
            size += term * term;
          }
          wrong += !(std::abs(got.get(i * n + j) - sum) <= std::abs(sum) / 256 + std::sqrt(size) / 64);
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
      for (int64_t m : {16, 64}) {
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
              HasSubstr("of the factors' type, float16"));
  EXPECT_THAT(says([&] {
                low_precision_matmul(x, w, DeviceTensor::empty(device, float16, {3, 65}));
              }),
              HasSubstr("the weights [64, 256]"));
  EXPECT_THAT(says([&] { low_precision_matmul(DeviceTensor(), w, c); }), HasSubstr("x is null"));
}

}  // namespace
}  // namespace imbrex
