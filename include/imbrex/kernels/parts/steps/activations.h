// SPDX-License-Identifier: Apache-2.0
// Activation functions, element by element.
#pragma once

#include "imbrex/kernels/activation.h"
#include "imbrex/kernels/parts/steps/output_tile.h"
#include "imbrex/lang.h"

namespace imbrex::kernels {

/// max(x, 0).
struct Relu {
  using Parameters = ParameterList<>;
  RegisterValue operator()(const RegisterBase& x, const OutputTile&) const { return max(x, 0.0f); }
};

inline constexpr float kLog2E = 1.4426950409f;

/// 1 / x for x >= 1, by the approximate reciprocal root: beyond 2^64, zero.
inline RegisterValue reciprocal_above_one(const RegisterBase& x) { return rsqrt(x * x); }

/// x * sigmoid(x).
struct Silu {
  using Parameters = ParameterList<>;
  RegisterValue operator()(const RegisterBase& x, const OutputTile&) const {
    return x * reciprocal_above_one(exp(-x) + 1.0f);
  }
};

/// The tanh form of GELU, x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))), computed as
/// x * sigmoid(2 ...), which has no cancellation for negative x.
struct Gelu {
  using Parameters = ParameterList<>;
  RegisterValue operator()(const RegisterBase& x, const OutputTile&) const {
    constexpr float kSlope = -2 * 0.7978845608f * kLog2E;
    auto power = x * fma(x * x, 0.044715f * kSlope, kSlope);
    return x * reciprocal_above_one(exp2(power) + 1.0f);
  }
};

/// The tanh form of GELU by the approximate tanh instruction, a third of the work: within 3e-4 |x|.
struct GeluFast {
  using Parameters = ParameterList<>;
  RegisterValue operator()(const RegisterBase& x, const OutputTile&) const {
    constexpr float kSlope = 0.7978845608f;
    auto half = x * 0.5f;
    return fma(half, tanh(x * fma(x * x, 0.044715f * kSlope, kSlope)), half);
  }
};

/// GELU itself, x / 2 * (1 + erf(x / sqrt(2))), erf by formula 7.1.26 of Abramowitz and Stegun:
/// within 1.5e-7.
struct GeluErf {
  using Parameters = ParameterList<>;
  RegisterValue operator()(const RegisterBase& x, const OutputTile&) const {
    auto size = abs(x);
    auto t = reciprocal_above_one(fma(size, 0.3275911f * 0.7071067812f, 1.0f));
    // Half of the series, so that the result need not be halved.
    auto series = fma(t, fma(t, 0.5f * 1.061405429f, 0.5f * -1.453152027f), 0.5f * 1.421413741f);
    auto sum = fma(t, fma(t, series, 0.5f * -0.284496736f), 0.5f * 0.254829592f);
    auto half_tail = t * sum * exp2(x * x * (-0.5f * kLog2E));  // (1 - erf(size / sqrt(2))) / 2
    // For negative x only the tail remains.
    return fma(-size, half_tail, max(x, 0.0f));
  }
};

/// The activation that the enumeration names.
struct Activate {
  using Parameters = ParameterList<Activation>;
  Activation function;

  RegisterValue operator()(const RegisterBase& x, const OutputTile& at) const {
    if (function == Activation::kRelu) return Relu()(x, at);
    if (function == Activation::kGelu) return Gelu()(x, at);
    if (function == Activation::kGeluFast) return GeluFast()(x, at);
    if (function == Activation::kGeluErf) return GeluErf()(x, at);
    if (function == Activation::kSilu) return Silu()(x, at);
    return RegisterValue(x.handle());
  }
};

}  // namespace imbrex::kernels
