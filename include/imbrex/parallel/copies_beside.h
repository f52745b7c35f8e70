// SPDX-License-Identifier: Apache-2.0
// Copies that a CUDA GPU's copy engines make beside kernels, to its own memory or to that of other ranks.
#pragma once

#include <cstdint>

#include "imbrex/core/source_location.h"
#include "imbrex/runtime/device.h"
#include "imbrex/runtime/stream.h"

namespace imbrex::parallel {

/// Copies on a stream of their own. They can be captured into graphs, when fork() and join() are.
class CopiesBeside {
 public:
  /// On a virtual GPU, which executes each call at once, there is no such stream: LaunchError.
  explicit CopiesBeside(const Device& device);
  /// What is copied from here on comes behind what is on `stream` now.
  void fork(const Stream& stream);
  /// `bytes` from one address to another; behind the copies before.
  void copy(uint64_t to, uint64_t from, int64_t bytes, SourceLocation where = SourceLocation::current());
  /// What follows on `stream` comes behind the copies.
  void join(const Stream& stream);

 private:
  Device device_;
  Stream stream_;
  Event forked_, ended_;
};

}  // namespace imbrex::parallel
