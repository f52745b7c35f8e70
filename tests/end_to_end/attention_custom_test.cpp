// SPDX-License-Identifier: Apache-2.0
// Masks and score modifications of one's own: forward, backward and in decoding, against float64, with every checker on.
#include <gmock/gmock.h>

#include <limits>

#include "attention_device.h"
#include "attention_exact.h"
#include "imbrex/core/error.h"
#include "imbrex/kernels/attention/custom_backward.h"
#include "imbrex/kernels/attention/custom_decode.h"
#include "imbrex/runtime/compare.h"

namespace imbrex::testing {
namespace {

using namespace kernels;

/// A row sees `width` columns, the last of which is its own.
struct Band {
  using Parameters = ParameterList<Int32>;
  Int32 width;
  RegisterValue sees(const ScoreTile& at) const {
    auto back = at.row() - at.column();
    return back >= 0 && back < width;
  }
  Expr sees_all(const ScoreBox& box) const {
    return box.last_column <= box.first_row && box.last_row - box.first_column < width;
  }
  ColumnRange columns(const RowRange& rows) const {
    return {.begin = rows.first - width + 1, .end = rows.last + 1};
  }
  SeeingRows rows(const ColumnSpan& columns) const {
    return {.first = columns.first, .last = columns.last + width - 1};
  }
};

/// bound * tanh(score / bound) - rate * (row - column): the derivative is that of the first term, from what it gave.
struct BoundAndFading {
  using Parameters = ParameterList<Float32, Float32>;
  Float32 bound, rate;
  RegisterValue change(const RegisterBase& scores, const ScoreTile& at) const {
    return tanh(scores * (1 / bound)) * bound + (at.column() - at.row()).to(float32) * rate;
  }
  RegisterValue slope(const RegisterBase& changed, const ScoreTile& at) const {
    auto part = (changed - (at.column() - at.row()).to(float32) * rate) * (1 / bound);
    return 1 - part * part;
  }
};

constexpr int kWidth = 50;
constexpr float kBound = 3, kRate = 0.05f;

/// The library's options that mean the same.
AttentionOptions same_options(const Device& device, int64_t heads) {
  HostTensor rates(float32, {heads});
  for (int64_t i = 0; i < heads; ++i) rates.set(i, kRate);
  return {.causal = true,
          .window_left = kWidth - 1,
          .soft_cap = kBound,
          .alibi_slopes = DeviceTensor::from_host(device, rates)};
}

Values values(const DeviceTensor& t) { return t.to_host().to_doubles(); }

TEST(CustomAttention, Gradients) {
  for (const Sizes& s :
       {Sizes{.heads = 4, .rows = 150, .rows_kv = 190}, Sizes{.batch = 2, .rows = 7, .rows_kv = 129},
        Sizes{.rows = 90, .rows_kv = 70, .d = 144, .d_v = 160}}) {
    SCOPED_TRACE(s.rows);
    const Device device = virtual_gpu();
    const auto random = [&](int64_t heads, int64_t rows, int64_t d, uint64_t seed) {
      return DeviceTensor::random(device, bfloat16, {s.batch, heads, rows, d}, seed);
    };
    const auto empty = [&](const DeviceTensor& like) {
      DeviceTensor t = DeviceTensor::empty(device, like.dtype(), like.shape());
      t.poison();
      return t;
    };
    const DeviceTensor q = random(s.heads, s.rows, s.d, 1), k = random(s.heads_kv, s.rows_kv, s.d, 2),
                       v = random(s.heads_kv, s.rows_kv, s.d_v, 3), d_o = random(s.heads, s.rows, s.d_v, 4),
                       o = empty(d_o), dq = empty(q), dk = empty(k), dv = empty(v),
                       sums = DeviceTensor::empty(device, float32, {s.batch, s.heads, s.rows});
    CustomAttention<Band, BoundAndFading> attend(device, {.block_kv = 64, .stages = 2});
    CustomAttentionBackward<Band, BoundAndFading> back(device);
    attend(q, k, v, o, {.long_first = true, .log_sum_exp = sums}, kWidth, kBound, kRate).expect_clean();
    back(q, k, v, o, d_o, dq, dk, dv, {.log_sum_exp = sums}, kWidth, kBound, kRate).expect_clean();
    const Exact exact(s, same_options(device, s.heads), values(q), values(k), values(v), values(d_o));
    const Comparison of_o = compare(o.to_host(), exact.o, 3 * default_tolerance(bfloat16));
    EXPECT_TRUE(of_o.passed) << of_o.format();
    const Comparison of_sums = compare(sums.to_host(), exact.log_sum, 1e-3);
    EXPECT_TRUE(of_sums.passed) << of_sums.format();
    expect_within("dq", values(dq), bfloat16, exact.dq, exact.dq_squares);
    expect_within("dk", values(dk), bfloat16, exact.dk, exact.dk_squares);
    expect_within("dv", values(dv), bfloat16, exact.dv, exact.dv_squares);
  }
}

/// One call of each kernel that decodes; columns that no row of Q sees hold NaN, which only skipping leaves out.
TEST(CustomAttention, Decoding) {
  for (const DataType dtype : {float16, float8_e4m3})
    for (const Sizes& s : {Sizes{.heads = 4, .rows = 3, .rows_kv = 333}, Sizes{.rows = 40, .rows_kv = 400}}) {
      SCOPED_TRACE(dtype.name());
      const Device device = virtual_gpu();
      const auto cache = [&](uint64_t seed) {
        HostTensor host = HostTensor::random(dtype, {1, s.heads_kv, s.rows_kv, s.d}, seed);
        for (int64_t head = 0; head < s.heads_kv; ++head)
          for (int64_t e = 0; e < 128 * s.d; ++e)
            host.set(head * s.rows_kv * s.d + e, std::numeric_limits<double>::quiet_NaN());
        return DeviceTensor::from_host(device, host);
      };
      const DeviceTensor q = DeviceTensor::random(device, float16, {1, s.heads, s.rows, s.d}, 1),
                         k = cache(2), v = cache(3), o = DeviceTensor::empty(device, float16, q.shape()),
                         sums = DeviceTensor::empty(device, float32, {1, s.heads, s.rows});
      CustomDecodeAttention<Band, BoundAndFading> decode(device);
      const auto numbers = [](const DeviceTensor& t) {
        Values all = values(t);
        for (double& x : all)
          if (std::isnan(x)) x = 0;
        return all;
      };
      const Exact exact(s, same_options(device, s.heads), values(q), numbers(k), numbers(v), values(q));
      for (const int64_t parts : {1, 3}) {
        decode(q, k, v, o, {.log_sum_exp = sums, .parts = parts}, kWidth, kBound, kRate).expect_clean();
        const Comparison of_o = compare(o.to_host(), exact.o, 4 * default_tolerance(float16));
        EXPECT_TRUE(of_o.passed) << of_o.format();
        const Comparison of_sums = compare(sums.to_host(), exact.log_sum, 2e-3);
        EXPECT_TRUE(of_sums.passed) << of_sums.format();
      }
    }
}

TEST(CustomAttention, WhatDoesNotFitIsRefused) {
  const Device device = virtual_gpu();
  const DeviceTensor t = DeviceTensor::random(device, float16, {1, 2, 8, 32}, 1);
  CustomAttentionBackward<CausalMask> back(device);
  EXPECT_THAT([&] { back(t, t, t, t, t, t, t, t, {}); },
              ::testing::ThrowsMessage<LaunchError>(::testing::HasSubstr("log_sum_exp is null")));
  CustomDecodeAttention<CausalMask> decode(device);
  EXPECT_THAT([&] { decode(t, t, t, DeviceTensor(), {}); },
              ::testing::ThrowsMessage<LaunchError>(::testing::HasSubstr("o is null")));
}

}  // namespace
}  // namespace imbrex::testing
