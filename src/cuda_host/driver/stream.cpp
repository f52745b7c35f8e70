// SPDX-License-Identifier: Apache-2.0
// Streams, events and capture.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "cuda_host/driver/answer.h"

using namespace imbrex::cuda;

namespace {

constexpr unsigned kExternalEvent = 1;  // CU_EVENT_RECORD_EXTERNAL, CU_EVENT_WAIT_EXTERNAL

void expect_healthy(const Stream& stream) {
  if (stream.context != nullptr && stream.context->failure != CUDA_SUCCESS) refuse(stream.context->failure);
}

}  // namespace

CUDA_API cuStreamCreateWithPriority(CUstream* stream, unsigned flags, int priority) {
  return answer("cuStreamCreate", [&] {
    Host& host = Host::get();
    if ((flags & ~kStreamNonBlocking) != 0)
      refuse(CUDA_ERROR_INVALID_VALUE,
             fmt::format("stream flags {}: 0 and {} are there", flags, kStreamNonBlocking));
    Stream& made = host.streams.make(&host.usable(), flags, std::clamp(priority, -5, 0));
    made.id = host.next_id();
    made.order = host.gpu.order().create_stream("", (flags & kStreamNonBlocking) == 0);
    not_null(stream, "stream") = reinterpret_cast<CUstream>(&made);
  });
}
CUDA_API cuStreamCreate(CUstream* stream, unsigned flags) {
  return cuStreamCreateWithPriority(stream, flags, 0);
}
CUDA_API cuStreamDestroy_v2(CUstream stream) {
  return answer("cuStreamDestroy", [&] {
    Host& host = Host::get();
    when_nothing_is_under_way(
        [gone = host.streams.take(stream)] { Host::get().gpu.order().destroy_stream(gone->order); });
  });
}
CUDA_API cuStreamSynchronize(CUstream stream) {
  return answer("cuStreamSynchronize", [&] {
    const Stream& on = Host::get().stream(stream);
    expect_may_be_waited_for(on);
    host_waits_for(on);
    expect_healthy(on);
  });
}
CUDA_API cuStreamQuery(CUstream stream) {
  return answer("cuStreamQuery", [&] {
    const Stream& on = Host::get().stream(stream);
    expect_may_be_waited_for(on);
    if (is_under_way(on)) refuse(CUDA_ERROR_NOT_READY);
    host_waits_for(on);
    expect_healthy(on);
  });
}
CUDA_API cuStreamGetFlags(CUstream stream, unsigned* flags) {
  return answer("cuStreamGetFlags", [&] { not_null(flags, "flags") = Host::get().stream(stream).flags; });
}
CUDA_API cuStreamGetPriority(CUstream stream, int* priority) {
  return answer("cuStreamGetPriority",
                [&] { not_null(priority, "priority") = Host::get().stream(stream).priority; });
}
CUDA_API cuStreamGetId(CUstream stream, unsigned long long* id) {
  return answer("cuStreamGetId", [&] { not_null(id, "id") = Host::get().stream(stream).id; });
}
CUDA_API cuStreamGetCtx(CUstream stream, CUcontext* context) {
  return answer("cuStreamGetCtx",
                [&] { not_null(context, "context") = handle_of(*Host::get().stream(stream).context); });
}
CUDA_API cuStreamGetCtx_v2(CUstream stream, CUcontext* context, void** green_context) {
  if (green_context != nullptr) *green_context = nullptr;
  return cuStreamGetCtx(stream, context);
}
CUDA_API cuStreamGetDevice(CUstream stream, CUdevice* device) {
  return answer("cuStreamGetDevice",
                [&] { not_null(device, "device") = Host::get().stream(stream).context->device; });
}
CUDA_API cuStreamGetGreenCtx(CUstream stream, void** green_context) {
  return answer("cuStreamGetGreenCtx", [&] {
    Host::get().stream(stream);
    not_null(green_context, "green context") = nullptr;  // no stream belongs to one
  });
}
// Attributes are policies of caches and synchronisation, which change no result.
CUDA_API cuStreamCopyAttributes(CUstream, CUstream) { return CUDA_SUCCESS; }
CUDA_API cuStreamSetAttribute(CUstream, int, const void*) { return CUDA_SUCCESS; }
CUDA_API cuStreamGetAttribute(CUstream, int, void* value) {
  return answer("cuStreamGetAttribute",
                [&] { std::memset(&not_null(static_cast<char*>(value), "value"), 0, 64); });
}
CUDA_API cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags) {
  return answer("cuStreamWaitEvent", [&] {
    Host& host = Host::get();
    const auto wait = (flags & kExternalEvent) != 0 ? wait_external_event : wait_event;
    wait(host.stream(stream), host.events.get(event));
  });
}
CUDA_API cuStreamAddCallback(CUstream stream, CUstreamCallback callback, void* data, unsigned) {
  return answer("cuStreamAddCallback", [&] {
    Stream& on = Host::get().stream(stream);
    expect_not_captured(on);
    if (callback == nullptr) refuse(CUDA_ERROR_INVALID_VALUE, "the callback is null");
    // Unlike a host function it is called after a fault, too, and told of it.
    on.last = Host::get().backlog.add([context = on.context, callback, stream, data] {
      const CUresult status = context == nullptr ? CUDA_SUCCESS : context->failure;
      const ProgramsTurn turn;
      const HostFunctionScope scope;
      callback(stream, status, data);
    });
  });
}

