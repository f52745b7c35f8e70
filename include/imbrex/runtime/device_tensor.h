// SPDX-License-Identifier: Apache-2.0
// Dense row-major tensors in a device's memory.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "imbrex/core/dtype.h"
#include "imbrex/runtime/device.h"
#include "imbrex/runtime/host_tensor.h"

namespace imbrex {

/// A row-major tensor in device memory. A handle: copies share the memory, which is freed with the last one.
/// Shapes are in elements, outermost first.
class DeviceTensor {
 public:
  /// The null tensor: no memory, no device.
  DeviceTensor() = default;
  /// Uninitialised memory. LaunchError for a negative extent, DeviceError when the device has not enough.
  static DeviceTensor empty(const Device& device, DataType dtype, std::vector<int64_t> shape);
  /// Element type and shape without memory: enough to trace a kernel, not to launch it.
  static DeviceTensor shape_only(DataType dtype, std::vector<int64_t> shape);
  /// A copy of `host`.
  static DeviceTensor from_host(const Device& device, const HostTensor& host);
  /// What HostTensor::random() gives for these arguments and deviation 1.
  static DeviceTensor random(const Device& device, DataType dtype, std::vector<int64_t> shape, uint64_t seed);

  bool is_null() const { return !memory_; }
  DataType dtype() const { return dtype_; }
  const std::vector<int64_t>& shape() const { return shape_; }
  /// Size of the whole tensor; 0 without memory.
  int64_t bytes() const;
  /// Where kernels see its first element; 0 without memory and after release().
  uint64_t address() const;
  /// LaunchError for a tensor without memory.
  const Device& device() const;

  /// Waits for what was launched on the device, then copies. LaunchError without memory.
  HostTensor to_host() const;
  /// Waits for what was launched on the device, then copies. LaunchError unless type and shape are equal.
  void copy_from(const HostTensor& host);
  /// Fills the memory with 0xFF bytes: NaN in every float type that has one, so that an element that is never
  /// written is noticed. In order with the launches on the device.
  void poison();
  /// Frees the memory now, for all handles; later use of any of them is an error.
  void release();

 private:
  struct Memory;
  std::shared_ptr<Memory> memory_;
  DataType dtype_ = float32;
  std::vector<int64_t> shape_;
};

}  // namespace imbrex
