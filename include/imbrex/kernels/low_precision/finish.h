// SPDX-License-Identifier: Apache-2.0
// What a product with packed weights does to its sums before they are stored: the steps that matmul()'s options ask for.
#pragma once

#include <tuple>

#include "imbrex/kernels/parts/epilogue.h"

namespace imbrex::kernels {

/// In order: the factors of X's rows, one factor for all, a bias per column or per row, another matrix, an activation.
using PackedFinish = Epilogue<ScaleByFactors, Optional<Scale>, Optional<ColumnBias>, Optional<RowBias>,
                              Optional<BatchResidual>, Activate>;

/// What a launch passes for it; none of the steps, unless told. Where a step is not used its address must still be one.
struct PackedFinishArguments {
  explicit PackedFinishArguments(uint64_t any_address, DataType type)
      : row_factors(any_address), bias_type(type), bias(any_address), residual(any_address) {}

  int factors = static_cast<int>(Factors::kNone);
  uint64_t row_factors;
  bool scales = false;
  float alpha = 1;
  bool has_column_bias = false, has_row_bias = false;
  DataType bias_type;
  uint64_t bias;
  bool has_residual = false;
  float beta = 0;
  uint64_t residual;
  int64_t matrices = 1;
  MatrixStridesArguments residual_strides = {1, 0, 0};
  Activation activation = Activation::kNone;

  auto arguments() const {
    return std::tie(factors, row_factors, scales, alpha, has_column_bias, bias_type, bias, has_row_bias,
                    bias_type, bias, has_residual, beta, residual, matrices, residual_strides, activation);
  }
};

}  // namespace imbrex::kernels
