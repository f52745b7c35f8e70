// SPDX-License-Identifier: Apache-2.0
// Tensors of heads as they lie in memory: [batch, heads, rows, head size] with any strides that TMA takes.
#pragma once

#include "imbrex/lang.h"

namespace imbrex::kernels {

/// Strides between batches, heads and rows, in units of 16 bytes, as TMA takes them.
struct HeadStrides {
  using Parameters = ParameterList<Int64, Int64, Int64>;
  Int64 batch, head, row;

  /// [batches, heads, rows, head_size].
  GlobalTensor view(const PtrArg& pointer, DataType dtype, const ScalarArg& batches, const ScalarArg& heads,
                    const ScalarArg& rows, const ScalarArg& head_size) const {
    const int unit = 128 / dtype.bits();
    return global_view(pointer, dtype, {batches, heads, rows, head_size},
                       {batch * unit, head * unit, row * unit, 1});
  }
};

}  // namespace imbrex::kernels
