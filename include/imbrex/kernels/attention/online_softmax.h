// SPDX-License-Identifier: Apache-2.0
// The softmax of rows whose scores come block by block: a larger maximum scales down what has been summed so far.
#pragma once

#include <limits>

#include "imbrex/lang.h"

namespace imbrex::kernels {

/// Maximum and sum of each row of `rows`, as far as the blocks have been seen.
class OnlineSoftmax {
 public:
  /// Scores are multiplied by `scale` before they become exponents, unless they `are_scaled` already.
  OnlineSoftmax(int64_t rows, float scale, bool are_scaled = false)
      : largest(full(float32, {rows, 1}, kLeast)),
        total(zeros(float32, {rows, 1})),
        scale_(are_scaled ? 1 : scale),
        to_exponent_(scale_ * 1.44269504f) {}  // exp(x) is 2 to the x log2(e)

  /// Before the first block: a scaled score that takes part in the sum of weights and has no value.
  void begin_with(const RegisterBase& score) {
    largest = score * (1 / scale_);
    total = total + 1;
  }

  /// Turns a block's scores, of which masked ones are -infinity, into weights; returns the factor by which
  /// what has been summed so far shrinks, [rows, 1].
  RegisterValue weigh(RegisterTensor& scores) {
    auto larger = max(largest, max(scores, {.axis = 1, .keep = true}));
    auto shrink = exp2((largest - larger) * to_exponent_);
    scores = exp2(fma(scores, to_exponent_, -(larger * to_exponent_)));
    total = total * shrink + sum(scores, {.axis = 1, .keep = true});
    largest = larger;
    return shrink;
  }

  /// What the weighted sum is multiplied by in the end; 0 for a row that has seen nothing.
  RegisterValue inverse() const { return select(total > 0, 1 / total, 0); }
  /// The logarithm of the sum of exp(scale * score); -infinity for a row that has seen nothing.
  RegisterValue log_sum_exp() const {
    return select(total > 0, largest * scale_ + log(total), -std::numeric_limits<float>::infinity());
  }

  static constexpr float kLeast = -1e30f;  // below every score; finite, because it is subtracted
  RegisterTensor largest, total;

 private:
  float scale_, to_exponent_;
};

}  // namespace imbrex::kernels
