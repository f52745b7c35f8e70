// SPDX-License-Identifier: Apache-2.0
#include "cuda_host/host/stream.h"

#include <fmt/format.h>

#include <algorithm>

#include "cuda_host/host/host.h"

namespace imbrex::cuda {
namespace {

void join(std::vector<GraphNode*>& tail, const std::vector<GraphNode*>& more) {
  for (GraphNode* node : more)
    if (std::ranges::find(tail, node) == tail.end()) tail.push_back(node);
}

/// The step of the backlog that new work of the stream comes after. The legacy stream waits for all others that block, and they
/// for it.
Backlog::Number comes_after(const Stream& stream) {
  Backlog::Number number = stream.last;
  if (stream.order == vgpu::StreamOrder::kLegacyStream) {
    for (const auto& [handle, other] : Host::get().streams.all())
      if (other->context == stream.context && (other->flags & kStreamNonBlocking) == 0)
        number = std::max(number, other->last);
  } else if ((stream.flags & kStreamNonBlocking) == 0 && stream.context != nullptr) {
    number = std::max(number, stream.context->default_stream.last);
  }
  return number;
}

}  // namespace

bool runs_host_function(const Work& work) {
  if (const auto* child = std::get_if<ChildWork>(&work); child != nullptr)
    return std::ranges::any_of(child->graph->nodes,
                               [](const auto& node) { return runs_host_function(node->work); });
  return std::holds_alternative<HostWork>(work);
}

namespace {

/// Adds to the backlog. What comes behind a fault is left out, as a GPU does it.
Backlog::Number leave(Context* context, std::function<void()> step) {
  return Host::get().backlog.add([context, step = std::move(step)] {
    if (context != nullptr && context->failure != CUDA_SUCCESS) return;
    try {
      step();
    } catch (...) {
      const CUresult code = explain_current_exception("work behind a host function");
      if (context != nullptr) context->failure = code;
    }
  });
}

bool is_pageable(uint64_t address) {
  return !DeviceMemory::is_of_device(address) &&
         Host::get().memory.find_registered(reinterpret_cast<const void*>(address)) == nullptr;
}

/// A copy that is left to the backlog and touches memory that is not pinned: of such a source the bytes are kept, as drivers do it
/// with short ones; other copies are waited for.
void expect_to_be_left(Stream& stream, Work& work) {
  auto* copy = std::get_if<CopyWork>(&work);
  if (copy == nullptr || (!is_pageable(copy->to.address) && !is_pageable(copy->from.address))) return;
  constexpr int64_t kShort = 1 << 16;
  if (is_pageable(copy->to.address) || copy->height * copy->depth != 1 || copy->width > kShort) {
    Host::get().backlog.wait_for(comes_after(stream));
    return;
  }
  const auto* const from = reinterpret_cast<const std::byte*>(copy->from.address);
  copy->kept = std::make_shared<const std::vector<std::byte>>(from, from + copy->width);
  copy->from.address = reinterpret_cast<uint64_t>(copy->kept->data());
}

}  // namespace

bool is_under_way(const Stream& stream) {
  const Backlog& backlog = Host::get().backlog;
  return !backlog.is_empty() && !backlog.has_passed(comes_after(stream));
}
bool is_under_way(const Event& event) { return !Host::get().backlog.has_passed(event.last); }

void leave(Stream& stream, std::function<void()> step) {
  stream.last = leave(stream.context, std::move(step));
}
void carry_out(Stream& stream, std::function<void()> step) {
  if (is_under_way(stream))
    leave(stream, std::move(step));
  else
    step();
}

void when_nothing_is_under_way(std::function<void()> step) {
  Backlog& backlog = Host::get().backlog;
  if (backlog.is_empty())
    step();
  else
    backlog.add(std::move(step));
}

void submit(Stream& stream, Work work) {
  expect_no_implicit_capture(stream);
  if (stream.is_capturing()) {
    if (stream.capture->is_invalid) refuse(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    GraphNode& node = stream.capture->graph->add(std::move(work), stream.tail);
    stream.tail = {&node};
    return;
  }
  if (stream.context != nullptr && stream.context->failure != CUDA_SUCCESS) refuse(stream.context->failure);
  if (runs_host_function(work)) {
    leave(stream, [&stream, work = std::move(work)] { perform(work, stream); });
    return;
  }
  if (is_under_way(stream)) expect_to_be_left(stream, work);
  if (is_under_way(stream))
    leave(stream, [&stream, work = std::move(work)] { perform(work, stream); });
  else
    perform(work, stream);
}

void expect_not_over(const Event& event) {
  if (event.capture != nullptr && event.capture->is_over)
    refuse(CUDA_ERROR_INVALID_VALUE,
           "the event was recorded in a capture, which is over\n  help: record it anew");
}

void record_event(Stream& stream, Event& event) {
  expect_no_implicit_capture(stream);
  event.capture = stream.capture;
  event.tail = stream.tail;
  if (stream.is_capturing()) return;
  event.is_recorded = true;
  const bool is_left = is_under_way(stream);
  carry_out(stream, [&event, order = stream.order] {
    event.time = std::chrono::steady_clock::now();
    Host::get().gpu.order().record(event.order, order);
  });
  event.last = is_left ? stream.last : 0;
}

void wait_event(Stream& stream, Event& event) {
  expect_no_implicit_capture(stream);
  if (event.capture == nullptr) {
    if (!event.is_recorded) return;
    if (stream.is_capturing()) {
      stream.capture->is_invalid = true;
      refuse(CUDA_ERROR_STREAM_CAPTURE_ISOLATION,
             "the stream is being captured, and the event was recorded outside of the capture\n"
             "  help: let the stream wait before the capture begins, or wait by cudaEventWaitExternal");
    }
    const auto wait = [&event, order = stream.order] { Host::get().gpu.order().wait(order, event.order); };
    if (is_under_way(event))
      leave(stream, wait);
    else
      carry_out(stream, wait);
    return;
  }
  expect_not_over(event);
  if (stream.order == vgpu::StreamOrder::kLegacyStream) {
    event.capture->is_invalid = true;
    refuse(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, "the legacy default stream cannot join a capture");
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

namespace {
void expect_captured(const Stream& stream) {
  if (!stream.is_capturing())
    refuse(CUDA_ERROR_ILLEGAL_STATE, "external events are for streams that are being captured");
}
}  // namespace

void record_external_event(Stream& stream, Event& event) {
  expect_captured(stream);
  submit(stream, RecordWork{&event});
}
void wait_external_event(Stream& stream, Event& event) {
  expect_captured(stream);
  submit(stream, WaitWork{&event});
}

void host_waits_for(const Stream& stream) {
  Host& host = Host::get();
  const vgpu::StreamOrder::Stream order = stream.order;
  host.backlog.wait_for(comes_after(stream));
  host.gpu.order().synchronize(order);  // the stream itself may have been destroyed meanwhile
}
void host_waits_for(const Event& event) {
  if (!event.is_recorded) return;
  Host& host = Host::get();
  const vgpu::StreamOrder::Event order = event.order;
  host.backlog.wait_for(event.last);
  host.gpu.order().synchronize_event(order);
}
void host_waits_for_backlog() {
  Backlog& backlog = Host::get().backlog;
  backlog.wait_for(backlog.last());
}
void host_waits_for_everything() {
  Host& host = Host::get();
  host.backlog.wait_for(host.backlog.last());
  host.gpu.order().synchronize();
}

CaptureMode& thread_capture_mode() {
  static thread_local CaptureMode mode = CaptureMode::kGlobal;
  return mode;
}

CaptureMode capture_mode(int number) {
  if (number < static_cast<int>(CaptureMode::kGlobal) || number > static_cast<int>(CaptureMode::kRelaxed))
    refuse(CUDA_ERROR_INVALID_VALUE,
           fmt::format("capture mode {}: 0 (global), 1 (thread-local) and 2 (relaxed) are there", number));
  return static_cast<CaptureMode>(number);
}

void begin_capture(Stream& stream, Graph& graph, std::vector<GraphNode*> tail, CaptureMode mode) {
  if (stream.is_capturing()) refuse(CUDA_ERROR_ILLEGAL_STATE, "the stream is captured already");
  stream.capture =
      std::make_shared<Capture>(Capture{&graph, &stream, Host::get().next_id(), {&stream}, mode});
  stream.tail = std::move(tail);
}

Graph& end_capture(Stream& stream) {
  if (!stream.is_capturing()) refuse(CUDA_ERROR_ILLEGAL_STATE, "the stream is not being captured");
  const std::shared_ptr<Capture> capture = stream.capture;
  if (capture->origin != &stream) {
    capture->is_invalid = true;
    refuse(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, "the capture was begun on another stream");
  }
  const bool is_invalid = capture->is_invalid;
  capture->is_over = true;
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

void expect_not_captured(const Event& event) {
  if (event.capture == nullptr) return;
  expect_not_over(event);
  event.capture->is_invalid = true;
  refuse(CUDA_ERROR_CAPTURED_EVENT, "the event was recorded in a stream that is being captured");
}

void expect_may_be_waited_for(const Stream& stream) {
  expect_not_captured(stream);
  expect_no_implicit_capture(stream);
  expect_no_unsafe_capture();
}

void expect_no_unsafe_capture() {
  const CaptureMode mine = thread_capture_mode();
  const Context* context = Host::get().current_or_null();
  if (mine == CaptureMode::kRelaxed || context == nullptr) return;
  bool some_forbid = false;
  for (const auto& [handle, stream] : Host::get().streams.all()) {
    Capture* capture = stream->capture.get();
    if (capture == nullptr || capture->is_invalid || stream->context == nullptr ||
        stream->context->device != context->device)
      continue;
    const bool is_own = capture->thread == std::this_thread::get_id();
    const bool forbids = is_own ? capture->mode != CaptureMode::kRelaxed
                                : capture->mode == CaptureMode::kGlobal && mine == CaptureMode::kGlobal;
    if (forbids) capture->is_invalid = some_forbid = true;
  }
  if (some_forbid)
    refuse(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
           "a stream is being captured in a mode that forbids calls which cannot be captured\n"
           "  help: make the call before or after the capture, allocate by cudaMallocAsync, or allow such "
           "calls by "
           "cudaStreamCaptureModeRelaxed (of another thread's capture: cudaStreamCaptureModeThreadLocal)");
}

void expect_no_implicit_capture(const Stream& stream, bool ends_capture) {
  if (stream.order != vgpu::StreamOrder::kLegacyStream || stream.is_capturing()) return;
  for (const auto& [handle, other] : Host::get().streams.all())
    if (other->is_capturing() && (other->flags & kStreamNonBlocking) == 0) {
      if (ends_capture) other->capture->is_invalid = true;
      refuse(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,
             "the legacy default stream is used while a stream is captured that is ordered with it\n"
             "  help: use another stream, or make the captured one with cudaStreamNonBlocking");
    }
}

}  // namespace imbrex::cuda
