// SPDX-License-Identifier: Apache-2.0
// The softmax of rows whose scores come block by block: a larger maximum scales down what has been summed so far.
#pragma once

#include <cmath>
#include <limits>

#include "imbrex/lang.h"

namespace imbrex::kernels {

/// Maximum and sum of each row of `rows`, as far as the blocks have been seen.
class OnlineSoftmax {
 public:
  /// Scores are multiplied by `scale` before they become exponents, unless they `are_scaled` already. All weights are
  /// 2 to the `weight_exponent` times what they would be, for types whose range is small.
  OnlineSoftmax(int64_t rows, const ScalarArg& scale, bool are_scaled = false, int weight_exponent = 0)
      : largest(full(float32, {rows, 1}, kLeast)),
        total(zeros(float32, {rows, 1})),
        scale_(are_scaled ? ScalarArg(1.f) : scale),
        to_exponent_(scale_ * 1.44269504f),  // exp(x) is 2 to the x log2(e)
        weight_exponent_(weight_exponent) {}

  /// Before the first block: a scaled score that takes part in the sum of weights and has no value.
  void begin_with(const RegisterBase& score) {
    largest = score * (1 / scale_);
    total = total + std::ldexp(1.f, weight_exponent_);
  }
  /// The same for rows where it `takes_part`, a bool tile: of those that have parts of a row's columns, one has it.
  void begin_with(const RegisterBase& score, const RegisterBase& takes_part) {
    largest = select(takes_part, score * (1 / scale_), largest);
    total = total + select(takes_part, std::ldexp(1.f, weight_exponent_), 0.f);
  }

  /// Turns a block's scores, of which masked ones are -infinity, into weights; returns the factor by which
  /// what has been summed so far shrinks, [rows, 1].
  RegisterValue weigh(RegisterTensor& scores) {
    auto larger = max(largest, max(scores, {.axis = 1, .keep = true}));
    auto shrink = exp2((largest - larger) * to_exponent_);
    auto offset = larger * to_exponent_;
    scores = exp2(fma(scores, to_exponent_, weight_exponent_ == 0 ? -offset : weight_exponent_ - offset));
    total = total * shrink + sum(scores, {.axis = 1, .keep = true});
    largest = larger;
    return shrink;
  }

  /// The same of scores that are still to be multiplied by `scale`, which is positive, before `scale` of all scores is.
  RegisterValue weigh(RegisterTensor& scores, const ScalarArg& scale) {
    auto to_exponent = scale * to_exponent_;
    auto larger = max(largest, max(scores, {.axis = 1, .keep = true}) * scale);
    auto shrink = exp2((largest - larger) * to_exponent_);
    scores = exp2(fma(scores, to_exponent, weight_exponent_ - larger * to_exponent_));
    total = total * shrink + sum(scores, {.axis = 1, .keep = true});
    largest = larger;
    return shrink;
  }

  /// What the weighted sum is multiplied by in the end; 0 for a row that has seen nothing.
  RegisterValue inverse() const {
    // Of a number that is 1 at least, without the branches of an exactly rounded division: off by some 2^-22.
    auto root = rsqrt(total);
    return select(total > 0, root * root, 0);
  }
  /// The logarithm of the sum of exp(scale * score); -infinity for a row that has seen nothing.
  RegisterValue log_sum_exp() const {
    constexpr float kNone = -std::numeric_limits<float>::infinity();
    auto log_total = weight_exponent_ == 0 ? log(total) : log(total * std::ldexp(1.f, -weight_exponent_));
    return select(total > 0, largest * scale_ + log_total, kNone);
  }

  /// What turns `largest` into the largest score.
  const ScalarArg& scale() const { return scale_; }

  static constexpr float kLeast = -1e30f;  // below every score; finite, because it is subtracted
  RegisterTensor largest, total;

 private:
  ScalarArg scale_;
  Expr to_exponent_;
  int weight_exponent_;
};

}  // namespace imbrex::kernels
