// SPDX-License-Identifier: Apache-2.0
// Attention in float64, for verification.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <vector>

#include "imbrex/runtime/compare.h"

namespace imbrex::kernels {

/// One row of attention: weights by the scores of the columns it sees, softmax, mean of the values.
struct RowReference {
  std::vector<double> weights;

  /// `key(j)` and `value(j)`: where row j of K and V begins; `q`: the row of Q. `seen` columns.
  template <class Key>
  void weigh(const double* q, int64_t d, double scale, int64_t seen, const Key& key) {
    weights.resize(static_cast<size_t>(seen));
    if (weights.empty()) return;
    for (int64_t j = 0; j < seen; ++j) weights[j] = scale * std::inner_product(q, q + d, key(j), 0.0);
    const double largest = *std::max_element(weights.begin(), weights.end());
    double total = 0;
    for (double& weight : weights) total += weight = std::exp(weight - largest);
    for (double& weight : weights) weight /= total;
  }
  template <class Value>
  double mean(int64_t column, const Value& value) const {
    double sum = 0;
    for (size_t j = 0; j < weights.size(); ++j) sum += weights[j] * value(static_cast<int64_t>(j))[column];
    return sum;
  }
};

}  // namespace imbrex::kernels
