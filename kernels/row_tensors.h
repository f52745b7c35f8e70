// SPDX-License-Identifier: Apache-2.0
// What functions that work on rows of matrices, or of batches of them, ask of their tensors.
#pragma once

#include <string>

#include "imbrex/kernels/parts/batch.h"
#include "imbrex/runtime/device_tensor.h"

namespace imbrex {

/// A tensor's matrices, as kernels take them.
struct RowTensor {
  int64_t matrices, rows, columns;
  kernels::MatrixStridesArguments strides;
};

/// LaunchError "<function>: <name> ..." for a tensor that is null or released, is on another device than `like`, is not of
/// this type or shape, or whose last dimension has another stride than 1.
RowTensor row_tensor(const std::string& function, const std::string& name, const DeviceTensor& tensor,
                     DataType dtype, const DeviceTensor& like);
/// The same, and for one whose elements share memory.
RowTensor written_row_tensor(const std::string& function, const std::string& name, const DeviceTensor& tensor,
                             DataType dtype, const DeviceTensor& like);
/// The same for a dense tensor of [columns].
void check_column_tensor(const std::string& function, const std::string& name, const DeviceTensor& tensor,
                         DataType dtype, const DeviceTensor& like);

/// The most elements, a power of two of at most 16 bytes, that divide the strides between rows and matrices, and the
/// address.
int64_t unit_of(uint64_t address, DataType dtype, int64_t row, int64_t batch);

}  // namespace imbrex