// Memory operations of streams. When a wait's turn has come all earlier work is done, so one that does not hold then never will.
namespace {

template <class Value>
CUresult write_value(const char* function, CUstream stream, CUdeviceptr address, Value value) {
  return answer(function, [&] {
    Host& host = Host::get();
    Stream& on = host.stream(stream);
    if constexpr (sizeof value == 4)
      if (on.is_capturing()) return submit(on, FillWork{address, 4, value, 4, 1, 1});
    expect_not_captured(on);
    carry_out(on, [address, value] {
      Host::get().memory.copy(address, reinterpret_cast<uint64_t>(&value), sizeof value);
    });
  });
}

template <class Value>
CUresult wait_value(const char* function, CUstream stream, CUdeviceptr address, Value wanted,
                    unsigned flags) {
  return answer(function, [&] {
    Host& host = Host::get();
    expect_not_captured(host.stream(stream));
    host_waits_for_backlog();
    Value value;
    host.memory.copy(reinterpret_cast<uint64_t>(&value), address, sizeof value);
    using Signed = std::make_signed_t<Value>;
    const unsigned how = flags & 3;
    const bool holds = how == 0   ? static_cast<Signed>(value - wanted) >= 0
                       : how == 1 ? value == wanted
                       : how == 2 ? (value & wanted) != 0
                                  : ~(value | wanted) != 0;
    if (!holds)
      refuse(CUDA_ERROR_NOT_SUPPORTED,
             fmt::format(
                 "the value at 0x{:x} is {}, {} is waited for: work runs when it is issued, so that it must "
                 "have been written before",
                 address, value, wanted));
  });
}

}  // namespace

CUDA_API cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr address, uint32_t value, unsigned) {
  return write_value("cuStreamWriteValue32", stream, address, value);
}
CUDA_API cuStreamWriteValue64_v2(CUstream stream, CUdeviceptr address, uint64_t value, unsigned) {
  return write_value("cuStreamWriteValue64", stream, address, value);
}
CUDA_API cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr address, uint32_t value, unsigned flags) {
  return wait_value("cuStreamWaitValue32", stream, address, value, flags);
}
CUDA_API cuStreamWaitValue64_v2(CUstream stream, CUdeviceptr address, uint64_t value, unsigned flags) {
  return wait_value("cuStreamWaitValue64", stream, address, value, flags);
}

// ---- capture

namespace {

int capture_status(const Stream& stream) {
  constexpr int kNone = 0, kActive = 1, kInvalidated = 2;
  return !stream.is_capturing() ? kNone : stream.capture->is_invalid ? kInvalidated : kActive;
}

}  // namespace

