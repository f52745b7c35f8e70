// SPDX-License-Identifier: Apache-2.0
// A row of attention in float64, for verification, with how far a kernel may be off.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>
#include <vector>

#include "attention/rounded_sum.h"

namespace imbrex::kernels {

/// The types that matter for how exact a kernel is: of Q and K, of the weights as they are multiplied, and of the result.
struct AttentionTypes {
  DataType factors, weights, result;
  explicit AttentionTypes(DataType all) : factors(all), weights(all), result(all) {}
  AttentionTypes(DataType factors, DataType weights, DataType result)
      : factors(factors), weights(weights), result(result) {}
};

/// A score in float64, and how far float32 may be off.
struct RowScore {
  double value, error;
};
/// `scale` q k, of rows of d elements.
inline RowScore score_of(const double* q, const double* k, int64_t d, double scale, DataType factors) {
  double value = 0, size = 0;
  for (int64_t e = 0; e < d; ++e) value += q[e] * k[e], size += std::abs(q[e] * k[e]);
  return {scale * value, scale * (summing(d, factors) * size + 0x1p-23 * std::abs(value))};
}
/// cap * tanh(score / cap).
inline RowScore capped(const RowScore& score, double cap) {
  const double t = std::tanh(score.value / cap);
  return {cap * t, score.error + std::abs(cap * t) * (kTanh + 0x1p-22)};
}

/// One row of attention: weights by the scores of the columns it sees, softmax, mean of the values.
class RowReference {
 public:
  /// Scores of columns that are not seen are -infinity. `sink`: a score without a value.
  void weigh(const std::vector<RowScore>& scores, std::optional<double> sink = {}) {
    const size_t n = scores.size();
    weights_.resize(n), errors_.resize(n);
    largest_ = sink.value_or(kNone);
    for (const RowScore& score : scores) largest_ = std::max(largest_, score.value);
    double total = sink ? std::exp(*sink - largest_) : 0;
    for (size_t j = 0; j < n; ++j)
      total += weights_[j] = scores[j].value == kNone ? 0 : std::exp(scores[j].value - largest_);
    seen_ = total > 0;
    log_sum_ = seen_ ? largest_ + std::log(total) : kNone;
    // A weight is an exponential of a difference, which is rounded by its parts' sizes; where the maximum grows, all before is
    // multiplied by another, once for each block at the most.
    const auto blocks = static_cast<double>(n) / 16 + 2;
    double error = 0;
    for (size_t j = 0; j < n; ++j) {
      weights_[j] = seen_ ? weights_[j] / total : 0;
      if (weights_[j] == 0) {
        errors_[j] = 0;
        continue;
      }
      const double size = std::abs(scores[j].value) + 2 * std::abs(largest_) + 1;
      const double rescaled = blocks * (kApproximate + 0x1p-23 * std::abs(largest_));
      errors_[j] = weights_[j] * (scores[j].error + 0x1p-23 * size + kApproximate + rescaled);
      error += errors_[j];
    }
    error_of_total_ = error + static_cast<double>(n) * 0x1p-24 + 2 * kApproximate;
    unit_ = seen_ ? 1 / total : 0;
  }

  /// Rows of `d` elements without masks: `key(j)` is where row j of K begins, `seen` how many there are.
  template <class Key>
  void weigh(const double* q, int64_t d, double scale, int64_t seen, DataType factors, const Key& key) {
    scores_.clear();
    for (int64_t j = 0; j < seen; ++j) scores_.push_back(score_of(q, key(j), d, scale, factors));
    weigh(scores_);
  }

  /// Column `column` of the result; `value(j)`: where row j of V begins.
  template <class Value>
  Bounded mean(int64_t column, const AttentionTypes& types, const Value& value) const {
    RoundedSum sum;
    for (size_t j = 0; j < weights_.size(); ++j)
      if (weights_[j] != 0) sum.add(weights_[j], errors_[j], value(static_cast<int64_t>(j))[column]);
    if (!seen_) return {};
    // Weights of float8 are multiplied by 2^8 (kFloat8WeightExponent), so that they are not too small for it.
    const double unit = types.weights == float8_e4m3 ? unit_ * 0x1p-8 : unit_;
    return sum.result(rounding_to(types.weights), unit, types.factors, rounding_to(types.result), 1,
                      error_of_total_);
  }
  /// The logarithm of the sum of weights.
  Bounded log_sum() const {
    return {log_sum_, seen_ ? error_of_total_ + 0x1p-21 * (1 + std::abs(log_sum_) + std::abs(largest_)) : 0};
  }

  static constexpr double kNone = -std::numeric_limits<double>::infinity();

 private:
  std::vector<double> weights_, errors_;
  std::vector<RowScore> scores_;
  double largest_ = 0, log_sum_ = 0, error_of_total_ = 0, unit_ = 0;
  bool seen_ = false;
};

}  // namespace imbrex::kernels
