// SPDX-License-Identifier: Apache-2.0
#include "imbrex/parallel/copies_beside.h"

#include "imbrex/core/error.h"
#include "runtime/device/backend.h"
#include "runtime/device/stream_handle.h"

namespace imbrex::parallel {

CopiesBeside::CopiesBeside(const Device& device)
    : device_(device), forked_(Event::create(device)), ended_(Event::create(device)) {
  if (device.is_virtual())
    throw LaunchError(
        Diagnostic{{}, "a virtual GPU copies nothing beside its kernels", {}, "let a kernel copy"});
  stream_ = Stream::create(device);
}

void CopiesBeside::fork(const Stream& stream) {
  forked_.record(stream);
  stream_.wait(forked_);
}

void CopiesBeside::copy(uint64_t to, uint64_t from, int64_t bytes, SourceLocation where) {
  device_.backend().start_copy_on_device(to, from, bytes,
                                         {runtime::handle_on(device_, stream_, "CopiesBeside::copy"), where});
}

void CopiesBeside::join(const Stream& stream) {
  ended_.record(stream_);
  const Stream own = Stream::adopt(device_, device_.backend().stream());
  (stream.is_default() ? own : stream).wait(ended_);
}

}  // namespace imbrex::parallel
