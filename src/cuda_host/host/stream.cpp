// SPDX-License-Identifier: Apache-2.0
#include "cuda_host/host/stream.h"

#include <algorithm>

#include "cuda_host/host/host.h"

namespace imbrex::cuda {
namespace {

void join(std::vector<GraphNode*>& tail, const std::vector<GraphNode*>& more) {
  for (GraphNode* node : more)
    if (std::ranges::find(tail, node) == tail.end()) tail.push_back(node);
}

}  // namespace

void submit(Stream& stream, Work work) {
  expect_no_implicit_capture(stream);
  if (stream.is_capturing()) {
    if (stream.capture->is_invalid) refuse(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    GraphNode& node = stream.capture->graph->add(std::move(work), stream.tail);
    stream.tail = {&node};
    return;
  }
  if (stream.context != nullptr && stream.context->failure != CUDA_SUCCESS) refuse(stream.context->failure);
  perform(work, stream);
}

void record_event(Stream& stream, Event& event) {
  expect_no_implicit_capture(stream);
  event.capture = stream.capture;
  event.tail = stream.tail;
  if (stream.is_capturing()) return;
  event.is_recorded = true;
  event.time = std::chrono::steady_clock::now();
  Host::get().gpu.order().record(event.order, stream.order);
}

void wait_event(Stream& stream, Event& event) {
  expect_no_implicit_capture(stream);
  if (event.capture == nullptr) {
    if (event.is_recorded) Host::get().gpu.order().wait(stream.order, event.order);
    return;
  }
  if (stream.capture == nullptr) {
    stream.capture = event.capture;
    stream.tail.clear();
    event.capture->streams.push_back(&stream);
  }
  if (stream.capture != event.capture)
    refuse(CUDA_ERROR_STREAM_CAPTURE_MERGE, "the event belongs to another capture than the stream");
  join(stream.tail, event.tail);
}

void host_waited_for(const Stream& stream) { Host::get().gpu.order().synchronize(stream.order); }
void host_waited_for(const Event& event) {
  if (event.is_recorded) Host::get().gpu.order().synchronize_event(event.order);
}
void host_waited_for_everything() { Host::get().gpu.order().synchronize(); }

void begin_capture(Stream& stream, Graph& graph, std::vector<GraphNode*> tail) {
  if (stream.is_capturing()) refuse(CUDA_ERROR_ILLEGAL_STATE, "the stream is captured already");
  stream.capture = std::make_shared<Capture>(Capture{&graph, &stream, Host::get().next_id(), {&stream}});
  stream.tail = std::move(tail);
}

Graph& end_capture(Stream& stream) {
  if (!stream.is_capturing()) refuse(CUDA_ERROR_ILLEGAL_STATE, "the stream is not being captured");
  const std::shared_ptr<Capture> capture = stream.capture;
  if (capture->origin != &stream)
    refuse(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, "the capture was begun on another stream");
  const bool is_invalid = capture->is_invalid;
  // Every node of the streams that joined must come before something of this one.
  std::vector<GraphNode*> reached = stream.tail;
  for (size_t i = 0; i < reached.size(); ++i) join(reached, reached[i]->dependencies);
  bool all_joined = true;
  for (Stream* other : capture->streams) {
    for (const GraphNode* node : other->tail)
      all_joined = all_joined && std::ranges::find(reached, node) != reached.end();
    other->capture = nullptr;
    other->tail.clear();
  }
  if (is_invalid)
    refuse(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
           "a call that cannot be made during a capture has ended it before");
  if (!all_joined)
    refuse(
        CUDA_ERROR_STREAM_CAPTURE_UNJOINED,
        "another stream joined the capture, and its last work was not waited for before the capture ended");
  return *capture->graph;
}

void expect_not_captured(const Stream& stream) {
  if (!stream.is_capturing()) return;
  stream.capture->is_invalid = true;
  refuse(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
         "the stream is being captured, and this call waits or queries");
}

void expect_no_capture() {
  for (const auto& [handle, stream] : Host::get().streams.all()) expect_not_captured(*stream);
}

void expect_no_implicit_capture(const Stream& stream) {
  if (stream.order != vgpu::StreamOrder::kLegacyStream || stream.is_capturing()) return;
  for (const auto& [handle, other] : Host::get().streams.all())
    if (other->is_capturing() && (other->flags & kStreamNonBlocking) == 0) {
      other->capture->is_invalid = true;
      refuse(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,
             "the legacy default stream is used while a stream is captured that is ordered with it\n"
             "  help: use another stream, or make the captured one with cudaStreamNonBlocking");
    }
}

}  // namespace imbrex::cuda
