// SPDX-License-Identifier: Apache-2.0
#include "imbrex/runtime/device.h"

#include <fmt/format.h>

#include "imbrex/core/error.h"
#include "runtime/device/backend.h"
#include "runtime/device/device_facts.h"
#include "runtime/driver/cuda_driver.h"

namespace imbrex {

void runtime::DeviceBackend::mark(size_t) { throw InternalError("events on a device without them"); }
double runtime::DeviceBackend::milliseconds_between(size_t, size_t) {
  throw InternalError("events on a device without them");
}
void runtime::DeviceBackend::begin_capture(CUstream_st*) {
  throw InternalError("a capture on a device without them");
}
std::unique_ptr<runtime::DeviceGraph> runtime::DeviceBackend::end_capture(CUstream_st*) {
  throw InternalError("a capture on a device without them");
}
uint64_t runtime::DeviceBackend::allocate_in_capture(int64_t, CUstream_st*) {
  throw InternalError("a capture on a device without them");
}
void runtime::DeviceBackend::copy_to_device(uint64_t to, const void* from, int64_t bytes,
                                            SourceLocation where) {
  before_wait(stream());
  start_copy_to_device(to, from, bytes, {stream(), where});
  synchronize(stream());
}
void runtime::DeviceBackend::copy_from_device(void* to, uint64_t from, int64_t bytes, SourceLocation where) {
  before_wait(stream());
  start_copy_from_device(to, from, bytes, {stream(), where});
  synchronize(stream());
}
void runtime::DeviceBackend::copy_on_device(uint64_t to, uint64_t from, int64_t bytes, SourceLocation where) {
  start_copy_on_device(to, from, bytes, {stream(), where});
}
void runtime::DeviceBackend::fill(uint64_t to, uint8_t value, int64_t bytes, SourceLocation where) {
  start_fill(to, value, bytes, {stream(), where});
}
void runtime::DeviceBackend::start_rows_to_device(uint64_t to, const void* from, const ByteRows& rows,
                                                  OnStream on) {
  for (int64_t i = 0; i < rows.height; ++i)
    start_copy_to_device(to + i * rows.to_pitch, static_cast<const std::byte*>(from) + i * rows.from_pitch,
                         rows.width, on);
}
void runtime::DeviceBackend::start_rows_from_device(void* to, uint64_t from, const ByteRows& rows,
                                                    OnStream on) {
  for (int64_t i = 0; i < rows.height; ++i)
    start_copy_from_device(static_cast<std::byte*>(to) + i * rows.to_pitch, from + i * rows.from_pitch,
                           rows.width, on);
}
void runtime::DeviceBackend::start_rows_on_device(uint64_t to, uint64_t from, const ByteRows& rows,
                                                  OnStream on) {
  for (int64_t i = 0; i < rows.height; ++i)
    start_copy_on_device(to + i * rows.to_pitch, from + i * rows.from_pitch, rows.width, on);
}
void runtime::DeviceBackend::start_fill_rows(uint64_t to, uint8_t value, const ByteRows& rows, OnStream on) {
  for (int64_t i = 0; i < rows.height; ++i) start_fill(to + i * rows.to_pitch, value, rows.width, on);
}

Device Device::virtual_gpu(vgpu::Options options) {
  return Device(runtime::make_virtual_device(std::move(options)));
}
Device Device::cuda(int ordinal) { return Device(runtime::cuda_device(ordinal)); }
Device Device::current() { return Device(runtime::current_cuda_device()); }
bool Device::has_cuda(std::string* why_not) { return runtime::CudaDriver::find(why_not) != nullptr; }

Device Device::open(std::string_view kind, const std::string& target, vgpu::Options options) {
  options.target = target;
  if (kind == "virtual") return virtual_gpu(std::move(options));
  if (kind == "cuda") return cuda();
  if (kind == "auto") {
    if (has_cuda()) {
      Device device = cuda();
      if (device.can_run(target)) return device;
    }
    return virtual_gpu(std::move(options));
  }
  throw LaunchError(
      Diagnostic{{}, fmt::format("unknown device '{}'", kind), {}, "use auto, virtual or cuda"});
}

bool Device::is_virtual() const { return backend_->is_virtual(); }
std::string Device::name() const { return backend_->name(); }
std::string Device::target() const { return backend_->target(); }
bool Device::can_run(const std::string& wanted) const { return runtime::target_runs(target(), wanted); }
int Device::multiprocessors() const { return backend_->multiprocessors(); }
void Device::synchronize() const { backend_->synchronize(); }
vgpu::VirtualGpu& Device::virtual_machine() const { return runtime::virtual_machine(*backend_); }

}  // namespace imbrex
