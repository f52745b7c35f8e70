// SPDX-License-Identifier: Apache-2.0
// The activations in float64.
#pragma once

#include <algorithm>
#include <cmath>
#include <numbers>

#include "imbrex/kernels/activation.h"

namespace imbrex::testing {

inline double activation(Activation function, double x) {
  switch (function) {
    case Activation::kRelu:
      return std::max(x, 0.0);
    case Activation::kGelu:
    case Activation::kGeluFast:
      return x / 2 * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
    case Activation::kGeluErf:
      return x / 2 * std::erfc(-x / std::numbers::sqrt2);
    case Activation::kSilu:
      return x / (1 + std::exp(-x));
    default:
      return x;
  }
}

}  // namespace imbrex::testing
