// SPDX-License-Identifier: Apache-2.0
// Results of a matmul that need more of a product than its elements one by one: gated products, and results that
// are quantised by blocks. Steps of an epilogue which the kernel carries out; by themselves they change nothing.
#pragma once

#include "imbrex/kernels/parts/epilogue.h"
#include "imbrex/lang.h"

namespace imbrex::kernels {

/// C = activation(A B^T) * (A U^T): half of a tile's columns are those of B, half of U.
struct GatedBy {
  using Parameters = ParameterList<bool, Activation, Ptr<>>;
  bool used;
  Activation activation;
  Ptr<> up;  ///< U, like B

  RegisterValue operator()(const RegisterBase& x, const OutputTile&) const {
    return RegisterValue(x.handle());
  }
  GlobalTensor view(DataType dtype, const ScalarArg& groups, const ScalarArg& n_size,
                    const ScalarArg& k_size) const {
    return global_view(up, dtype, {groups, n_size, k_size});
  }
  RegisterValue apply(const RegisterBase& gate, const RegisterBase& factor) const {
    return Activate{activation}(gate, OutputTile{0, 0, float32, 0, 0}) * factor;
  }
};

/// C in float8_e4m3 with a scale for each row of each 128 columns: the largest magnitude there becomes 448.
struct QuantiseBlocks {
  static constexpr int kBlock = 128;
  static constexpr float kLargest = 448;
  using Parameters = ParameterList<bool, Ptr<float32>, Int64>;
  bool used;
  Ptr<float32> scale;  ///< [n / 128, rows of C], rows of it `stride` apart
  Int64 stride;

  RegisterValue operator()(const RegisterBase& x, const OutputTile&) const {
    return RegisterValue(x.handle());
  }
  /// The largest magnitude of each row of a block, [rows, 1]. Columns beyond the matrix are zero.
  static RegisterValue largest_of(const RegisterBase& x) { return max(abs(x), {.axis = 1, .keep = true}); }
  static RegisterValue factor_of(const RegisterBase& largest) {
    return select(largest > 0.0f, kLargest / largest, 1.0f);
  }
  /// Stores the scales of the block at (row, column), of rows before `end`.
  void store(const RegisterBase& largest, const ScalarArg& end, const ScalarArg& columns,
             const ScalarArg& row, const ScalarArg& column) const {
    auto g_scale = global_view(scale, {cdiv(columns, kBlock), end}, {stride, 1});
    store_global(g_scale,
                 select(largest > 0.0f, largest * (1 / kLargest), 1.0f).reshape({1, largest.shape(0)}),
                 {column / kBlock, row});
  }
};

/// The step of an epilogue, where it is there and used; else null.
template <class Step, class... Steps>
const Step* used_step(const Epilogue<Steps...>& finish) {
  const Step* const step = finish.template find<Step>();
  return step != nullptr && step->used ? step : nullptr;
}

}  // namespace imbrex::kernels
