// SPDX-License-Identifier: Apache-2.0
// The public functions of attention on devices of target sm_100a, against float64, with every checker on.
#include <gmock/gmock.h>

#include <utility>

#include "attention_device.h"
#include "attention_exact.h"
#include "imbrex/core/error.h"
#include "imbrex/kernels/attention.h"
#include "imbrex/runtime/compare.h"

namespace imbrex::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr const char* kTarget = "sm_100a";

Values values(const DeviceTensor& t) { return t.to_host().to_doubles(); }
void expect_near(const DeviceTensor& got, const Values& expected, double tolerance) {
  const Comparison comparison = compare(got.to_host(), expected, tolerance);
  EXPECT_TRUE(comparison.passed) << comparison.format();
}

/// A tensor [batch, heads, rows, d] whose rows lie outside its heads, as a product leaves them.
DeviceTensor rows_outside(const Device& device, const Sizes& s, int64_t heads, int64_t rows, uint64_t seed) {
  return DeviceTensor::random(device, bfloat16, {s.batch, rows, heads, s.d}, seed).permute({0, 2, 1, 3});
}

void expect_attention(const Sizes& s, AttentionOptions options, uint64_t seed = 2) {
  const Device device = virtual_gpu(seed, kTarget);
  const DeviceTensor q = rows_outside(device, s, s.heads, s.rows, 1),
                     k = rows_outside(device, s, s.heads_kv, s.rows_kv, 2),
                     v = rows_outside(device, s, s.heads_kv, s.rows_kv, 3),
                     o = rows_outside(device, s, s.heads, s.rows, 4);
  if (!options.alibi_slopes.is_null())
    options.alibi_slopes = DeviceTensor::random(device, float32, {s.heads}, 77);
  if (!options.sinks.is_null()) options.sinks = DeviceTensor::random(device, float32, {s.heads}, 78);
  options.log_sum_exp = DeviceTensor::empty(device, float32, {s.batch, s.heads, s.rows});
  attention(q, k, v, o, options).expect_clean();
  const Exact exact(s, options, values(q), values(k), values(v), values(q));
  expect_near(o, exact.o, 3 * default_tolerance(bfloat16));
  expect_near(options.log_sum_exp, exact.log_sum, 1e-3);
}

const Sizes kSmall{.batch = 2, .heads = 4, .heads_kv = 2, .rows = 70, .rows_kv = 140, .d = 48, .d_v = 48};

TEST(AttentionOnBlackwell, OfOddLengths) {
  for (const auto& [rows, rows_kv] : {std::pair{1, 1}, {7, 129}, {300, 77}, {129, 7}}) {
    SCOPED_TRACE(rows);
    for (const bool causal : {false, true})
      expect_attention({.rows = rows, .rows_kv = rows_kv, .d = 64, .d_v = 64}, {.causal = causal});
  }
}
TEST(AttentionOnBlackwell, MasksAndModifications) {
  const DeviceTensor some =
      DeviceTensor::empty(virtual_gpu(2, kTarget), float32, {1});  // made anew for each device
  expect_attention(kSmall, {.causal = true, .window_left = 40});
  expect_attention(kSmall, {.window_left = 3, .window_right = 30});
  expect_attention(kSmall, {.prefix = 90});
  expect_attention(kSmall, {.causal = true, .soft_cap = 2});
  expect_attention(kSmall, {.alibi_slopes = some});
  expect_attention(kSmall, {.causal = true, .sinks = some});
  expect_attention(kSmall,
                   {.causal = true, .window_left = 20, .soft_cap = 3, .alibi_slopes = some, .sinks = some});
}
TEST(AttentionOnBlackwell, Decoding) {
  const Device device = virtual_gpu(2, kTarget);
  const DeviceTensor sinks = DeviceTensor::random(device, float32, {4}, 9);
  for (const int64_t rows : {1, 5})
    for (const int64_t parts : {1, 3, 40}) {
      SCOPED_TRACE(parts);
      const Sizes s{.heads = 4, .rows = rows, .rows_kv = 333, .d = 48, .d_v = 48};
      const DeviceTensor q = rows_outside(device, s, s.heads, rows, 1),
                         k = rows_outside(device, s, s.heads_kv, s.rows_kv, 2),
                         v = rows_outside(device, s, s.heads_kv, s.rows_kv, 3),
                         o = rows_outside(device, s, s.heads, rows, 4),
                         sums = DeviceTensor::empty(device, float32, {1, s.heads, rows});
      attention_decode(q, k, v, o,
                       {.causal = true,
                        .window_left = 200,
                        .soft_cap = 2,
                        .sinks = sinks,
                        .log_sum_exp = sums,
                        .parts = parts})
          .expect_clean();
      const Exact exact(s, {.causal = true, .window_left = 200, .soft_cap = 2, .sinks = sinks}, values(q),
                        values(k), values(v), values(q));
      expect_near(o, exact.o, 3 * default_tolerance(bfloat16));
      expect_near(sums, exact.log_sum, 1e-3);
    }
}
TEST(AttentionOnBlackwell, WhatItLacksIsRefused) {
  const Device device = virtual_gpu(2, kTarget);
  const auto tensor = [&](DataType dtype, int64_t d) {
    return DeviceTensor::random(device, dtype, {1, 8, d}, 1);
  };
  const DeviceTensor t = tensor(float16, 64), large = tensor(float16, 144), small = tensor(float8_e4m3, 64);
  const DeviceTensor begins = DeviceTensor::from_host(device, HostTensor(int32, {2}));
  EXPECT_THAT(
      [&] { attention(large, large, large, large); },
      ThrowsMessage<LaunchError>(HasSubstr("heads of 144 with values of 144 on a device of target sm_100a")));
  EXPECT_THAT([&] { attention(small, small, small, t); },
              ThrowsMessage<LaunchError>(HasSubstr("float8 on a device of target sm_100a")));
  EXPECT_THAT([&] { attention(t, t, t, t, {.q_begins = begins, .kv_begins = begins}); },
              ThrowsMessage<LaunchError>(HasSubstr("packed sequences on a device of target sm_100a")));
  EXPECT_THAT([&] { attention_decode(t, small, small, t); },
              ThrowsMessage<LaunchError>(HasSubstr("float8 on a device of target sm_100a")));
  EXPECT_THAT([&] { attention_latent_decode(t, t, t); },
              ThrowsMessage<LaunchError>(HasSubstr("it runs on devices of target sm_90a")));
}

}  // namespace
}  // namespace imbrex::testing
