// SPDX-License-Identifier: Apache-2.0
// What a matmul does to its product before it is stored: steps, one after the other, on the tile of sums in
// registers, so that nothing between product and result goes through memory.
//
//   Kernel<HopperMatmulH7<Scale, ColumnBias, Gelu>> layer({}, device);
//   layer(m, n, k, bfloat16, a, b, c, 0.5f, float32, bias);   // c = gelu(0.5 a b^T + bias)
//
// A step is a struct whose parameters (kernel.h) stand in the launch in its place, in order, and whose
// operator() takes a tile and gives a tile. Kernels without steps are what they would be without this file.
#pragma once

#include <limits>
#include <tuple>
#include <utility>

#include "imbrex/activation.h"
#include "imbrex/imbrex.h"

namespace imbrex::kernels {

/// A tile of the matrix that a kernel makes.
struct OutputTile {
  ScalarArg rows, columns;  ///< of the whole matrix
  DataType dtype;           ///< of its elements
  ScalarArg row, column;    ///< of the tile's first element
};

// ---------------------------------------------------------------------------------------------------------
// steps element by element

/// x * factor.
struct Scale {
  using Parameters = ParameterList<Float32>;
  Float32 factor;

  RegisterValue operator()(const RegisterBase& x, const OutputTile&) const { return x * factor; }
};

/// x * factor[0]: the factor is in device memory, as of a quantised tensor.
struct ScaleBy {
  using Parameters = ParameterList<Ptr<float32>>;
  Ptr<float32> factor;

  RegisterValue operator()(const RegisterBase& x, const OutputTile&) const {
    return x * load_global(global_view(factor, {1}), {0}, {1});
  }
};

/// x + bias[j] in column j; the bias is of any floating type.
struct ColumnBias {
  using Parameters = ParameterList<DataType, Ptr<>>;
  DataType dtype;
  Ptr<> bias;

  RegisterValue operator()(const RegisterBase& x, const OutputTile& at) const {
    return x + load_global(global_view(bias, dtype, {at.columns}), {at.column}, {x.shape(1)}).to(float32);
  }
};

/// x + bias[i] in row i; the bias is of any floating type.
struct RowBias {
  using Parameters = ParameterList<DataType, Ptr<>>;
  DataType dtype;
  Ptr<> bias;

  RegisterValue operator()(const RegisterBase& x, const OutputTile& at) const {
    auto rows = load_global(global_view(bias, dtype, {at.rows}), {at.row}, {x.shape(0)}).to(float32);
    return x + rows.reshape({x.shape(0), 1});
  }
};

/// x + factor * c, c a row-major matrix of the result's shape and type. It may be the result itself.
struct Residual {
  using Parameters = ParameterList<Float32, Ptr<>>;
  Float32 factor;
  Ptr<> c;

