// SPDX-License-Identifier: Apache-2.0
// imbrex::attention with its options, its gradients and imbrex::attention_decode, against float64.
#include <gmock/gmock.h>

#include <cmath>
#include <limits>

#include "imbrex/core/error.h"
#include "imbrex/kernels/attention.h"
#include "imbrex/runtime/compare.h"

namespace imbrex::testing {
namespace {

using Values = std::vector<double>;

struct Sizes {
  int64_t batch = 1, heads = 2, heads_kv = 2, rows = 70, rows_kv = 90, d = 32, d_v = 32;
};

Device virtual_gpu(uint64_t seed = 2) {
  return Device::virtual_gpu({.target = "sm_90a", .seed = seed, .checks = vgpu::CheckSet::all()});
}

/// The result, its log-sum-exp and the gradients, in float64. Beside each gradient, the sum of what is added to it without
/// signs: weights, their gradients and o are rounded, and where terms cancel the error is that of the terms.
struct Exact {
  Values o, log_sum, dq, dk, dv, dq_terms, dk_terms, dv_terms;

  Exact(const Sizes& s, const AttentionOptions& options, const Values& q, const Values& k, const Values& v,
        const Values& d_o) {
    const double scale = options.scale != 0 ? options.scale : 1 / std::sqrt(static_cast<double>(s.d));
    const Values slopes =
                     options.alibi_slopes.is_null() ? Values() : options.alibi_slopes.to_host().to_doubles(),
                 sinks = options.sinks.is_null() ? Values() : options.sinks.to_host().to_doubles();
    constexpr double kNone = -std::numeric_limits<double>::infinity();
    o.resize(d_o.size()), dq.resize(q.size()), dk.resize(k.size()), dv.resize(v.size());
    dq_terms = dq, dk_terms = dk, dv_terms = dv;
    log_sum.resize(static_cast<size_t>(s.batch * s.heads * s.rows));
    Values p(static_cast<size_t>(s.rows_kv)), slope(p.size());
    for (int64_t r = 0; r < s.batch * s.heads * s.rows; ++r) {
      const int64_t i = r % s.rows + s.rows_kv - s.rows, head = r / s.rows % s.heads,
                    b = r / s.rows / s.heads;
      const int64_t kv = (b * s.heads_kv + head / (s.heads / s.heads_kv)) * s.rows_kv;
      double largest = sinks.empty() ? kNone : sinks[head];
      for (int64_t j = 0; j < s.rows_kv; ++j) {
        double score = 0;
        for (int64_t e = 0; e < s.d; ++e) score += scale * q[r * s.d + e] * k[(kv + j) * s.d + e];
        slope[j] = 1;
        if (options.soft_cap > 0) {
          const double t = std::tanh(score / options.soft_cap);
          score = options.soft_cap * t, slope[j] = 1 - t * t;
        }
        if (!slopes.empty()) score += slopes[head] * static_cast<double>(j - i);
        const bool causal = options.causal && options.prefix == 0;
        const bool seen = (!causal || j <= i) && (options.window_left < 0 || j >= i - options.window_left) &&
                          (options.window_right < 0 || j <= i + options.window_right) &&
                          (options.prefix == 0 || j <= std::max(i, options.prefix - 1));
        p[j] = seen ? score : kNone;
        largest = std::max(largest, p[j]);
      }
      double total = sinks.empty() ? 0 : std::exp(sinks[head] - largest);
      for (double& weight : p) total += weight = weight == kNone ? 0 : std::exp(weight - largest);
      log_sum[r] = total > 0 ? largest + std::log(total) : kNone;
      double along = 0;
      Values dp(p.size());
      for (int64_t j = 0; j < s.rows_kv; ++j) {
        p[j] = total > 0 ? p[j] / total : 0;
        for (int64_t e = 0; e < s.d_v; ++e) {
          o[r * s.d_v + e] += p[j] * v[(kv + j) * s.d_v + e];
          dp[j] += d_o[r * s.d_v + e] * v[(kv + j) * s.d_v + e];
          dv[(kv + j) * s.d_v + e] += p[j] * d_o[r * s.d_v + e];
          dv_terms[(kv + j) * s.d_v + e] += std::abs(p[j] * d_o[r * s.d_v + e]);
        }
        along += p[j] * dp[j];
      }
      double along_terms = 0;
      for (int64_t e = 0; e < s.d_v; ++e) along_terms += std::abs(o[r * s.d_v + e] * d_o[r * s.d_v + e]);
      for (int64_t j = 0; j < s.rows_kv; ++j) {
        const double ds = p[j] * (dp[j] - along) * slope[j] * scale;
        for (int64_t e = 0; e < s.d; ++e) {
          dq[r * s.d + e] += ds * k[(kv + j) * s.d + e];
          dk[(kv + j) * s.d + e] += ds * q[r * s.d + e];
          const double terms = p[j] * (std::abs(dp[j]) + along_terms) * slope[j] * scale;
          dq_terms[r * s.d + e] += terms * std::abs(k[(kv + j) * s.d + e]);
          dk_terms[(kv + j) * s.d + e] += terms * std::abs(q[r * s.d + e]);
        }
      }
    }
  }
};

void expect_near(const char* name, const DeviceTensor& got, const Values& expected, double tolerance) {
  const Comparison comparison = compare(got.to_host(), expected, tolerance);
  EXPECT_TRUE(comparison.passed) << name << ": " << comparison.format();
}

void expect_within(const char* name, const DeviceTensor& got, const Values& expected, const Values& terms) {
  const double unit = got.dtype() == bfloat16 ? 1.0 / 256 : 1.0 / 2048;  // the last place
  const Values values = got.to_host().to_doubles();
  for (size_t i = 0; i < expected.size(); ++i) {
    const double allowed = unit * (terms[i] + std::abs(expected[i])) + 1e-6;
    ASSERT_LE(std::abs(values[i] - expected[i]), allowed)
        << name << " element " << i << ": " << values[i] << " instead of " << expected[i];
  }
}

void expect_gradients(const Sizes& s, AttentionOptions options = {}, DataType dtype = bfloat16,
                      uint64_t seed = 2) {
  const Device device = virtual_gpu(seed);
  uint64_t stream = 10 * seed;
  const auto random = [&](int64_t heads, int64_t rows, int64_t d) {
    return DeviceTensor::random(device, dtype, {s.batch, heads, rows, d}, ++stream);
  };
  const auto empty = [&](const DeviceTensor& like) {
    DeviceTensor t = DeviceTensor::empty(device, like.dtype(), like.shape());
    t.poison();
    return t;
  };
  const DeviceTensor q = random(s.heads, s.rows, s.d), k = random(s.heads_kv, s.rows_kv, s.d),
                     v = random(s.heads_kv, s.rows_kv, s.d_v), d_o = random(s.heads, s.rows, s.d_v);
  const DeviceTensor o = empty(d_o), dq = empty(q), dk = empty(k), dv = empty(v);
  options.log_sum_exp = DeviceTensor::empty(device, float32, {s.batch, s.heads, s.rows});
  if (!options.alibi_slopes.is_null())
    options.alibi_slopes = DeviceTensor::random(device, float32, {s.heads}, 77);
  if (!options.sinks.is_null()) options.sinks = DeviceTensor::random(device, float32, {s.heads}, 78);
  attention(q, k, v, o, options).expect_clean();
  attention_backward(q, k, v, o, d_o, dq, dk, dv, options).expect_clean();
  const auto values = [](const DeviceTensor& t) { return t.to_host().to_doubles(); };
  const Exact exact(s, options, values(q), values(k), values(v), values(d_o));
  const double tolerance =
      3 * default_tolerance(dtype);  // weights and their gradients are rounded to dtype as well
  expect_near("o", o, exact.o, tolerance);
  expect_near("log_sum_exp", options.log_sum_exp, exact.log_sum, 1e-3);
  expect_within("dq", dq, exact.dq, exact.dq_terms);
  expect_within("dk", dk, exact.dk, exact.dk_terms);
  expect_within("dv", dv, exact.dv, exact.dv_terms);
}

TEST(AttentionBackward, Full) { expect_gradients({}); }
TEST(AttentionBackward, OfSeveralBlocks) {
  expect_gradients({.rows = 300, .rows_kv = 333, .d = 64, .d_v = 64}, {}, float16);
}
TEST(AttentionBackward, Causal) {
  expect_gradients({.rows = 200, .rows_kv = 200}, {.causal = true});
  expect_gradients({.rows = 7, .rows_kv = 129}, {.causal = true});
  expect_gradients({.rows = 200, .rows_kv = 70}, {.causal = true});  // rows that see nothing
}
TEST(AttentionBackward, OneElement) {
  expect_gradients({.heads = 1, .heads_kv = 1, .rows = 1, .rows_kv = 1});
}
TEST(AttentionBackward, HeadsThatShareKAndV) {
  expect_gradients({.batch = 2, .heads = 6, .heads_kv = 2, .rows = 129}, {.causal = true});
}
TEST(AttentionBackward, HeadSizes) {
  for (const int64_t d : {80, 128}) expect_gradients({.heads = 1, .heads_kv = 1, .d = d, .d_v = d});
  expect_gradients({.heads = 1, .heads_kv = 1, .d = 192, .d_v = 128});
  expect_gradients({.heads = 1, .heads_kv = 1, .d = 256, .d_v = 256});
}
TEST(AttentionBackward, Masks) {
  expect_gradients({.rows = 150, .rows_kv = 200}, {.window_left = 30, .window_right = 5});
  expect_gradients({.rows = 150, .rows_kv = 200}, {.causal = true, .window_left = 30});
  expect_gradients({.rows = 150, .rows_kv = 150}, {.prefix = 70});
}
TEST(AttentionBackward, ScoreModifications) {
  const DeviceTensor some = DeviceTensor::random(virtual_gpu(), float32, {1}, 1);
  expect_gradients({}, {.soft_cap = 1.5f});
  expect_gradients({}, {.soft_cap = 3, .alibi_slopes = some});
  expect_gradients({.heads = 4}, {.causal = true, .sinks = some});
}
TEST(AttentionBackward, SeveralSchedules) {
  for (uint64_t seed = 0; seed < 4; ++seed)
    expect_gradients({.heads = 4, .rows = 140, .rows_kv = 140}, {.causal = true}, bfloat16, seed);
}

TEST(AttentionDecodeFunction, OfPagesAndLengths) {
  const Device device = virtual_gpu();
  const int64_t batch = 3, heads = 4, heads_kv = 2, d = 32, page = 16, each = 7, rows = 2;
  const std::vector<int64_t> lengths{112, 0, 37};
  HostTensor length_host(int32, {batch}), table_host(int32, {batch, each});
  for (int64_t b = 0; b < batch; ++b) length_host.set(b, static_cast<double>(lengths[b]));
  for (int64_t i = 0; i < batch * each; ++i)
    table_host.set(i, static_cast<double>((i * 8 + 3) % (batch * each)));
  const DeviceTensor q = DeviceTensor::random(device, bfloat16, {batch, heads, rows, d}, 1),
                     k = DeviceTensor::random(device, bfloat16, {batch * each, heads_kv, page, d}, 2),
                     v = DeviceTensor::random(device, bfloat16, {batch * each, heads_kv, page, d}, 3),
                     o = DeviceTensor::empty(device, bfloat16, q.shape());
  const AttentionDecodeOptions options{
      .causal = true,
      .lengths = DeviceTensor::from_host(device, length_host),
      .page_table = DeviceTensor::from_host(device, table_host),
      .log_sum_exp = DeviceTensor::empty(device, float32, {batch, heads, rows}),
      .parts = 3};
  attention_decode(q, k, v, o, options).expect_clean();
  const Values qs = q.to_host().to_doubles(), ks = k.to_host().to_doubles(), vs = v.to_host().to_doubles(),
               got = o.to_host().to_doubles(), log_sums = options.log_sum_exp.to_host().to_doubles();
  for (int64_t b = 0; b < batch; ++b) {
    // The sequence's rows, one after the other, as attention of a single batch.
    const int64_t n = lengths[b];
    if (n == 0) {
      for (int64_t e = 0; e < heads * rows * d; ++e) EXPECT_EQ(got[b * heads * rows * d + e], 0);
      EXPECT_EQ(log_sums[b * heads * rows], -std::numeric_limits<double>::infinity());
      continue;
    }
    Values own_k, own_v;
    for (int64_t h = 0; h < heads_kv; ++h)
      for (int64_t j = 0; j < n; ++j)
        for (int64_t e = 0; e < d; ++e) {
          const auto at = static_cast<int64_t>(table_host.get(b * each + j / page));
          own_k.push_back(ks[((at * heads_kv + h) * page + j % page) * d + e]);
          own_v.push_back(vs[((at * heads_kv + h) * page + j % page) * d + e]);
        }
    const auto part = [&](const Values& all, int64_t n) {
      return Values(all.begin() + b * n, all.begin() + (b + 1) * n);
    };
    const Exact exact({1, heads, heads_kv, rows, n, d, d}, {.causal = true}, part(qs, heads * rows * d),
                      own_k, own_v, Values(static_cast<size_t>(heads * rows * d)));
    const Values own = part(got, heads * rows * d), own_sums = part(log_sums, heads * rows);
    for (size_t i = 0; i < own.size(); ++i) EXPECT_NEAR(own[i], exact.o[i], 0.02) << b << " " << i;
    for (size_t i = 0; i < own_sums.size(); ++i) EXPECT_NEAR(own_sums[i], exact.log_sum[i], 1e-3);
  }
}

}  // namespace
}  // namespace imbrex::testing
