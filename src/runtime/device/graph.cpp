// SPDX-License-Identifier: Apache-2.0
#include "imbrex/runtime/graph.h"

#include "imbrex/core/error.h"
#include "runtime/device/backend.h"
#include "runtime/device/stream_handle.h"

namespace imbrex {

struct Graph::State {
  Device device;
  std::unique_ptr<runtime::DeviceGraph> graph;
};

Graph Graph::capture(const Stream& stream, const std::function<void()>& record) {
  const Device device = stream.device();
  runtime::DeviceBackend& backend = device.backend();
  const auto handle = static_cast<runtime::CUstream_st*>(stream.handle());
  if (backend.is_capturing(handle))
    throw LaunchError(
        Diagnostic{{},
                   "Graph::capture: the stream is being captured already",
                   {},
                   "what is captured inside another capture is part of its graph: call it directly"});
  backend.begin_capture(handle);
  try {
    record();
  } catch (...) {
    try {
      backend.end_capture(handle);
    } catch (const Error&) {
      // What `record` threw says more.
    }
    throw;
  }
  Graph graph;
  graph.state_ = std::shared_ptr<const State>(new State{device, backend.end_capture(handle)});
  return graph;
}

LaunchReport Graph::launch(const Stream& stream) const {
  runtime::CUstream_st* const handle = runtime::handle_on(state_->device, stream, "Graph::launch");
  return state_->graph->launch(handle);
}

}  // namespace imbrex
