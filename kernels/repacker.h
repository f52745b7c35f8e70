// SPDX-License-Identifier: Apache-2.0
// Copies of operands that kernels cannot read where they are (imbrex/kernels/matmul/repack.h), two of them in a launch.
#pragma once

#include <vector>

#include "imbrex/kernels/matmul/repack.h"
#include "imbrex/runtime/kernel.h"
#include "imbrex/runtime/stream.h"

namespace imbrex {

/// The matrices of a tensor and where they are to be copied, as a launch takes them. Strides in elements.
struct RepackedTensor {
  DataType dtype;
  int64_t matrices, rows, columns, to_columns;
  uint64_t from;
  int64_t batch, row, column;
  uint64_t to;
  kernels::MatrixStridesArguments to_strides;
};

/// Makes copies in a stream's order.
class Repacker {
 public:
  /// With `is_launched` false what copies is only compiled.
  Repacker(const Device& device, const Stream& stream, bool is_launched = true)
      : device_(device), stream_(stream), is_launched_(is_launched) {}

  void add(const RepackedTensor& tensor) { waiting_.push_back(tensor); }
  /// Copies what was added. What the first launch in which something was found says of it, if any.
  LaunchReport copy();

 private:
  Device device_;
  const Stream& stream_;
  bool is_launched_;
  std::vector<RepackedTensor> waiting_;
};

}  // namespace imbrex
