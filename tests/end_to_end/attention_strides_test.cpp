// SPDX-License-Identifier: Apache-2.0
// imbrex::attention of tensors as they lie, against float64.
#include <gmock/gmock.h>

#include "attention_device.h"
#include "imbrex/core/error.h"
#include "imbrex/kernels/attention.h"
#include "imbrex/runtime/compare.h"
#include "strided_memory.h"

namespace imbrex::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

struct Setting {
  int64_t batch, heads, heads_kv, rows, rows_kv, d;
  Lie q, k, v, o;
  bool causal = false;
  float scale = 0;
};

void expect_attention(const Setting& s) {
  const Device device = virtual_gpu();
  const StridedMemory q(device, bfloat16, {s.batch, s.heads, s.rows, s.d}, 1, s.q),
      k(device, bfloat16, {s.batch, s.heads_kv, s.rows_kv, s.d}, 2, s.k),
      v(device, bfloat16, {s.batch, s.heads_kv, s.rows_kv, s.d}, 3, s.v);
  StridedMemory o(device, bfloat16, {s.batch, s.heads, s.rows, s.d}, 4, s.o);
  o.tensor.poison();
  const AttentionOptions options{.scale = s.scale, .causal = s.causal};
  prepare_attention(q.tensor, k.tensor, v.tensor, o.tensor, options);
  const LaunchReport report = attention(q.tensor, k.tensor, v.tensor, o.tensor, options);
  EXPECT_TRUE(report.clean()) << report.virtual_report.format();
  const std::vector<double> x = q.values(), y = k.values(), z = v.values();
  std::vector<double> expected(x.size()), weights(static_cast<size_t>(s.rows_kv));
  const double scale = s.scale != 0 ? s.scale : 1 / std::sqrt(static_cast<double>(s.d));
  for (int64_t b = 0; b < s.batch; ++b)
    for (int64_t h = 0; h < s.heads; ++h)
      for (int64_t i = 0; i < s.rows; ++i) {
        const int64_t row = ((b * s.heads + h) * s.rows + i) * s.d;
        const int64_t kv = (b * s.heads_kv + h / (s.heads / s.heads_kv)) * s.rows_kv * s.d;
        const int64_t seen =
            s.causal ? std::clamp<int64_t>(i + 1 + s.rows_kv - s.rows, 0, s.rows_kv) : s.rows_kv;
        double total = 0;
        for (int64_t j = 0; j < seen; ++j) {
          double score = 0;
          for (int64_t e = 0; e < s.d; ++e) score += x[row + e] * y[kv + j * s.d + e];
          total += weights[j] = std::exp(scale * score);
        }
        for (int64_t j = 0; j < seen; ++j)
          for (int64_t e = 0; e < s.d; ++e) expected[row + e] += weights[j] / total * z[kv + j * s.d + e];
      }
  const Comparison comparison = compare(o.tensor.to_host(), expected, 3 * default_tolerance(bfloat16));
  EXPECT_TRUE(comparison.passed) << comparison.format();
  o.expect_surroundings_untouched();
}

const Lie kHeadsInside{.order = {0, 2, 1, 3}};  // [batch, rows, heads, head size] in memory

TEST(AttentionStrides, Dense) { expect_attention({2, 2, 1, 70, 90, 32, {}, {}, {}, {}, true}); }
TEST(AttentionStrides, HeadsInsideRows) {
  expect_attention({2, 4, 2, 70, 90, 32, kHeadsInside, kHeadsInside, kHeadsInside, kHeadsInside});
  expect_attention({1, 2, 2, 130, 130, 64, kHeadsInside, kHeadsInside, kHeadsInside, {}, true, 0.25f});
}
TEST(AttentionStrides, OneProjectionOfThree) {  // q, k and v are slices of one tensor of wider rows
  const Lie slice{.order = {0, 2, 1, 3}, .gap = 16, .first = 32};
  expect_attention({2, 2, 2, 40, 50, 16, slice, slice, slice, slice});
}
TEST(AttentionStrides, WhatTmaDoesNotReachIsCopied) {
  const Lie odd{.gap = 3, .first = 5};
  expect_attention({1, 2, 1, 40, 50, 16, odd, odd, {.order = {0, 1, 3, 2}}, odd});
}
TEST(AttentionStrides, OfThreeDimensions) {
  const Device device = virtual_gpu();
  const DeviceTensor q = DeviceTensor::random(device, float16, {2, 30, 4, 16}, 1),
                     k = DeviceTensor::random(device, float16, {2, 30, 4, 16}, 2),
                     o = DeviceTensor::empty(device, float16, {2, 30, 4, 16}),
                     other = DeviceTensor::empty(device, float16, {4, 30, 16});
  const auto heads = [](const DeviceTensor& t) { return t.permute({0, 2, 1, 3}); };
  attention(heads(q), heads(k), heads(k), heads(o)).expect_clean();
  attention(heads(q)[1], heads(k)[1], heads(k)[1], other).expect_clean();
  EXPECT_EQ(heads(o)[1].to_host().to_doubles(), other.to_host().to_doubles());
}

TEST(AttentionErrors, NameTheTensor) {
  const Device device = virtual_gpu(), another = virtual_gpu();
  const auto tensor = [&](std::vector<int64_t> shape, DataType type = float16) {
    return DeviceTensor::empty(device, type, std::move(shape));
  };
  const DeviceTensor q = tensor({4, 32, 64}), k = tensor({2, 40, 64});
  const auto refused = [&](const DeviceTensor& a, const DeviceTensor& b, const DeviceTensor& c,
                           const DeviceTensor& d) -> std::string {
    try {
      attention(a, b, c, d);
    } catch (const LaunchError& error) {
      return error.what();
    }
    return "not refused";
  };
  DeviceTensor freed = tensor({4, 32, 64});
  freed.release();
  EXPECT_THAT(refused(q, k, k, freed), HasSubstr("attention: o is null or released"));
  EXPECT_THAT(refused(q, k, tensor({2, 40, 64}, bfloat16), q),
              AllOf(HasSubstr("v is bfloat16; all are float16"), HasSubstr("v  bfloat16 [2, 40, 64]")));
  EXPECT_THAT(refused(q, k, k, tensor({4, 31, 64})), HasSubstr("o has another shape than q"));
  EXPECT_THAT(refused(q, k, tensor({2, 41, 64}), q), HasSubstr("v has another shape than k"));
  EXPECT_THAT(refused(q, tensor({3, 40, 64}), tensor({3, 40, 64}), q),
              HasSubstr("4 heads of q do not share 3"));
  EXPECT_THAT(refused(tensor({4, 32, 24}), tensor({2, 40, 24}), tensor({2, 40, 24}), tensor({4, 32, 24})),
              HasSubstr("head size 24 is not a multiple of 16"));
  EXPECT_THAT(refused(q, tensor({1, 2, 40, 64}), k, q), HasSubstr("k has 4 dimensions"));
  EXPECT_THAT(refused(q, k, DeviceTensor::empty(another, float16, {2, 40, 64}), q),
              HasSubstr("v is on 'virtual GPU (sm_90a)', q on"));
  EXPECT_THAT(refused(q, k, k, DeviceTensor::view(device, q.address(), float16, {4, 32, 64}, {0, 64, 1})),
              HasSubstr("elements of o share memory"));
}

}  // namespace
}  // namespace imbrex::testing