  RegisterValue operator()(const RegisterBase& x, const OutputTile& at) const {
    auto before = load_global(global_view(c, at.dtype, {at.rows, at.columns}), {at.row, at.column},
                              {x.shape(0), x.shape(1)});
    return fma(before.to(float32), factor, x);
  }
};

/// max(x, 0).
struct Relu {
  using Parameters = ParameterList<>;
  RegisterValue operator()(const RegisterBase& x, const OutputTile&) const { return max(x, 0.0f); }
};

/// 1 / x for x >= 1, by the approximate reciprocal root: beyond 2^64, zero.
inline RegisterValue reciprocal_above_one(const RegisterBase& x) { return rsqrt(x * x); }

/// x * sigmoid(x).
struct Silu {
  using Parameters = ParameterList<>;
  RegisterValue operator()(const RegisterBase& x, const OutputTile&) const {
    return x * reciprocal_above_one(exp(-x) + 1.0f);
  }
};

/// The tanh form of GELU, x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))): as x * sigmoid(2 ...), in
/// which nothing cancels where x is negative.
struct Gelu {
  using Parameters = ParameterList<>;
  RegisterValue operator()(const RegisterBase& x, const OutputTile&) const {
    constexpr float kSlope = -2 * 0.7978845608f;
    auto power = x * fma(x * x, 0.044715f * kSlope, kSlope);
    return x * reciprocal_above_one(exp(power) + 1.0f);
  }
};

/// GELU itself, x / 2 * (1 + erf(x / sqrt(2))), erf by formula 7.1.26 of Abramowitz and Stegun:
/// within 1.5e-7.
struct GeluErf {
  using Parameters = ParameterList<>;
  RegisterValue operator()(const RegisterBase& x, const OutputTile&) const {
    auto size = abs(x);
    auto t = reciprocal_above_one(fma(size, 0.3275911f * 0.7071067812f, 1.0f));
    auto series = fma(t, 1.061405429f, -1.453152027f);
    auto tail = t * fma(t, fma(t, fma(t, series, 1.421413741f), -0.284496736f), 0.254829592f) *
                exp(x * x * -0.5f);  // 1 - erf(size / sqrt(2))
    // Of a negative x what is left is the tail alone.
    return max(x, 0.0f) - 0.5f * size * tail;
  }
};

/// One of the above, or none, by a number.
struct Activate {
  using Parameters = ParameterList<Activation>;
  Activation function;

  RegisterValue operator()(const RegisterBase& x, const OutputTile& at) const {
    if (function == Activation::kRelu) return Relu()(x, at);
    if (function == Activation::kGelu) return Gelu()(x, at);
    if (function == Activation::kGeluErf) return GeluErf()(x, at);
    if (function == Activation::kSilu) return Silu()(x, at);
    return RegisterValue(x.handle());
  }
};

/// The result is of this type instead of the operands'.
struct Convert {
  using Parameters = ParameterList<DataType>;
  DataType dtype;

  DataType output_type(DataType) const { return dtype; }
  RegisterValue operator()(const RegisterBase& x, const OutputTile&) const {
    return RegisterValue(x.handle());
  }
};

/// A step, or nothing where `used` is false: for libraries that choose at run time, each choice a compiled
/// kernel.
template <class Step>
struct Optional {
  using Parameters = ParameterList<bool, Step>;
  bool used;
  Step step;

  DataType output_type(DataType dtype) const requires requires { step.output_type(dtype); }
  { return used ? step.output_type(dtype) : dtype; }
  RegisterValue operator()(const RegisterBase& x, const OutputTile& at) const {
    return used ? step(x, at) : RegisterValue(x.handle());
  }
};

// ---------------------------------------------------------------------------------------------------------
// all together

/// The steps of a kernel, a parameter of it.
template <class... Steps>
class Epilogue {
 public:
  using Parameters = ParameterList<Steps...>;
  static constexpr bool kEmpty = sizeof...(Steps) == 0;

  explicit Epilogue(Steps... steps) : steps_(std::move(steps)...) {}

  /// Of the result, where the operands are of this type.
  DataType output_type(DataType operands) const {
    DataType dtype = operands;
    std::apply([&](const auto&... step) { (take_type(step, dtype), ...); }, steps_);
    return dtype;
  }

  /// A tile of sums as it is to be stored.
  RegisterValue operator()(const RegisterBase& sums, const OutputTile& at) const { return run<0>(sums, at); }

 private:
  template <class Step>
  static void take_type(const Step& step, DataType& dtype) {
    if constexpr (requires { step.output_type(dtype); }) dtype = step.output_type(dtype);
  }
  template <size_t I>
  RegisterValue run(const RegisterBase& x, const OutputTile& at) const {
    if constexpr (I == sizeof...(Steps))
      return x.to(at.dtype);
    else
      return run<I + 1>(std::get<I>(steps_)(x, at), at);
  }

  std::tuple<Steps...> steps_;
};

}  // namespace imbrex::kernels
