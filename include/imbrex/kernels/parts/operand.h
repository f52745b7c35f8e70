// SPDX-License-Identifier: Apache-2.0
// Operands of a matmul, [rows, k], in either order of memory: k contiguous, or the rows. Code that uses them
// through these views is the same for both.
#pragma once

#include "imbrex/kernels/parts/batch.h"
#include "imbrex/lang.h"

namespace imbrex::kernels {

/// The operand in global memory; with `k_first` memory has it as [k, rows].
inline GlobalTensor operand_view(const PtrArg& pointer, DataType dtype, const ScalarArg& rows,
                                 const ScalarArg& k, bool k_first) {
  return k_first ? global_view(pointer, dtype, {k, rows}).transpose()
                 : global_view(pointer, dtype, {rows, k});
}

/// Those of a batch, [matrices, rows, k]: see matrix_of(). Without a batch there is one.
inline GlobalTensor operand_view(const PtrArg& pointer, DataType dtype, const ScalarArg& rows,
                                 const ScalarArg& k, bool k_first, const Batch* batch,
                                 const MatrixStrides Batch::*strides) {
  if (batch == nullptr) return operand_view(pointer, dtype, rows, k, k_first);
  const MatrixStrides& s = batch->*strides;
  return k_first ? s.view(pointer, dtype, batch->matrices, k, rows).transpose()
                 : s.view(pointer, dtype, batch->matrices, rows, k);
}

/// C in global memory, [rows, columns]; of a batch [matrices, rows, columns].
inline GlobalTensor result_view(const PtrArg& pointer, DataType dtype, const ScalarArg& rows,
                                const ScalarArg& columns, const Batch* batch) {
  return batch == nullptr ? global_view(pointer, dtype, {rows, columns})
                          : batch->c.view(pointer, dtype, batch->matrices, rows, columns);
}

/// The type that products of these operands are summed in.
inline DataType sum_type(DataType operands) { return operands == int8 ? int32 : float32; }
/// Sums of either type as float32, which steps of an epilogue take.
inline RegisterValue as_float(const RegisterBase& sums) {
  return sums.dtype() == float32 ? RegisterValue(sums.handle()) : sums.to(float32);
}

/// Sums as they lie in a workspace of another type of as many bits.
inline RegisterValue as_bits_of(const RegisterBase& sums, DataType type) {
  return sums.dtype() == type ? RegisterValue(sums.handle()) : imbrex::view(sums, type);
}

/// Tiles of it in shared memory, [stages, rows, k].
inline SharedTensor operand_stages(DataType dtype, int64_t stages, int64_t rows, int64_t k, bool k_first) {
  return k_first ? shared_tensor(dtype, {stages, k, rows}).transpose()
                 : shared_tensor(dtype, {stages, rows, k});
}

}  // namespace imbrex::kernels
