// SPDX-License-Identifier: Apache-2.0
// Attention and its gradients in float64, with how far rounded terms may take a gradient from them.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include "imbrex/kernels/attention.h"

namespace imbrex::testing {

using Values = std::vector<double>;

struct Sizes {
  int64_t batch = 1, heads = 2, heads_kv = 2, rows = 70, rows_kv = 90, d = 32, d_v = 32;
};

/// The result, its log-sum-exp and the gradients, in float64. Beside each gradient, the sum of the squares of its terms, each
/// of which is rounded: weights for dv, weights times their gradients for dq and dk, and for these the row's sum of o * d_o,
/// whose error is that of o.
struct Exact {
  Values o, log_sum, dq, dk, dv, dq_squares, dk_squares, dv_squares;

  Exact(const Sizes& s, const AttentionOptions& options, const Values& q, const Values& k, const Values& v,
        const Values& d_o) {
    const double scale = options.scale != 0 ? options.scale : 1 / std::sqrt(static_cast<double>(s.d));
    const Values slopes =
                     options.alibi_slopes.is_null() ? Values() : options.alibi_slopes.to_host().to_doubles(),
                 sinks = options.sinks.is_null() ? Values() : options.sinks.to_host().to_doubles();
    constexpr double kNone = -std::numeric_limits<double>::infinity();
    o.resize(d_o.size()), dq.resize(q.size()), dk.resize(k.size()), dv.resize(v.size());
    dq_squares = dq, dk_squares = dk, dv_squares = dv;
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
          dv_squares[(kv + j) * s.d_v + e] += square(p[j] * d_o[r * s.d_v + e]);
        }
        along += p[j] * dp[j];
      }
      double along_squares = 0;
      for (int64_t e = 0; e < s.d_v; ++e) along_squares += square(o[r * s.d_v + e] * d_o[r * s.d_v + e]);
      Values along_in_q(static_cast<size_t>(s.d));  // what an error of the row's sum adds to dq
      for (int64_t j = 0; j < s.rows_kv; ++j) {
        const double ds = p[j] * (dp[j] - along) * slope[j] * scale;
        for (int64_t e = 0; e < s.d; ++e) {
          dq[r * s.d + e] += ds * k[(kv + j) * s.d + e];
          dk[(kv + j) * s.d + e] += ds * q[r * s.d + e];
          const double of_along = p[j] * slope[j] * scale;
          dq_squares[r * s.d + e] += square(ds * k[(kv + j) * s.d + e]);
          dk_squares[(kv + j) * s.d + e] +=
              (square(ds) + square(of_along) * along_squares) * square(q[r * s.d + e]);
          along_in_q[e] += of_along * k[(kv + j) * s.d + e];
        }
      }
      for (int64_t e = 0; e < s.d; ++e) dq_squares[r * s.d + e] += square(along_in_q[e]) * along_squares;
    }
  }

 private:
  static double square(double x) { return x * x; }
};

/// A term that is rounded is off by at most u of itself, and by u / sqrt(3) * 0.74 on average (root mean square), where the
/// second factor is that of mantissas from 1 to 2. So the sum's error has that part of the root of the squares as its
/// standard deviation, however many terms there are; six of them are allowed, and u for the rounding of the result.
inline void expect_within(const char* name, std::span<const double> got, DataType dtype,
                          const Values& expected, const Values& squares) {
  const double u = dtype == bfloat16 ? 0x1p-8 : 0x1p-11;
  ASSERT_EQ(got.size(), expected.size()) << name;
  for (size_t i = 0; i < expected.size(); ++i) {
    const double allowed =
        u * (6 * 0.74 / std::sqrt(3.0) * std::sqrt(squares[i]) + std::abs(expected[i])) + 1e-6;
    ASSERT_LE(std::abs(got[i] - expected[i]), allowed)
        << name << " element " << i << ": " << got[i] << " instead of " << expected[i];
  }
}

}  // namespace imbrex::testing
