// SPDX-License-Identifier: Apache-2.0
#include "imbrex/runtime/device_tensor.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "imbrex/core/error.h"
#include "runtime/device/backend.h"

namespace imbrex {

struct DeviceTensor::Memory {
  Device device;
  uint64_t address = 0;
  int64_t bytes = 0;

  Memory(const Device& d, int64_t size) : device(d), bytes(size) {
    address = device.backend().allocate(std::max<int64_t>(size, 1));
  }
  ~Memory() { release(); }
  void release() {
    if (address != 0) device.backend().free(address);
    address = 0;
  }
};

DeviceTensor DeviceTensor::empty(const Device& device, DataType dtype, std::vector<int64_t> shape) {
  DeviceTensor tensor;
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
  tensor.dtype_ = dtype;
  tensor.shape_ = std::move(shape);
  tensor.memory_ = std::make_shared<Memory>(device, (bits + 7) / 8);
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

}  // namespace

HostTensor DeviceTensor::to_host() const {
  require_memory(*this, "to_host");
  HostTensor host(dtype_, shape_);
  device().backend().copy_from_device(host.bytes().data(), address(), bytes());
  return host;
}

void DeviceTensor::copy_from(const HostTensor& host) {
  require_memory(*this, "copy_from");
  if (host.dtype() != dtype_ || host.shape() != shape_)
    throw LaunchError(
        Diagnostic{{},
                   fmt::format("copy of {}[{}] into {}[{}]", host.dtype().name(),
                               fmt::join(host.shape(), ", "), dtype_.name(), fmt::join(shape_, ", ")),
                   {},
                   "element type and shape must agree"});
  device().backend().copy_to_device(address(), host.bytes().data(), bytes());
}

void DeviceTensor::poison() {
  require_memory(*this, "poison");
  device().backend().fill(address(), 0xFF, bytes());
}

void DeviceTensor::release() {
  if (memory_) memory_->release();
}

}  // namespace imbrex
