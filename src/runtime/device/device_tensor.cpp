// SPDX-License-Identifier: Apache-2.0
#include "imbrex/runtime/device_tensor.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "imbrex/core/error.h"
#include "runtime/device/backend.h"
#include "runtime/device/stream_handle.h"

namespace imbrex {

struct DeviceTensor::Memory {
  Device device;
  uint64_t address = 0;
  int64_t bytes = 0;
  bool is_owned = true;

  ~Memory() { release(); }
  void release() {
    if (address != 0 && is_owned) device.backend().free(address);
    address = 0;
  }
};

namespace {

/// Of a dense tensor. LaunchError for a negative extent.
int64_t bytes_of(DataType dtype, const std::vector<int64_t>& shape) {
  int64_t bits = dtype.bits();
  for (int64_t extent : shape) {
    if (extent < 0)
      throw LaunchError(
          Diagnostic{{},
                     fmt::format("tensor of shape [{}]: negative extent", fmt::join(shape, ", ")),
                     {},
                     "extents are 0 or more"});
    bits *= extent;
  }
  return (bits + 7) / 8;
}

/// LaunchError unless the strides are those of a dense row-major tensor.
void check_dense(const std::vector<int64_t>& shape, const std::vector<int64_t>& strides) {
  const auto fail = [&](std::string message, std::string help) {
    throw LaunchError(Diagnostic{{},
                                 "DeviceTensor::view: " + std::move(message),
                                 {fmt::format("shape    [{}]", fmt::join(shape, ", ")),
                                  fmt::format("strides  [{}]", fmt::join(strides, ", "))},
                                 std::move(help)});
  };
  if (strides.size() != shape.size())
    fail(fmt::format("{} strides for {} dimensions", strides.size(), shape.size()),
         "give one stride, in elements, for each dimension, or none");
  int64_t dense = 1;
  if (std::ranges::count(shape, 0) > 0) return;  // no element is anywhere
  for (size_t i = shape.size(); i-- > 0;) {
    if (shape[i] != 1 && strides[i] != dense)
      fail(fmt::format("dimension {} has a stride of {}, a dense row-major tensor {}", i, strides[i], dense),
           "make a contiguous copy of the tensor and view that");
    dense *= shape[i];
  }
}

}  // namespace

DeviceTensor DeviceTensor::empty(const Device& device, DataType dtype, std::vector<int64_t> shape) {
  DeviceTensor tensor;
  const int64_t bytes = bytes_of(dtype, shape);
  tensor.dtype_ = dtype;
  tensor.shape_ = std::move(shape);
  const uint64_t address = device.backend().allocate(std::max<int64_t>(bytes, 1));
  tensor.memory_ = std::shared_ptr<Memory>(new Memory{device, address, bytes});
  return tensor;
}

DeviceTensor DeviceTensor::view(const Device& device, uint64_t address, DataType dtype,
                                std::vector<int64_t> shape, const std::vector<int64_t>& strides) {
  const int64_t bytes = bytes_of(dtype, shape);
  const auto fail = [&](std::string message, std::string help) {
    throw LaunchError(
        Diagnostic{{},
                   fmt::format("DeviceTensor::view: {}", message),
                   {fmt::format("tensor  {}[{}], {} bytes", dtype.name(), fmt::join(shape, ", "), bytes)},
                   std::move(help)});
  };
  if (!strides.empty()) check_dense(shape, strides);
  const auto unit = static_cast<uint64_t>(std::max(dtype.bits() / 8, 1));
  if (address == 0) fail("the address is null", "pass the address of the tensor's first element");
  if (address % unit != 0)
    fail(fmt::format("address 0x{:x} is not a multiple of {}", address, unit), "align the buffer");
  if (bytes > 0) {
    try {
      device.backend().check_memory(address, bytes);
    } catch (const LaunchError& error) {
      const Diagnostic& found = error.diagnostics().front();
      fail(found.message, found.help);
    }
  }
  DeviceTensor tensor;
  tensor.dtype_ = dtype;
  tensor.shape_ = std::move(shape);
  tensor.memory_ = std::shared_ptr<Memory>(new Memory{device, address, bytes, false});
  return tensor;
}

DeviceTensor DeviceTensor::shape_only(DataType dtype, std::vector<int64_t> shape) {
  DeviceTensor tensor;
  tensor.dtype_ = dtype;
  tensor.shape_ = std::move(shape);
  return tensor;
}

DeviceTensor DeviceTensor::from_host(const Device& device, const HostTensor& host) {
  DeviceTensor tensor = empty(device, host.dtype(), host.shape());
  tensor.copy_from(host);
  return tensor;
}

DeviceTensor DeviceTensor::random(const Device& device, DataType dtype, std::vector<int64_t> shape,
                                  uint64_t seed) {
  return from_host(device, HostTensor::random(dtype, std::move(shape), seed));
}

int64_t DeviceTensor::bytes() const { return memory_ ? memory_->bytes : 0; }
uint64_t DeviceTensor::address() const { return memory_ ? memory_->address : 0; }

const Device& DeviceTensor::device() const {
  if (!memory_)
    throw LaunchError(Diagnostic{{},
                                 "a null tensor has no device and no memory",
                                 {},
                                 "make it with DeviceTensor::empty, from_host or random"});
  return memory_->device;
}

namespace {

/// Throws unless the tensor has memory to read or write.
void require_memory(const DeviceTensor& tensor, const char* what) {
  if (tensor.is_null()) throw LaunchError(Diagnostic{{}, fmt::format("{} of a null tensor", what), {}, ""});
  if (tensor.address() == 0)
    throw LaunchError(Diagnostic{{},
                                 fmt::format("{} of a tensor that has been released: {}[{}]", what,
                                             tensor.dtype().name(), fmt::join(tensor.shape(), ", ")),
                                 {},
                                 "use it before release()"});
}

template <class Tensor>
void require_alike(const Tensor& from, const DeviceTensor& to) {
  if (from.dtype() == to.dtype() && from.shape() == to.shape()) return;
  throw LaunchError(
      Diagnostic{{},
                 fmt::format("copy between {}[{}] and {}[{}]", from.dtype().name(),
                             fmt::join(from.shape(), ", "), to.dtype().name(), fmt::join(to.shape(), ", ")),
                 {},
                 "element type and shape must agree"});
}

}  // namespace

HostTensor DeviceTensor::to_host(const Stream& stream) const {
  require_memory(*this, "to_host");
  HostTensor host(dtype_, shape_);
  runtime::DeviceBackend& backend = device().backend();
  runtime::CUstream_st* const handle = runtime::handle_on(device(), stream, "to_host");
  runtime::refuse_capture("to_host", backend, handle);
  backend.start_copy_from_device(host.bytes().data(), address(), bytes(), handle);
  backend.synchronize(handle);
  return host;
}

void DeviceTensor::copy_from(const HostTensor& host, const Stream& stream) {
  require_memory(*this, "copy_from");
  require_alike(host, *this);
  runtime::DeviceBackend& backend = device().backend();
  runtime::CUstream_st* const handle = runtime::handle_on(device(), stream, "copy_from");
  runtime::refuse_capture("copy_from", backend, handle);
  backend.start_copy_to_device(address(), host.bytes().data(), bytes(), handle);
  backend.synchronize(handle);
}

void DeviceTensor::copy_to_async(HostTensor& host, const Stream& stream) const {
  require_memory(*this, "copy_to_async");
  require_alike(host, *this);
  device().backend().start_copy_from_device(host.bytes().data(), address(), bytes(),
                                            runtime::handle_on(device(), stream, "copy_to_async"));
}

void DeviceTensor::copy_from_async(const HostTensor& host, const Stream& stream) {
  require_memory(*this, "copy_from_async");
  require_alike(host, *this);
  device().backend().start_copy_to_device(address(), host.bytes().data(), bytes(),
                                          runtime::handle_on(device(), stream, "copy_from_async"));
}

void DeviceTensor::copy_from(const DeviceTensor& other, const Stream& stream) {
  require_memory(*this, "copy_from");
  require_memory(other, "copy_from");
  require_alike(other, *this);
  if (other.device().shared_backend() != device().shared_backend())
    throw LaunchError(Diagnostic{{},
                                 fmt::format("copy_from: the other tensor lives on '{}', this one on '{}'",
                                             other.device().name(), device().name()),
                                 {},
                                 "copy by way of the host: copy_from(other.to_host())"});
  device().backend().start_copy_on_device(address(), other.address(), bytes(),
                                          runtime::handle_on(device(), stream, "copy_from"));
}

void DeviceTensor::fill(uint8_t byte, const Stream& stream) {
  require_memory(*this, "fill");
  device().backend().start_fill(address(), byte, bytes(), runtime::handle_on(device(), stream, "fill"));
}

void DeviceTensor::release() {
  if (memory_) memory_->release();
}

}  // namespace imbrex
