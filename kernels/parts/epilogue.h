// SPDX-License-Identifier: Apache-2.0
// What a matmul does to its product before it is stored (or to A when it is loaded): steps, one after the
// other, on the tile of sums in registers, so that nothing between product and result goes through memory.
//
//   Kernel<HopperMatmulH7<Scale, ColumnBias, Gelu>> layer({}, device);
//   layer(m, n, k, bfloat16, a, b, c, 0.5f, float32, bias);   // c = gelu(0.5 a b^T + bias)
//
// A step is a struct whose parameters (kernel.h) stand in the launch in its place, in order, and whose
// operator() takes a tile and gives a tile. One step of a kernel may reduce rows, where a tile is as wide as
// the matrix. Kernels without steps are what they would be without this file.
#pragma once

#include <limits>
#include <tuple>
#include <utility>

#include "imbrex/kernels/activation.h"
#include "imbrex/lang.h"

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

/// x * scale[j] in column j; the scales are of any floating type.
struct ColumnScale {
  using Parameters = ParameterList<DataType, Ptr<>>;
  DataType dtype;
  Ptr<> scale;

  RegisterValue operator()(const RegisterBase& x, const OutputTile& at) const {
    return x * load_global(global_view(scale, dtype, {at.columns}), {at.column}, {x.shape(1)}).to(float32);
  }
};

/// x * scale[i] in row i; the scales are of any floating type.
struct RowScale {
  using Parameters = ParameterList<DataType, Ptr<>>;
  DataType dtype;
  Ptr<> scale;

  RegisterValue operator()(const RegisterBase& x, const OutputTile& at) const {
    auto rows = load_global(global_view(scale, dtype, {at.rows}), {at.row}, {x.shape(0)}).to(float32);
    return x * rows.reshape({x.shape(0), 1});
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

/// The tanh form of GELU, x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))): as x * sigmoid(2 ...), in
/// which nothing cancels where x is negative.
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
    // Half of the series, so that nothing is halved later.
    auto series = fma(t, fma(t, 0.5f * 1.061405429f, 0.5f * -1.453152027f), 0.5f * 1.421413741f);
    auto sum = fma(t, fma(t, series, 0.5f * -0.284496736f), 0.5f * 0.254829592f);
    auto half_tail = t * sum * exp2(x * x * (-0.5f * kLog2E));  // (1 - erf(size / sqrt(2))) / 2
    // Of a negative x what is left is the tail alone.
    return fma(-size, half_tail, max(x, 0.0f));
  }
};

/// One of the above, or none, by a number.
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
// steps that reduce rows: they look at every part of a tile before they change the first

template <class Step>
concept RowStep = requires {
  typename Step::Statistics;  // of each row of a tile, [rows, 1]
};

/// x in the columns of the matrix, `other` beyond. Where both are numbers, parts that are whole cost nothing.
inline RegisterValue within_matrix(const RegisterBase& x, const OutputTile& at, float other) {
  if (at.column.is_number() && at.columns.is_number() && at.column.integer + x.shape(1) <= at.columns.integer)
    return RegisterValue(x.handle());
  return select(register_tensor(boolean, {x.shape(1)}, [&](auto j) { return at.column + j < at.columns; }), x,
                other);
}

/// exp(x) divided by its sum along the row; the row's maximum is subtracted first.
struct Softmax {
  using Parameters = ParameterList<>;
  struct Statistics {
    RegisterTensor maximum, sum;  // of what has been seen
  };

  Statistics begin(int64_t rows) const {
    return {full(float32, {rows, 1}, std::numeric_limits<float>::lowest()), zeros(float32, {rows, 1})};
  }
  void look(Statistics& row, const RegisterBase& x, const OutputTile& at) const {
    auto seen = within_matrix(x, at, -std::numeric_limits<float>::infinity());
    auto maximum = max(row.maximum, max(seen, {.axis = 1, .keep = true}));
    auto sum_here = sum(exp(seen - maximum), {.axis = 1, .keep = true});
    row.sum = row.sum * exp(row.maximum - maximum) + sum_here;
    row.maximum = maximum;
  }
  RegisterValue operator()(const Statistics& row, const RegisterBase& x, const OutputTile&) const {
    return exp(x - row.maximum) * (1.0f / row.sum);
  }
};

/// x / sqrt(mean of x^2 along the row + epsilon) * weight[j] in column j; the weight is of any floating type.
struct RmsNorm {
  using Parameters = ParameterList<Float32, DataType, Ptr<>>;
  Float32 epsilon;
  DataType dtype;
  Ptr<> weight;
  struct Statistics {
    RegisterTensor squares;  // summed
  };

