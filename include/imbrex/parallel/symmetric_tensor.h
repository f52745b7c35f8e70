// SPDX-License-Identifier: Apache-2.0
// Tensors of which every rank of a node has one, at places that all of them know.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "imbrex/runtime/device_tensor.h"

namespace imbrex::parallel {

/// The same type and shape on each rank. The memory of rank r begins rank_stride_bytes() behind that of rank r - 1, in the
/// address space of every rank, so that all of them together are one tensor with the rank as its first dimension:
/// kernels reach a peer's part as they reach a row. A handle: cheap to copy; Communicator::symmetric() makes them.
class SymmetricTensor {
 public:
  SymmetricTensor() = default;
  /// This rank's part, a dense tensor. Valid as long as a handle of the communicator lives.
  const DeviceTensor& mine() const { return mine_; }
  /// The parts of all ranks: its first dimension is the rank. Not dense: a kernel takes rank_stride_bytes() besides, and
  /// views it by symmetric_view() (imbrex/parallel/signal.h). LaunchError where Communicator::reaches_peers() is false.
  const DeviceTensor& all() const;
  int64_t rank_stride_bytes() const { return rank_stride_bytes_; }
  DataType dtype() const { return mine_.dtype(); }
  const std::vector<int64_t>& shape() const { return mine_.shape(); }
  /// The beginning of the same memory as a tensor of another type and shape. LaunchError where that is larger.
  SymmetricTensor viewed_as(DataType dtype, const std::vector<int64_t>& shape,
                            SourceLocation where = SourceLocation::current()) const;

 private:
  friend class Communicator;
  /// Of rank `rank`; rank 0's part begins at `address`.
  static SymmetricTensor at(const Device& device, uint64_t address, int rank, int ranks, int64_t stride,
                            DataType dtype, const std::vector<int64_t>& shape);
  DeviceTensor mine_, all_;
  int64_t rank_stride_bytes_ = 0;
  std::shared_ptr<const void> keeper_;
};

}  // namespace imbrex::parallel
