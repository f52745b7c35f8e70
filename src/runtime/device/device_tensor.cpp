// SPDX-License-Identifier: Apache-2.0
#include "imbrex/runtime/device_tensor.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>
#include <optional>

#include "imbrex/core/error.h"
#include "runtime/device/backend.h"
#include "runtime/device/stream_handle.h"
#include "runtime/device/strides.h"

namespace imbrex {

struct DeviceTensor::Memory {
  Device device;
  uint64_t address = 0;
  int64_t bytes = 0;
  bool is_owned = true;

  ~Memory() { release({}); }
  void release(SourceLocation where) {
    if (address != 0 && is_owned) device.backend().free(address, where);
    address = 0;
  }
};

namespace {

using runtime::ByteRows;

std::string text_of(const DeviceTensor& t) {
  const std::string strides =
      t.is_dense() ? "" : fmt::format(" with strides [{}]", fmt::join(t.strides(), ", "));
  return fmt::format("{}[{}]{}", t.dtype().name(), fmt::join(t.shape(), ", "), strides);
}

}  // namespace

void DeviceTensor::refuse(std::string message, std::string help) const {
  throw LaunchError(Diagnostic{{}, std::move(message), {"tensor  " + text_of(*this)}, std::move(help)});
}

DeviceTensor::DeviceTensor(DataType dtype, std::vector<int64_t> shape, std::vector<int64_t> strides)
    : dtype_(dtype), shape_(std::move(shape)), strides_(std::move(strides)) {
  is_dense_ = strides_.empty();  // until checked: for messages
  for (int64_t extent : shape_)
    if (extent < 0)
      throw LaunchError(
          Diagnostic{{},
                     fmt::format("tensor of shape [{}]: negative extent", fmt::join(shape_, ", ")),
                     {},
                     "extents are 0 or more"});
  if (strides_.empty()) strides_ = runtime::dense_strides(shape_);
  if (strides_.size() != shape_.size())
    refuse(fmt::format("{} strides for {} dimensions", strides_.size(), shape_.size()),
           "give one stride, in elements, for each dimension, or none for a dense tensor");
  for (size_t d = 0; d < shape_.size(); ++d)
    if (strides_[d] < 0)
      refuse(
          fmt::format("dimension {} has a stride of {}, and strides are 0 or more", d, strides_[d]),
          "copy the tensor to one without negative strides, or view it from its lowest address and reverse "
          "the order in the kernel");
  const std::optional<int64_t> span = runtime::span_of(shape_, strides_, dtype_.bits());
  if (!span) refuse("the tensor spans more memory than 64 bits address", "check its extents and strides");
  bytes_ = (*span * dtype_.bits() + 7) / 8;
  is_dense_ = runtime::is_dense(shape_, strides_);
  if (is_dense_ || dtype_.bits() >= 8) return;
  bool is_innermost = true;
  for (size_t d = shape_.size(); d-- > 0;) {
    if (shape_[d] == 1) continue;
    const bool is_row = is_innermost && strides_[d] == 1 && shape_[d] * dtype_.bits() % 8 == 0;
    if (!is_row && strides_[d] * dtype_.bits() % 8 != 0)
      refuse(fmt::format("dimension {} has {} elements of {} bits with a stride of {}, which are not rows of "
                         "whole bytes",
                         d, shape_[d], dtype_.bits(), strides_[d]),
             "copy the tensor to a dense one");
    is_innermost = false;
  }
}

DeviceTensor DeviceTensor::empty(const Device& device, DataType dtype, std::vector<int64_t> shape) {
  DeviceTensor tensor(dtype, std::move(shape), {});
  const uint64_t address = device.backend().allocate(std::max<int64_t>(tensor.bytes_, 1));
  tensor.memory_ = std::shared_ptr<Memory>(new Memory{device, address, tensor.bytes_});
  return tensor;
}

DeviceTensor DeviceTensor::view(const Device& device, uint64_t address, DataType dtype,
                                std::vector<int64_t> shape, std::vector<int64_t> strides) {
  const auto say = [](const LaunchError& error, const DeviceTensor* tensor) {
    Diagnostic told = error.diagnostics().front();
    told.message = "DeviceTensor::view: " + told.message;
    if (tensor != nullptr)
      told.facts.insert(told.facts.begin(),
                        fmt::format("tensor  {}, {} bytes", text_of(*tensor), tensor->bytes_));
    return LaunchError(std::move(told));
  };
  std::optional<DeviceTensor> tensor;
  try {
    tensor = DeviceTensor(dtype, std::move(shape), std::move(strides));
  } catch (const LaunchError& error) {
    throw say(error, nullptr);
  }
  try {
    const auto unit = static_cast<uint64_t>(std::max(dtype.bits() / 8, 1));
    if (address == 0)
      throw LaunchError(
          Diagnostic{{}, "the address is null", {}, "pass the address of the tensor's first element"});
    if (address % unit != 0)
      throw LaunchError(Diagnostic{
          {}, fmt::format("address 0x{:x} is not a multiple of {}", address, unit), {}, "align the buffer"});
    if (tensor->bytes_ > 0) device.backend().check_memory(address, tensor->bytes_);
  } catch (const LaunchError& error) {
    throw say(error, &*tensor);
  }
  tensor->memory_ = std::shared_ptr<Memory>(new Memory{device, address, 0, false});
  return *tensor;
}

DeviceTensor DeviceTensor::of_known_memory(const Device& device, uint64_t address, DataType dtype,
                                           std::vector<int64_t> shape) {
  DeviceTensor tensor(dtype, std::move(shape), {});
  tensor.memory_ = std::shared_ptr<Memory>(new Memory{device, address, 0, false});
  return tensor;
}

DeviceTensor DeviceTensor::shape_only(DataType dtype, std::vector<int64_t> shape) {
  return DeviceTensor(dtype, std::move(shape), {});
}

DeviceTensor DeviceTensor::part(uint64_t offset, std::vector<int64_t> shape,
                                std::vector<int64_t> strides) const {
  DeviceTensor tensor(dtype_, std::move(shape), std::move(strides));
  tensor.memory_ = memory_;
  tensor.offset_ = offset_ + offset;
  return tensor;
}

DeviceTensor DeviceTensor::slice(const std::vector<int64_t>& offsets, std::vector<int64_t> shape) const {
  if (offsets.size() != shape_.size() || shape.size() != shape_.size())
    refuse(fmt::format("slice: {} offsets and {} extents for {} dimensions", offsets.size(), shape.size(),
                       shape_.size()),
           "give one of each for each dimension");
  int64_t first = 0;
  for (size_t d = 0; d < shape.size(); ++d) {
    if (offsets[d] < 0 || shape[d] < 0 || shape[d] > shape_[d] || offsets[d] > shape_[d] - shape[d])
      refuse(fmt::format("slice: {} elements from {} on along dimension {}, which has {}", shape[d],
                         offsets[d], d, shape_[d]),
             "stay inside the tensor");
    first += offsets[d] * strides_[d];
  }
  if (first * dtype_.bits() % 8 != 0)
    refuse(fmt::format("slice: element {} of {} bits does not begin at a whole byte", first, dtype_.bits()),
           "begin where a byte does");
  return part(static_cast<uint64_t>(first * dtype_.bits() / 8), std::move(shape), strides_);
}

DeviceTensor DeviceTensor::operator[](int64_t index) const {
  if (shape_.empty() || index < 0 || index >= shape_[0])
    refuse(fmt::format("index {} of a tensor of {} along its first dimension", index,
                       shape_.empty() ? 0 : shape_[0]),
           "stay inside the tensor");
  std::vector<int64_t> offsets(shape_.size(), 0), one = shape_;
  offsets[0] = index, one[0] = 1;
  const DeviceTensor slab = slice(offsets, std::move(one));
  return slab.part(0, {shape_.begin() + 1, shape_.end()}, {strides_.begin() + 1, strides_.end()});
}

DeviceTensor DeviceTensor::permute(const std::vector<int64_t>& dims) const {
  std::vector<int64_t> shape, strides;
  std::vector<bool> is_used(shape_.size(), false);
  for (int64_t d : dims) {
    const auto from = static_cast<size_t>(d);
    if (d < 0 || from >= shape_.size() || is_used[from] || dims.size() != shape_.size())
      refuse(fmt::format("permute: [{}] is no order of {} dimensions", fmt::join(dims, ", "), shape_.size()),
             fmt::format("give each of 0 to {} once", static_cast<int64_t>(shape_.size()) - 1));
    is_used[from] = true;
    shape.push_back(shape_[from]);
    strides.push_back(strides_[from]);
  }
  if (dims.size() != shape_.size())
    refuse(fmt::format("permute: {} of {} dimensions are given", dims.size(), shape_.size()),
           "give each of them once");
  return part(0, std::move(shape), std::move(strides));
}

DeviceTensor DeviceTensor::transpose() const {
  if (shape_.size() < 2)
    refuse(fmt::format("transpose: a tensor of {} dimensions", shape_.size()), "it takes two or more");
  std::vector<int64_t> dims(shape_.size());
  std::iota(dims.begin(), dims.end(), 0);
  std::swap(dims[dims.size() - 2], dims[dims.size() - 1]);
  return permute(dims);
}

DeviceTensor DeviceTensor::from_host(const Device& device, const HostTensor& host, SourceLocation where) {
  DeviceTensor tensor = empty(device, host.dtype(), host.shape());
  tensor.copy_from(host, {}, where);
  return tensor;
}

DeviceTensor DeviceTensor::random(const Device& device, DataType dtype, std::vector<int64_t> shape,
                                  uint64_t seed) {
  return from_host(device, HostTensor::random(dtype, std::move(shape), seed));
}

bool DeviceTensor::may_overlap() const { return !is_dense_ && runtime::may_overlap(shape_, strides_); }
int64_t DeviceTensor::bytes() const { return memory_ ? bytes_ : 0; }
uint64_t DeviceTensor::address() const {
  return !memory_ || memory_->address == 0 ? 0 : memory_->address + offset_;
}

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
    throw LaunchError(
        Diagnostic{{},
                   fmt::format("{} of a tensor that has been released: {}", what, text_of(tensor)),
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

/// Copies between a strided tensor and a dense host tensor without waiting; but the driver waits for the stream where it copies to
/// such memory of the host, and may where it copies much from there.
void start_copy(const DeviceTensor& to, const HostTensor& from, runtime::OnStream on) {
  constexpr int64_t kCopiedAtOnce = 64 << 10;
  runtime::DeviceBackend& backend = to.device().backend();
  if (to.bytes() > kCopiedAtOnce) backend.before_wait(on.stream);
  if (to.is_dense()) return backend.start_copy_to_device(to.address(), from.bytes().data(), to.bytes(), on);
  runtime::for_each_rows(to.shape(), to.strides(), runtime::dense_strides(to.shape()), to.dtype().bits(),
                         [&](int64_t there, int64_t here, const ByteRows& rows) {
                           backend.start_rows_to_device(to.address() + there, from.bytes().data() + here,
                                                        rows, on);
                         });
}
void start_copy(HostTensor& to, const DeviceTensor& from, runtime::OnStream on) {
  runtime::DeviceBackend& backend = from.device().backend();
  backend.before_wait(on.stream);
  if (from.is_dense())
    return backend.start_copy_from_device(to.bytes().data(), from.address(), from.bytes(), on);
  runtime::for_each_rows(from.shape(), runtime::dense_strides(from.shape()), from.strides(),
                         from.dtype().bits(), [&](int64_t here, int64_t there, const ByteRows& rows) {
                           backend.start_rows_from_device(to.bytes().data() + here, from.address() + there,
                                                          rows, on);
                         });
}

/// Copies on the host between tensors of these strides.
void copy_on_host(std::byte* to, const std::vector<int64_t>& to_strides, const std::byte* from,
                  const std::vector<int64_t>& from_strides, const std::vector<int64_t>& shape, int64_t bits) {
  runtime::for_each_rows(shape, to_strides, from_strides, bits,
                         [&](int64_t t, int64_t f, const ByteRows& rows) {
                           for (int64_t i = 0; i < rows.height; ++i)
                             std::memcpy(to + t + i * rows.to_pitch, from + f + i * rows.from_pitch,
                                         static_cast<size_t>(rows.width));
                         });
}

/// A tensor whose dimensions lie in another order than its shape's is copied in that order, in long rows, and
/// brought into its own on the host: one by one, its elements would take a device's copy engine too long.
struct InMemoryOrder {
  explicit InMemoryOrder(const DeviceTensor& tensor)
      : strides(runtime::packed_like(tensor.shape(), tensor.strides())),
        is_needed(tensor.dtype().bits() >= 8 && !runtime::is_dense(tensor.shape(), strides)) {}
  std::vector<int64_t> strides;
  bool is_needed;
  /// A view of the same memory with its dimensions in order.
  static DeviceTensor sorted(const DeviceTensor& tensor) {
    std::vector<int64_t> dims(tensor.shape().size());
    std::iota(dims.begin(), dims.end(), 0);
    std::ranges::stable_sort(dims, std::greater(), [&](int64_t d) { return tensor.strides()[d]; });
    return tensor.permute(dims);
  }
};

}  // namespace

void DeviceTensor::require_writable(const char* what) const {
  require_memory(*this, what);
  if (may_overlap())
    refuse(fmt::format("{} of a tensor whose elements share memory", what),
           "a stride of 0, or one shorter than what the dimensions inside it span, is for reading: write the "
           "tensor "
           "that it is a view of");
}

HostTensor DeviceTensor::to_host(const Stream& stream, SourceLocation where) const {
  require_memory(*this, "to_host");
  HostTensor host(dtype_, shape_);
  runtime::DeviceBackend& backend = device().backend();
  runtime::CUstream_st* const handle = runtime::handle_on(device(), stream, "to_host");
  runtime::refuse_capture("to_host", backend, handle);
  if (const InMemoryOrder order(*this); order.is_needed) {
    const DeviceTensor sorted = InMemoryOrder::sorted(*this);
    HostTensor staged(dtype_, sorted.shape());
    start_copy(staged, sorted, {handle, where});
    backend.synchronize(handle);
    copy_on_host(host.bytes().data(), runtime::dense_strides(shape_), staged.bytes().data(), order.strides,
                 shape_, dtype_.bits());
    return host;
  }
  start_copy(host, *this, {handle, where});
  backend.synchronize(handle);
  return host;
}

void DeviceTensor::copy_from(const HostTensor& host, const Stream& stream, SourceLocation where) {
  require_writable("copy_from");
  require_alike(host, *this);
  runtime::DeviceBackend& backend = device().backend();
  runtime::CUstream_st* const handle = runtime::handle_on(device(), stream, "copy_from");
  runtime::refuse_capture("copy_from", backend, handle);
  if (const InMemoryOrder order(*this); order.is_needed) {
    const DeviceTensor sorted = InMemoryOrder::sorted(*this);
    HostTensor staged(dtype_, sorted.shape());
    copy_on_host(staged.bytes().data(), order.strides, host.bytes().data(), runtime::dense_strides(shape_),
                 shape_, dtype_.bits());
    start_copy(sorted, staged, {handle, where});
    return backend.synchronize(handle);
  }
  start_copy(*this, host, {handle, where});
  backend.synchronize(handle);
}

void DeviceTensor::copy_to_async(HostTensor& host, const Stream& stream, SourceLocation where) const {
  require_memory(*this, "copy_to_async");
  require_alike(host, *this);
  start_copy(host, *this, {runtime::handle_on(device(), stream, "copy_to_async"), where});
}

void DeviceTensor::copy_from_async(const HostTensor& host, const Stream& stream, SourceLocation where) {
  require_writable("copy_from_async");
  require_alike(host, *this);
  start_copy(*this, host, {runtime::handle_on(device(), stream, "copy_from_async"), where});
}

void DeviceTensor::copy_from(const DeviceTensor& other, const Stream& stream, SourceLocation where) {
  require_writable("copy_from");
  require_memory(other, "copy_from");
  require_alike(other, *this);
  if (other.device().shared_backend() != device().shared_backend())
    throw LaunchError(Diagnostic{{},
                                 fmt::format("copy_from: the other tensor lives on '{}', this one on '{}'",
                                             other.device().name(), device().name()),
                                 {},
                                 "copy by way of the host: copy_from(other.to_host())"});
  runtime::DeviceBackend& backend = device().backend();
  runtime::CUstream_st* const handle = runtime::handle_on(device(), stream, "copy_from");
  if (is_dense() && other.is_dense())
    return backend.start_copy_on_device(address(), other.address(), bytes(), {handle, where});
  runtime::for_each_rows(
      shape_, strides_, other.strides_, dtype_.bits(), [&](int64_t to, int64_t from, const ByteRows& rows) {
        backend.start_rows_on_device(address() + to, other.address() + from, rows, {handle, where});
      });
}

void DeviceTensor::fill(uint8_t byte, const Stream& stream, SourceLocation where) {
  require_writable("fill");
  runtime::DeviceBackend& backend = device().backend();
  runtime::CUstream_st* const handle = runtime::handle_on(device(), stream, "fill");
  if (is_dense()) return backend.start_fill(address(), byte, bytes(), {handle, where});
  runtime::for_each_rows(shape_, strides_, strides_, dtype_.bits(),
                         [&](int64_t to, int64_t, const ByteRows& rows) {
                           backend.start_fill_rows(address() + to, byte, rows, {handle, where});
                         });
}

void DeviceTensor::release(SourceLocation where) {
  if (!memory_) return;
  if (memory_->address != 0 && memory_->is_owned)
    device().backend().check_unused(memory_->address, memory_->bytes, where);
  memory_->release(where);
}

}  // namespace imbrex