  Statistics begin(int64_t rows) const { return {zeros(float32, {rows, 1})}; }
  void look(Statistics& row, const RegisterBase& x, const OutputTile& at) const {
    auto seen = within_matrix(x, at, 0);
    row.squares += sum(seen * seen, {.axis = 1, .keep = true});
  }
  RegisterValue operator()(const Statistics& row, const RegisterBase& x, const OutputTile& at) const {
    auto weights = load_global(global_view(weight, dtype, {at.columns}), {at.column}, {x.shape(1)});
    return x * rsqrt(row.squares / at.columns + epsilon) * weights.to(float32);
  }
};

namespace detail {
struct NoStatistics {};
template <class Step>
struct StatisticsOf {
  using Type = NoStatistics;
};
template <RowStep Step>
struct StatisticsOf<Step> {
  using Type = typename Step::Statistics;
};
}  // namespace detail

// ---------------------------------------------------------------------------------------------------------
// all together

/// The steps of a kernel, a parameter of it.
template <class... Steps>
class Epilogue {
 public:
  using Parameters = ParameterList<Steps...>;
  static constexpr bool kEmpty = sizeof...(Steps) == 0;
  static constexpr bool kReducesRows = (RowStep<Steps> || ...);
  static_assert((0 + ... + RowStep<Steps>) <= 1, "one step of a kernel may reduce rows");

  explicit Epilogue(Steps... steps) : steps_(std::move(steps)...) {}

  /// Of the result, where the operands are of this type.
  DataType output_type(DataType operands) const {
    DataType dtype = operands;
    std::apply([&](const auto&... step) { (take_type(step, dtype), ...); }, steps_);
    return dtype;
  }

  /// CompileError, of the kernel's line, where rows of the matrix do not fit the tile that the steps see of
  /// them.
  void check(int64_t n_size, int64_t block_n, SourceLocation where = SourceLocation::current()) const {
    require(
        {!kReducesRows || n_size <= block_n, where},
        "rows of {} columns are reduced, tiles have {}: take a tile as wide as the matrix, or make the "
        "steps from the one that reduces on a kernel of their own, ApplySteps (kernels/parts/apply_steps.h)",
        n_size, block_n);
  }

  /// The rows of one tile, which the steps get in parts.
  class Rows {
   public:
    Rows(const Epilogue& epilogue, int64_t rows)
        : epilogue_(epilogue),
          statistics_(std::apply([&](const auto&... step) { return Statistics{begin(step, rows)...}; },
                                 epilogue.steps_)) {}

    /// Takes note of a part. With kReducesRows, before the first part is finished, each is to be looked at.
    void look(const RegisterBase& sums, const OutputTile& at) { look_from<0>(sums, at); }
    /// The part as it is to be stored.
    RegisterValue operator()(const RegisterBase& sums, const OutputTile& at) const {
      return run<0>(sums, at);
    }

   private:
    using Statistics = std::tuple<typename detail::StatisticsOf<Steps>::Type...>;
    template <class Step>
    static auto begin(const Step& step, int64_t rows) {
      if constexpr (RowStep<Step>)
        return step.begin(rows);
      else
        return detail::NoStatistics();
    }
    template <size_t I>
    RegisterValue step(const RegisterBase& x, const OutputTile& at) const {
      if constexpr (RowStep<std::tuple_element_t<I, std::tuple<Steps...>>>)
        return std::get<I>(epilogue_.steps_)(std::get<I>(statistics_), x, at);
      else
        return std::get<I>(epilogue_.steps_)(x, at);
    }
    template <size_t I>
    void look_from([[maybe_unused]] const RegisterBase& x, [[maybe_unused]] const OutputTile& at) {
      if constexpr (I < sizeof...(Steps)) {
        if constexpr (RowStep<std::tuple_element_t<I, std::tuple<Steps...>>>)
          std::get<I>(epilogue_.steps_).look(std::get<I>(statistics_), x, at);
        else
          look_from<I + 1>(step<I>(x, at), at);
      }
    }
    template <size_t I>
    RegisterValue run(const RegisterBase& x, const OutputTile& at) const {
      if constexpr (I == sizeof...(Steps))
        return x.to(at.dtype);
      else
        return run<I + 1>(step<I>(x, at), at);
    }

    const Epilogue& epilogue_;
    Statistics statistics_;
  };
  Rows rows(int64_t rows) const { return Rows(*this, rows); }

  /// A tile of sums, with all columns that it will have, as it is to be stored.
  RegisterValue operator()(const RegisterBase& sums, const OutputTile& at) const {
    Rows rows(*this, sums.shape(0));
    if constexpr (kReducesRows) rows.look(sums, at);
    return rows(sums, at);
  }

 private:
  template <class Step>
  static void take_type(const Step& step, DataType& dtype) {
    if constexpr (requires { step.output_type(dtype); }) dtype = step.output_type(dtype);
  }

  std::tuple<Steps...> steps_;
};

}  // namespace imbrex::kernels
