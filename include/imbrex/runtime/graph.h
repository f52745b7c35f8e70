// SPDX-License-Identifier: Apache-2.0
// CUDA graphs: what is put on a stream, recorded once and replayed often, for less host time than its calls take.
//
//   kernel.prepare(n, x, y);  // nothing compiles during a capture
//   Graph graph = Graph::capture(stream, [&] { kernel.on(stream)(n, x, y); });
//   graph.launch(stream).expect_clean();
#pragma once

#include <functional>
#include <memory>

#include "imbrex/runtime/device.h"
#include "imbrex/runtime/stream.h"

namespace imbrex {

/// A handle: copies are the same graph. Kernels and memory that it uses must live until its last replay has ended.
class Graph {
 public:
  /// Records what `record` puts on the stream, in place of carrying it out: launches, asynchronous copies, fills,
  /// workspaces. What would compile, tune or wait throws LaunchError, and on this thread what allocates throws
  /// DeviceError; whatever `record` throws ends the capture and is passed on. LaunchError for Stream() and for a stream
  /// that is being captured already; CUDA's legacy default stream cannot be captured. The virtual GPU records one
  /// stream: there events on it throw LaunchError.
  static Graph capture(const Stream& stream, const std::function<void()>& record);

  /// Puts the recorded calls on a stream of the same device, in order; the host does not wait. A launch comes after the
  /// launch of the same graph before it. On the virtual GPU the report has the findings of all of them.
  LaunchReport launch(const Stream& stream = {}) const;

 private:
  struct State;
  std::shared_ptr<const State> state_;
};

}  // namespace imbrex
