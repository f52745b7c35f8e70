// SPDX-License-Identifier: Apache-2.0
// The functions that layers of neural networks end with.
#pragma once

#include <cstdint>

namespace imbrex {

/// Element by element: max(x, 0); GELU in its tanh form, x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)));
/// GELU itself, x / 2 (1 + erf(x / sqrt(2))), within 1e-7 |x|; SiLU, x / (1 + exp(-x)).
enum class Activation : uint8_t { kNone, kRelu, kGelu, kGeluErf, kSilu };

}  // namespace imbrex
