// SPDX-License-Identifier: Apache-2.0
// From the Stream of a call to the driver's handle, checked.
#pragma once

#include <string>

#include "imbrex/runtime/stream.h"
#include "runtime/device/backend.h"

namespace imbrex::runtime {

/// LaunchError "<what>: the stream is of ...".
[[noreturn]] void stream_of_another_device(const Device& device, const Stream& stream,
                                           const std::string& what);

/// The handle of the stream, of Stream() the device's own. LaunchError for a stream of another device.
inline CUstream_st* handle_on(const Device& device, const Stream& stream, const char* what) {
  if (stream.is_default()) return device.backend().stream();
  if (&stream.device().backend() != &device.backend()) stream_of_another_device(device, stream, what);
  return static_cast<CUstream_st*>(stream.handle());
}

/// LaunchError while the stream is being captured: for calls that wait.
void refuse_capture(const std::string& what, const DeviceBackend& backend, CUstream_st* stream);

}  // namespace imbrex::runtime
