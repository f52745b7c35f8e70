// SPDX-License-Identifier: Apache-2.0
// Operands of a matmul, [rows, k], in either order of memory: k contiguous, or the rows. Code that uses them
// through these views is the same for both.
#pragma once

#include "imbrex/lang.h"

namespace imbrex::kernels {

/// The operand in global memory; with `k_first` memory has it as [k, rows].
inline GlobalTensor operand_view(const PtrArg& pointer, DataType dtype, const ScalarArg& rows,
                                 const ScalarArg& k, bool k_first) {
  return k_first ? global_view(pointer, dtype, {k, rows}).transpose()
                 : global_view(pointer, dtype, {rows, k});
}

/// Tiles of it in shared memory, [stages, rows, k].
inline SharedTensor operand_stages(DataType dtype, int64_t stages, int64_t rows, int64_t k, bool k_first) {
  return k_first ? shared_tensor(dtype, {stages, k, rows}).transpose()
                 : shared_tensor(dtype, {stages, rows, k});
}

}  // namespace imbrex::kernels
