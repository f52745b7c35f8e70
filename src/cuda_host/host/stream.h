// SPDX-License-Identifier: Apache-2.0
// Streams and events. Work is carried out when it is submitted, in the program's order, which is one of the orders that
// a GPU could have chosen; what comes behind a host function is left to the backlog.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "cuda_host/abi/driver_types.h"
#include "cuda_host/host/backlog.h"
#include "imbrex/vgpu/stream_order.h"

namespace imbrex::cuda {

struct Context;
struct Graph;
struct GraphNode;
struct Stream;

/// Whom a capture keeps from calls that cannot be captured (CUstreamCaptureMode): all threads, the one that captures, or nobody.
/// Every thread has such a mode as well, which says what of others' captures it heeds.
enum class CaptureMode : int { kGlobal, kThreadLocal, kRelaxed };

/// A capture under way, of one stream or several that joined by events.
struct Capture {
  Graph* graph = nullptr;
  Stream* origin = nullptr;
  uint64_t id = 0;
  std::vector<Stream*> streams;
  CaptureMode mode = CaptureMode::kGlobal;
  std::thread::id thread = std::this_thread::get_id();  // that began it
  bool is_invalid = false;  // by a call that cannot be made during it; ending it then fails
  bool is_over = false;  // events that were recorded in it are good for nothing until they are recorded anew
};

struct Stream {
  Stream(Context* of, unsigned stream_flags, int stream_priority = 0)
      : context(of), flags(stream_flags), priority(stream_priority) {}
  Context* context;
  unsigned flags;
  int priority;
  uint64_t id = 0;
  vgpu::StreamOrder::Stream order = vgpu::StreamOrder::kLegacyStream;  // what the virtual GPU knows it by
  std::shared_ptr<Capture> capture;
  std::vector<GraphNode*> tail;  // while captured: what the next node comes after
  Backlog::Number last = 0;      // of its steps in the backlog

  bool is_capturing() const { return capture != nullptr; }
};

struct Event {
  explicit Event(unsigned event_flags) : flags(event_flags) {}
  unsigned flags;
  vgpu::StreamOrder::Event order = 0;
  bool is_recorded = false;
  Backlog::Number last = 0;  // the step by which it is recorded, where that is in the backlog
  std::chrono::steady_clock::time_point time;
  std::shared_ptr<Capture> capture;  // recorded while captured: not a point in time, but in the graph
  std::vector<GraphNode*> tail;
};

inline constexpr unsigned kEventDisableTiming = 2, kStreamNonBlocking = 1;

/// Whether a host function that comes before the end of the stream's work, or before the event, is still to run.
bool is_under_way(const Stream& stream);
bool is_under_way(const Event& event);
/// Takes the next step of the stream's work: now, or when what is under way has been done.
void carry_out(Stream& stream, std::function<void()> step);
/// Takes it by the thread of host functions, which the rest of the stream's work then waits for.
void leave(Stream& stream, std::function<void()> step);
/// Now, or when all that is under way has been done: for the end of what that may use.
void when_nothing_is_under_way(std::function<void()> step);

/// The host waits: for a stream's work, for an event, for everything. What unordered calls do to the same memory is
/// a race, and these are what orders them.
void host_waits_for(const Stream& stream);
void host_waits_for(const Event& event);
void host_waits_for_everything();
/// What host functions hold up, which changes nothing about what is ordered.
void host_waits_for_backlog();

/// Event record and wait, by which captured streams fork and join.
void record_event(Stream& stream, Event& event);
void wait_event(Stream& stream, Event& event);
/// Of events that stay what they are outside of a graph (cudaEventRecordExternal): nodes of it. CUDA_ERROR_ILLEGAL_STATE where the
/// stream is not captured.
void record_external_event(Stream& stream, Event& event);
void wait_external_event(Stream& stream, Event& event);

/// Of the calling thread: cuThreadExchangeStreamCaptureMode.
CaptureMode& thread_capture_mode();
/// CUDA_ERROR_INVALID_VALUE where there is no such mode.
CaptureMode capture_mode(int number);
void begin_capture(Stream& stream, Graph& graph, std::vector<GraphNode*> tail, CaptureMode mode);
/// The graph; CUDA_ERROR_ILLEGAL_STATE where the stream is not being captured, and
/// CUDA_ERROR_STREAM_CAPTURE_UNJOINED where streams that joined did not come back.
Graph& end_capture(Stream& stream);
/// CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED where the stream is captured, which ends the capture: what waits cannot be kept.
void expect_not_captured(const Stream& stream);
/// The same of every stream, for what waits for all.
void expect_no_capture();
/// Of an event: CUDA_ERROR_CAPTURED_EVENT where it was recorded in a capture, which ends the capture.
void expect_not_captured(const Event& event);
/// CUDA_ERROR_INVALID_VALUE where it was recorded in a capture that has ended.
void expect_not_over(const Event& event);
/// For calls by which the host waits for a stream, or asks about it: none of its own, of one that it is ordered with, or of one
/// that forbids unsafe calls.
void expect_may_be_waited_for(const Stream& stream);
/// For calls that need not conflict with a capture and are unsafe during one, such as cudaMalloc: CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
/// where a capture on the current device forbids them to this thread, which ends the capture.
void expect_no_unsafe_capture();
/// CUDA_ERROR_STREAM_CAPTURE_IMPLICIT for work on the legacy stream while a stream is captured that waits for it, which ends
/// the capture; a question about that stream does not.
void expect_no_implicit_capture(const Stream& stream, bool ends_capture = true);

}  // namespace imbrex::cuda
