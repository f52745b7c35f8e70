// SPDX-License-Identifier: Apache-2.0
// Steps that reduce rows: they see every part of a tile before they change the first.
//
// Such a step has Statistics, one of each row ([rows, 1]); begin() gives those of no columns, look() takes note
// of a part of the tile, and operator() changes a part by the statistics of the whole row.
#pragma once

#include <limits>

#include "imbrex/kernels/parts/steps/output_tile.h"
#include "imbrex/lang.h"

namespace imbrex::kernels {

template <class Step>
concept RowStep = requires {
  typename Step::Statistics;  // of each row of a tile, [rows, 1]
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

/// x inside the matrix, `other` in columns beyond it. No instruction where the part is known to lie inside.
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
    RegisterTensor maximum, sum;  // of the parts seen so far
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

}  // namespace imbrex::kernels
