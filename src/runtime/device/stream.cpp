// SPDX-License-Identifier: Apache-2.0
#include "imbrex/runtime/stream.h"

#include <fmt/format.h>

#include "imbrex/core/error.h"
#include "runtime/device/backend.h"
#include "runtime/device/stream_handle.h"

namespace imbrex {
namespace {

[[noreturn]] void refuse(std::string message, std::vector<std::string> facts, std::string help) {
  throw LaunchError(Diagnostic{{}, std::move(message), std::move(facts), std::move(help)});
}

void require_same_device(const char* what, const Device& of_event, const Device& other) {
  if (of_event.shared_backend() != other.shared_backend())
    refuse(fmt::format("{}: the event is of '{}', not of '{}'", what, of_event.name(), other.name()), {},
           "use an event of the same device");
}

}  // namespace

struct Stream::State {
  Device device;
  runtime::CUstream_st* handle = nullptr;
  bool is_owned = false;

  ~State() {
    if (is_owned) device.backend().destroy_stream(handle);
  }
};

Stream Stream::create(const Device& device) {
  Stream stream;
  stream.state_ = std::shared_ptr<const State>(new State{device, device.backend().create_stream(), true});
  return stream;
}

Stream Stream::adopt(const Device& device, void* handle) {
  const auto adopted = static_cast<runtime::CUstream_st*>(handle);
  device.backend().check_adopted(adopted);
  Stream stream;
  stream.state_ = std::shared_ptr<const State>(new State{device, adopted, false});
  return stream;
}

const Device& Stream::device() const {
  if (!state_)
    refuse("Stream() is the own stream of whichever device it is used on: by itself it has none", {},
           "make it with Stream::create or Stream::adopt");
  return state_->device;
}

void* Stream::handle() const { return state_ ? state_->handle : nullptr; }

void Stream::synchronize() const {
  runtime::DeviceBackend& backend = device().backend();
  runtime::refuse_capture("Stream::synchronize", backend, state_->handle);
  backend.synchronize(state_->handle);
}

bool Stream::is_capturing() const { return device().backend().is_capturing(state_->handle); }

struct Event::State {
  Device device;
  std::unique_ptr<runtime::DeviceEvent> event;
  bool is_recorded = false;

  void require_recorded(const char* what) const {
    if (!is_recorded)
      refuse(fmt::format("{}: the event has not been recorded", what), {}, "call record() before");
  }
};

void Stream::wait(const Event& event) const {
  require_same_device("Stream::wait", event.state_->device, device());
  event.state_->require_recorded("Stream::wait");
  event.state_->event->hold(state_->handle);
}

Event Event::create(const Device& device) {
  Event event;
  event.state_ = std::shared_ptr<State>(new State{device, device.backend().create_event()});
  return event;
}

Event Event::recorded_on(const Stream& stream) {
  Event event = create(stream.device());
  event.record(stream);
  return event;
}

void Event::record(const Stream& stream) {
  state_->event->record(runtime::handle_on(state_->device, stream, "Event::record"));
  state_->is_recorded = true;
}

void Event::synchronize() const {
  state_->require_recorded("Event::synchronize");
  state_->event->synchronize();
}

double Event::milliseconds_since(const Event& earlier) const {
  require_same_device("Event::milliseconds_since", earlier.state_->device, state_->device);
  earlier.state_->require_recorded("Event::milliseconds_since");
  state_->require_recorded("Event::milliseconds_since");
  return state_->event->milliseconds_since(*earlier.state_->event);
}

namespace runtime {

void stream_of_another_device(const Device& device, const Stream& stream, const std::string& what) {
  refuse(fmt::format("{}: the stream is of '{}', not of '{}'", what, stream.device().name(), device.name()),
         {}, "use a stream of the same device");
}

void refuse_capture(const std::string& what, const DeviceBackend& backend, CUstream_st* stream) {
  if (backend.is_capturing(stream))
    refuse(what + ": it would wait, and the stream is being captured into a CUDA graph", {},
           "call it before the capture begins or after it ends");
}

}  // namespace runtime
}  // namespace imbrex
