// SPDX-License-Identifier: Apache-2.0
// Matrices that do not lie densely in memory, and batches of them: their strides are known when a kernel runs.
//
//   Kernel<HopperMatmulH7<Batch, Gelu>> layers({}, device);
//   layers(m, n, k, bfloat16, a, b, c, BatchArguments{...});   // c[i] = gelu(a[i] b[i]^T), in one launch
//
// A kernel takes them as a step of its epilogue, which changes no element: one without it compiles to the same code
// as one that knows nothing of strides.
#pragma once

#include <tuple>

#include "imbrex/kernels/parts/steps/optional.h"
#include "imbrex/kernels/parts/steps/output_tile.h"
#include "imbrex/lang.h"

namespace imbrex::kernels {

/// From one row of a matrix to the next (BLAS's leading dimension: lda, ldb, ldc), and from one matrix of a batch to
/// the next; 0 where all use the same. In units of `unit` elements, the most that divide both and that the address is
/// a multiple of: what vector accesses rely on. TMA needs units of 16 bytes.
struct MatrixStrides {
  using Parameters = ParameterList<int, Int64, Int64>;
  int unit;
  Int64 row, batch;

  /// All matrices: [matrices, rows, columns].
  GlobalTensor view(const PtrArg& pointer, DataType dtype, const ScalarArg& matrices, const ScalarArg& rows,
                    const ScalarArg& columns) const {
    return global_view(pointer, dtype, {matrices, rows, columns}, {batch * unit, row * unit, 1});
  }
};
/// What a launch passes for MatrixStrides.
struct MatrixStridesArguments {
  int unit;
  int64_t row, batch;
  auto arguments() const { return std::tie(unit, row, batch); }
};

/// A product of every matrix of a batch. An operand that has k first in memory (a_is_km, b_is_kn) has rows of k.
struct Batch {
  using Parameters = ParameterList<Int32, MatrixStrides, MatrixStrides, MatrixStrides, bool>;
  Int32 matrices;
  MatrixStrides a, b, c;
  bool c_has_tma_rows;  ///< TMA can store C: its units, and its rows, have multiples of 16 bytes

  RegisterValue operator()(const RegisterBase& x, const OutputTile&) const {
    return RegisterValue(x.handle());
  }
};
/// What a launch passes for a Batch.
struct BatchArguments {
  int64_t matrices;
  MatrixStridesArguments a, b, c;
  bool c_has_tma_rows;
  auto arguments() const { return std::tie(matrices, a, b, c, c_has_tma_rows); }
};

/// x + factor * c, as Residual, where c has strides.
struct BatchResidual {
  using Parameters = ParameterList<Float32, Ptr<>, Int32, MatrixStrides>;
  Float32 factor;
  Ptr<> c;
  Int32 matrices;
  MatrixStrides strides;

  RegisterValue operator()(const RegisterBase& x, const OutputTile& at) const {
    auto all = strides.view(c, at.dtype, matrices, at.rows, at.columns);
    auto before = load_global(all[at.matrix], {at.row, at.column}, {x.shape(0), x.shape(1)});
    return fma(before.to(float32), factor, x);
  }
};

namespace detail {
template <class Step>
const Batch* batch_of(const Step&) {
  return nullptr;
}
inline const Batch* batch_of(const Batch& batch) { return &batch; }
}  // namespace detail

/// Which matrix of the batch a tile belongs to, and which of its tiles it is.
struct TileOfBatch {
  ScalarArg matrix, tile;
};
/// Tiles are numbered matrix by matrix, of `tiles` each. Without a batch there is one matrix.
inline TileOfBatch tile_of_batch(const Batch* batch, const ScalarArg& tile, const ScalarArg& tiles) {
  if (batch == nullptr) return {0, tile};
  const auto [matrix, rest] = fast_divmod(tile, tiles);
  return {matrix, rest};
}

/// The matrix of a batch's view, or the only one.
inline GlobalTensor matrix_of(const Batch* batch, const GlobalTensor& all, const ScalarArg& matrix) {
  return batch == nullptr ? all : all[matrix];
}

}  // namespace imbrex::kernels
