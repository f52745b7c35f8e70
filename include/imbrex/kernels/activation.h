// SPDX-License-Identifier: Apache-2.0
// The functions that layers of neural networks end with.
#pragma once

#include <cstdint>

namespace imbrex {

enum class Activation : uint8_t {
  kNone,
  kRelu,      ///< max(x, 0)
  kGelu,      ///< the tanh form of GELU, x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))
  kGeluFast,  ///< the same by the approximate tanh instruction, within 3e-4 |x|
  kGeluErf,   ///< GELU itself, x / 2 (1 + erf(x / sqrt(2))), within 1e-7 |x|
  kSilu,      ///< x / (1 + exp(-x))
};

}  // namespace imbrex
