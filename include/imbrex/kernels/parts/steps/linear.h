// SPDX-License-Identifier: Apache-2.0
// Steps that scale and add: factors, biases, a residual.
#pragma once

#include "imbrex/kernels/parts/steps/output_tile.h"
#include "imbrex/lang.h"

namespace imbrex::kernels {

/// x * factor.
struct Scale {
  using Parameters = ParameterList<Float32>;
  Float32 factor;

  RegisterValue operator()(const RegisterBase& x, const OutputTile&) const { return x * factor; }
};

/// x * factor[0]: the factor is in device memory, as that of a quantised tensor is.
struct ScaleBy {
  using Parameters = ParameterList<Ptr<float32>>;
  Ptr<float32> factor;

  RegisterValue operator()(const RegisterBase& x, const OutputTile&) const {
    return x * load_global(global_view(factor, {1}), {0}, {1});
  }
};

/// What the factors of a quantised operand belong to.
enum class Factors : uint8_t { kNone, kOne, kPerRow, kPerColumn };

/// x * factor, which is in device memory: one for all of x, or one for each row or each column.
struct ScaleByFactors {
  using Parameters = ParameterList<int, Ptr<float32>>;
  int of;  ///< Factors
  Ptr<float32> factors;

  RegisterValue operator()(const RegisterBase& x, const OutputTile& at) const {
    switch (static_cast<Factors>(of)) {
      case Factors::kOne:
        return x * load_global(global_view(factors, {1}), {0}, {1});
      case Factors::kPerRow:
        return x *
               load_global(global_view(factors, {at.rows}), {at.row}, {x.shape(0)}).reshape({x.shape(0), 1});
      case Factors::kPerColumn:
        return x * load_global(global_view(factors, {at.columns}), {at.column}, {x.shape(1)});
      default:
        return RegisterValue(x.handle());
    }
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

}  // namespace imbrex::kernels
