// SPDX-License-Identifier: Apache-2.0
// Streams and events: in what order a device executes launches and copies.
//
//   Stream mine = Stream::create(device);
//   Stream theirs = Stream::adopt(device, cuda_stream);
//   x.copy_from(host, mine);
//   kernel.on(mine)(n, x, y);
//   theirs.wait(Event::recorded_on(mine));  // what follows on theirs sees y
//
// The virtual GPU executes each call before it returns, and reports what streams leave unordered as a race, by the lines
// of both calls: docs/checkers.md, "Between calls".
#pragma once

#include <memory>

#include "imbrex/runtime/device.h"

namespace imbrex {

class Event;

/// A queue of launches and copies of one device, which are executed in order. A handle: cheap to copy. Any thread
/// may use it.
class Stream {
 public:
  /// The device's own stream, of whichever device it is used on: what calls without a stream use.
  Stream() = default;
  /// A new stream, not ordered with any other (as CU_STREAM_NON_BLOCKING); it is destroyed with its last handle,
  /// once what was queued has ended.
  static Stream create(const Device& device);
  /// A `cudaStream_t` or `CUstream` of another program, which must outlive its use here: it is not destroyed.
  /// Null is CUDA's default stream, as are cudaStreamLegacy (1) and cudaStreamPerThread (2). LaunchError for a
  /// stream of another context than the device's, and on the virtual GPU for any but those and its own.
  static Stream adopt(const Device& device, void* handle);

  bool is_default() const { return !state_; }
  /// LaunchError for Stream().
  const Device& device() const;
  /// The CUstream, on the virtual GPU a handle that adopt() takes; null for Stream().
  void* handle() const;

  /// Waits until everything on the stream has ended. DeviceError when any of it failed, LaunchError for Stream()
  /// and while the stream is being captured.
  void synchronize() const;
  /// What comes after on this stream waits for what was before the event's last record(); the host does not wait.
  /// LaunchError for an event that was not recorded, one of another device, and for Stream().
  void wait(const Event& event) const;
  /// Whether launches are at present recorded into a CUDA graph (cudaStreamBeginCapture). False on the virtual
  /// GPU. LaunchError for Stream().
  bool is_capturing() const;

 private:
  struct State;
  std::shared_ptr<const State> state_;
};

/// A point in a stream. A handle: copies are the same event. One thread at a time may use an event.
class Event {
 public:
  static Event create(const Device& device);
  /// A new event, recorded on `stream`. LaunchError for Stream().
  static Event recorded_on(const Stream& stream);

  /// Moves the event behind what is on the stream now. LaunchError for a stream of another device.
  void record(const Stream& stream = {});
  /// Waits until what was before the last record() has ended. LaunchError if it was not recorded.
  void synchronize() const;
  /// Device time from `earlier` to this event, in ms, on the virtual GPU wall-clock time; waits for this event.
  /// LaunchError unless both were recorded, and on one device.
  double milliseconds_since(const Event& earlier) const;

 private:
  friend class Stream;
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace imbrex