CUDA_API cuStreamBeginCapture_v2(CUstream stream, int mode) {
  return answer("cuStreamBeginCapture", [&] {
    Host& host = Host::get();
    Stream& on = host.stream(stream);
    if (on.is_capturing()) refuse(CUDA_ERROR_ILLEGAL_STATE, "the stream is captured already");
    expect_no_implicit_capture(on);
    if (on.order == imbrex::vgpu::StreamOrder::kLegacyStream)
      refuse(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
             "the legacy default stream cannot be captured\n"
             "  help: capture a stream of your own");
    begin_capture(on, host.graphs.make(), {}, capture_mode(mode));
  });
}
CUDA_API cuStreamBeginCaptureToGraph(CUstream stream, CUgraph graph, const CUgraphNode* dependencies,
                                     const void*, size_t count, int mode) {
  return answer("cuStreamBeginCaptureToGraph", [&] {
    Host& host = Host::get();
    Graph& into = host.graphs.get(graph);
    std::vector<GraphNode*> tail;
    for (size_t i = 0; i < count; ++i) tail.push_back(&into.node(dependencies[i]));
    begin_capture(host.stream(stream), into, std::move(tail), capture_mode(mode));
  });
}
CUDA_API cuStreamEndCapture(CUstream stream, CUgraph* graph) {
  return answer("cuStreamEndCapture", [&] {
    not_null(graph, "graph") = nullptr;
    *graph = reinterpret_cast<CUgraph>(&end_capture(Host::get().stream(stream)));
  });
}
CUDA_API cuStreamIsCapturing(CUstream stream, int* status) {
  return answer("cuStreamIsCapturing", [&] {
    const Stream& on = Host::get().stream(stream);
    expect_no_implicit_capture(on, false);
    not_null(status, "status") = capture_status(on);
  });
}
CUDA_API cuStreamGetCaptureInfo_v2(CUstream stream, int* status, unsigned long long* id, CUgraph* graph,
                                   const CUgraphNode** dependencies, size_t* count) {
  return answer("cuStreamGetCaptureInfo", [&] {
    const Stream& on = Host::get().stream(stream);
    not_null(status, "status") = capture_status(on);
    if (!on.is_capturing()) return;
    if (id != nullptr) *id = on.capture->id;
    if (graph != nullptr) *graph = reinterpret_cast<CUgraph>(on.capture->graph);
    if (dependencies != nullptr) *dependencies = reinterpret_cast<const CUgraphNode*>(on.tail.data());
    if (count != nullptr) *count = on.tail.size();
  });
}
CUDA_API cuStreamGetCaptureInfo_v3(CUstream stream, int* status, unsigned long long* id, CUgraph* graph,
                                   const CUgraphNode** dependencies, const void** edges, size_t* count) {
  if (edges != nullptr) *edges = nullptr;
  return cuStreamGetCaptureInfo_v2(stream, status, id, graph, dependencies, count);
}
CUDA_API cuStreamUpdateCaptureDependencies(CUstream stream, CUgraphNode* dependencies, size_t count,
                                           unsigned flags) {
  return answer("cuStreamUpdateCaptureDependencies", [&] {
    Stream& on = Host::get().stream(stream);
    if (!on.is_capturing()) refuse(CUDA_ERROR_ILLEGAL_STATE, "the stream is not being captured");
    constexpr unsigned kSet = 1;
    if ((flags & kSet) != 0) on.tail.clear();
    for (size_t i = 0; i < count; ++i) on.tail.push_back(&on.capture->graph->node(dependencies[i]));
  });
}
CUDA_API cuStreamUpdateCaptureDependencies_v2(CUstream stream, CUgraphNode* dependencies, const void*,
                                              size_t count, unsigned flags) {
  return cuStreamUpdateCaptureDependencies(stream, dependencies, count, flags);
}
CUDA_API cuThreadExchangeStreamCaptureMode(int* mode) {
  return answer("cuThreadExchangeStreamCaptureMode", [&] {
    const CaptureMode wanted = capture_mode(not_null(mode, "mode"));
    *mode = static_cast<int>(std::exchange(thread_capture_mode(), wanted));
  });
}

// ---- events

CUDA_API cuEventCreate(CUevent* event, unsigned flags) {
  return answer("cuEventCreate", [&] {
    Host::get().usable();
    Event& made = Host::get().events.make(flags);
    made.order = Host::get().gpu.order().create_event();
    not_null(event, "event") = reinterpret_cast<CUevent>(&made);
  });
}
CUDA_API cuEventDestroy_v2(CUevent event) {
  return answer("cuEventDestroy", [&] {
    Host& host = Host::get();
    when_nothing_is_under_way(
        [gone = host.events.take(event)] { Host::get().gpu.order().destroy_event(gone->order); });
  });
}
CUDA_API cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned flags) {
  return answer("cuEventRecord", [&] {
    Host& host = Host::get();
    const auto record = (flags & kExternalEvent) != 0 ? record_external_event : record_event;
    record(host.stream(stream), host.events.get(event));
  });
}
CUDA_API cuEventRecord(CUevent event, CUstream stream) { return cuEventRecordWithFlags(event, stream, 0); }
CUDA_API cuEventQuery(CUevent event) {
  return answer("cuEventQuery", [&] {
    const Event& of = Host::get().events.get(event);
    expect_not_captured(of);
    expect_no_unsafe_capture();
    if (is_under_way(of)) refuse(CUDA_ERROR_NOT_READY);
    host_waits_for(of);
  });
}
CUDA_API cuEventSynchronize(CUevent event) {
  return answer("cuEventSynchronize", [&] {
    const Event& of = Host::get().events.get(event);
    expect_not_captured(of);
    expect_no_unsafe_capture();
    host_waits_for(of);
    if (const Context* context = Host::get().current_or_null();
        context != nullptr && context->failure != CUDA_SUCCESS)
      refuse(context->failure);
  });
}
CUDA_API cuEventElapsedTime(float* milliseconds, CUevent from, CUevent to) {
  return answer("cuEventElapsedTime", [&] {
    const Event &begin = Host::get().events.get(from), &end = Host::get().events.get(to);
    for (const Event* event : {&begin, &end}) {
      if ((event->flags & kEventDisableTiming) != 0)
        refuse(CUDA_ERROR_INVALID_HANDLE, "the event was made without timing");
      expect_not_over(*event);
      if (event->capture != nullptr)
        refuse(CUDA_ERROR_CAPTURED_EVENT, "the event was recorded in a stream that was being captured");
      if (!event->is_recorded) refuse(CUDA_ERROR_INVALID_HANDLE, "the event was never recorded");
      if (is_under_way(*event)) refuse(CUDA_ERROR_NOT_READY);
    }
    not_null(milliseconds, "milliseconds") =
        std::chrono::duration<float, std::milli>(end.time - begin.time).count();
  });
}
CUDA_API cuEventElapsedTime_v2(float* milliseconds, CUevent from, CUevent to) {
  return cuEventElapsedTime(milliseconds, from, to);
}
