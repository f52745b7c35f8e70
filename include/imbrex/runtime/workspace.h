// SPDX-License-Identifier: Apache-2.0
// Scratch memory in the order of a stream: partial sums, semaphores.
//
//   {
//     Workspace partial_sums = Workspace::on(stream, device, 4 * m * n);
//     split.on(stream)(m, n, k, a, b, partial_sums.address());
//     add_up.on(stream)(m, n, partial_sums.address(), c);
//   }  // given back: what is next on the stream may get the same memory
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "imbrex/core/dtype.h"
#include "imbrex/runtime/device_tensor.h"
#include "imbrex/runtime/stream.h"

namespace imbrex {

/// Memory for calls on one stream, from the moment it is taken until it is given back, which its end does; the host waits
/// for neither. What is issued on another stream in between must be ordered behind the one and before the other. Each
/// stream keeps what it was given for its next workspace, until the stream's end, so that taking one costs the host next
/// to nothing; streams share none, so that calls on two of them may run at once.
///
/// While the stream is being captured into a CUDA graph the memory is the graph's (cuMemAllocAsync): graphs may be
/// replayed on any stream, also at once. It must then be given back before the capture ends.
class Workspace {
 public:
  enum class Contents {
    kUndefined,
    kZero,  ///< set to zero, by a fill on the stream each time it is taken, whatever was in it: also in each replay
    kLeftZero,  ///< zero, and whoever takes it leaves it zero (semaphores): the fill is needed only where memory is new,
                ///< and in each replay
  };

  /// No memory.
  Workspace() = default;
  /// `bytes` of the device's memory, aligned to 256. LaunchError for a stream of another device and a negative size,
  /// DeviceError where the device has not enough.
  static Workspace on(const Stream& stream, const Device& device, int64_t bytes,
                      Contents contents = Contents::kUndefined,
                      SourceLocation where = SourceLocation::current());

  /// Where kernels see it; 0 without memory.
  uint64_t address() const;
  int64_t bytes() const;
  /// A view of its beginning, to be passed to kernels. LaunchError for a tensor that is larger than the workspace.
  DeviceTensor tensor(DataType dtype, std::vector<int64_t> shape) const;
  /// Gives the memory back, as the workspace's end does.
  void give_back() { state_.reset(); }

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace imbrex
