// SPDX-License-Identifier: Apache-2.0
// Tensors in a device's memory, allocated here or by another program; views of parts of them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "imbrex/core/dtype.h"
#include "imbrex/core/source_location.h"
#include "imbrex/runtime/device.h"
#include "imbrex/runtime/host_tensor.h"
#include "imbrex/runtime/stream.h"

namespace imbrex {

/// A tensor in device memory. A handle: copies and views share the memory, which is freed with the last of them.
/// Shapes are in elements, outermost first, and so are strides: from an element to the next of a dimension. What
/// is made here is dense, row-major without gaps; views may have any strides that are not negative (a matrix's
/// leading dimension, BLAS's lda, is the stride of its rows).
class DeviceTensor {
 public:
  /// The null tensor: no memory, no device.
  DeviceTensor() = default;
  /// Uninitialised memory. LaunchError for a negative extent, DeviceError when the device has not enough.
  static DeviceTensor empty(const Device& device, DataType dtype, std::vector<int64_t> shape);
  /// Element type and shape without memory: enough to trace a kernel, not to launch it.
  static DeviceTensor shape_only(DataType dtype, std::vector<int64_t> shape);
  /// Memory that somebody else allocated, with its first element at `address`, as kernels see it (a CUdeviceptr, or a
  /// cudaMalloc pointer as a number): it is not freed, and must outlive the tensor's use. Without `strides` it is
  /// dense. A stride of 0 repeats what lies there along the dimension; such tensors, and others whose elements share
  /// memory, are for reading. LaunchError for negative extents and strides, rows of elements of less than a byte that
  /// do not begin at whole bytes, an address that is null, is not a multiple of the element's size, or of which CUDA
  /// knows that it is not the device's memory.
  static DeviceTensor view(const Device& device, uint64_t address, DataType dtype, std::vector<int64_t> shape,
                           std::vector<int64_t> strides = {});
  /// A copy of `host`.
  static DeviceTensor from_host(const Device& device, const HostTensor& host,
                                SourceLocation where = SourceLocation::current());
  /// What HostTensor::random() gives for these arguments and deviation 1.
  static DeviceTensor random(const Device& device, DataType dtype, std::vector<int64_t> shape, uint64_t seed);

  bool is_null() const { return !memory_; }
  DataType dtype() const { return dtype_; }
  const std::vector<int64_t>& shape() const { return shape_; }
  const std::vector<int64_t>& strides() const { return strides_; }
  /// Row-major without gaps, as most kernels expect it; the stride of an extent of 1 may be any.
  bool is_dense() const { return is_dense_; }
  /// Whether elements may share memory, as those along a stride of 0 do. Such a tensor cannot be written.
  bool may_overlap() const;
  /// From the first element to the end of the last: the size of a dense tensor; 0 without memory.
  int64_t bytes() const;
  /// Where kernels see its first element; 0 without memory and after release().
  uint64_t address() const;
  /// LaunchError for a tensor without memory.
  const Device& device() const;

  // Views: tensors of the same memory. Nothing is copied. LaunchError for what does not lie in the tensor.

  /// The part of this shape from the offsets on.
  DeviceTensor slice(const std::vector<int64_t>& offsets, std::vector<int64_t> shape) const;
  /// One of the tensors along the first dimension.
  DeviceTensor operator[](int64_t index) const;
  /// Dimension d of the view is dimension dims[d] of the tensor.
  DeviceTensor permute(const std::vector<int64_t>& dims) const;
  /// The last two dimensions exchanged.
  DeviceTensor transpose() const;

  // Copies are in order with what is on their stream (Stream(): the device's own) and throw LaunchError without
  // memory, for a stream of another device, where types and shapes differ, and where elements that are written share
  // memory. Those that wait throw it also while the stream is being captured into a CUDA graph. Host tensors are
  // dense; what lies between the rows of a strided tensor is not touched. On the virtual GPU they throw DeviceError where
  // they race with another call (docs/checkers.md, "Between calls"); `where` is the caller's line, for that.

  /// Copies to the host, and waits for it.
  HostTensor to_host(const Stream& stream = {}, SourceLocation where = SourceLocation::current()) const;
  /// Copies from the host, and waits for it.
  void copy_from(const HostTensor& host, const Stream& stream = {},
                 SourceLocation where = SourceLocation::current());
  /// Copies without waiting: `host` must live until the copy has ended.
  void copy_to_async(HostTensor& host, const Stream& stream = {},
                     SourceLocation where = SourceLocation::current()) const;
  /// Copies without waiting: `host` must live and stay as it is until the copy has ended, in a graph at each replay.
  void copy_from_async(const HostTensor& host, const Stream& stream = {},
                       SourceLocation where = SourceLocation::current());
  /// Copies a tensor of the same device, without waiting. The two must not share memory.
  void copy_from(const DeviceTensor& other, const Stream& stream = {},
                 SourceLocation where = SourceLocation::current());
  /// Sets every byte of every element, without waiting.
  void fill(uint8_t byte, const Stream& stream = {}, SourceLocation where = SourceLocation::current());
  /// Fills the memory with 0xFF bytes: NaN in every float type that has one, so that an element that is never
  /// written is noticed.
  void poison(const Stream& stream = {}, SourceLocation where = SourceLocation::current()) {
    fill(0xFF, stream, where);
  }
  /// Frees the memory now, for all handles and views of it; later use of any of them is an error. Another's memory
  /// is only forgotten. What uses the memory must have been waited for: the virtual GPU throws DeviceError where it was
  /// not. (The end of the last handle, which frees it too, waits instead.)
  void release(SourceLocation where = SourceLocation::current());

 private:
  friend class Workspace;
  struct Memory;
  /// A dense view of memory that is known to be the device's.
  static DeviceTensor of_known_memory(const Device& device, uint64_t address, DataType dtype,
                                      std::vector<int64_t> shape);
  /// LaunchError unless memory can have these elements.
  DeviceTensor(DataType dtype, std::vector<int64_t> shape, std::vector<int64_t> strides);
  DeviceTensor part(uint64_t offset, std::vector<int64_t> shape, std::vector<int64_t> strides) const;
  [[noreturn]] void refuse(std::string message, std::string help) const;
  /// LaunchError unless it can be written.
  void require_writable(const char* what) const;

  std::shared_ptr<Memory> memory_;
  DataType dtype_ = float32;
  std::vector<int64_t> shape_, strides_;
  uint64_t offset_ = 0;  // bytes from the memory's address
  int64_t bytes_ = 0;    // from the first element to the end of the last
  bool is_dense_ = true;
};

}  // namespace imbrex
