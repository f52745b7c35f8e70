// SPDX-License-Identifier: Apache-2.0
// Dense row-major tensors in a device's memory, allocated here or by another program.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "imbrex/core/dtype.h"
#include "imbrex/runtime/device.h"
#include "imbrex/runtime/host_tensor.h"
#include "imbrex/runtime/stream.h"

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
  /// Memory that somebody else allocated, from `address` on, as kernels see it (a CUdeviceptr, or a cudaMalloc pointer
  /// as a number): it is not freed, and must outlive the tensor's use. `strides`, in elements, outermost first, may be
  /// given if they are those of a dense row-major tensor, which an extent of 1 leaves open. LaunchError for other
  /// strides, a negative extent, an address that is null, is not a multiple of the element's size, or of which CUDA
  /// knows that it is not the device's memory.
  static DeviceTensor view(const Device& device, uint64_t address, DataType dtype, std::vector<int64_t> shape,
                           const std::vector<int64_t>& strides = {});
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

  // Copies are in order with what is on their stream (Stream(): the device's own) and throw LaunchError without
  // memory, for a stream of another device, and where types and shapes differ. Those that wait throw it also
  // while the stream is being captured into a CUDA graph.

  /// Copies to the host, and waits for it.
  HostTensor to_host(const Stream& stream = {}) const;
  /// Copies from the host, and waits for it.
  void copy_from(const HostTensor& host, const Stream& stream = {});
  /// Copies without waiting: `host` must live until the copy has ended.
  void copy_to_async(HostTensor& host, const Stream& stream = {}) const;
  /// Copies without waiting: `host` must live and stay as it is until the copy has ended, in a graph at each replay.
  void copy_from_async(const HostTensor& host, const Stream& stream = {});
  /// Copies a tensor of the same device, without waiting.
  void copy_from(const DeviceTensor& other, const Stream& stream = {});
  /// Sets every byte, without waiting.
  void fill(uint8_t byte, const Stream& stream = {});
  /// Fills the memory with 0xFF bytes: NaN in every float type that has one, so that an element that is never
  /// written is noticed.
  void poison(const Stream& stream = {}) { fill(0xFF, stream); }
  /// Frees the memory now, for all handles; later use of any of them is an error. A view only forgets it.
  void release();

 private:
  struct Memory;
  std::shared_ptr<Memory> memory_;
  DataType dtype_ = float32;
  std::vector<int64_t> shape_;
};

}  // namespace imbrex
