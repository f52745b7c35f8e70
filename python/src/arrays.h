// SPDX-License-Identifier: Apache-2.0
// Arrays of other libraries: where they lie, what they hold, on which stream they are worked on.
#pragma once

#include <nanobind/nanobind.h>

#include <array>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "dlpack.h"
#include "imbrex/runtime/device_tensor.h"

namespace imbrex::python {

namespace nb = nanobind;

/// Whose an array is: how a new one like it is made.
enum class Library : uint8_t { kNumpy, kTorch, kCupy, kJax, kOther };

constexpr int kMostDimensions = 8;

/// An array of another library, looked at for the time of one call.
class Array {
 public:
  /// Throws LaunchError naming `argument` for what is no array, or one that kernels cannot take.
  Array(const char* argument, nb::handle object);
  ~Array();
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;

  const char* argument;  ///< how messages call it
  nb::handle object;
  Library library = Library::kOther;
  bool is_cuda = false;
  bool is_read_only = false;
  int ordinal = 0;  ///< of the CUDA device
  uint64_t address = 0;
  DataType dtype;
  int rank = 0;
  std::array<int64_t, kMostDimensions> extents{}, steps{};  ///< shape and strides, in elements

  std::span<const int64_t> shape() const { return {extents.data(), static_cast<size_t>(rank)}; }
  std::span<const int64_t> strides() const { return {steps.data(), static_cast<size_t>(rank)}; }
  bool is_dense() const;
  int64_t elements() const;
  /// "float16[3, 4]", with strides where it is not dense.
  std::string text() const;
  /// The last two dimensions exchanged.
  void transpose();
  /// The CUDA stream on which the library works now.
  void* current_stream() const;
  [[noreturn]] void refuse(const std::string& what, const std::string& help) const;

 private:
  bool from_exchange_api(const dlpack::ExchangeApi& api);
  bool from_cuda_array_interface();
  bool from_numpy();
  bool from_dlpack();
  void take(const dlpack::Tensor& tensor);

  const dlpack::ExchangeApi* api_ = nullptr;
  void* stream_ = nullptr;
  dlpack::ManagedVersioned* versioned_ = nullptr;
  dlpack::Managed* managed_ = nullptr;
  nb::object keep_;
};

/// str(object).
std::string to_text(nb::handle object);

/// LaunchError with one diagnostic.
[[noreturn]] void refuse(const std::string& message, const std::string& help,
                         std::vector<std::string> facts = {});

/// A new array of the same library and device as `like`, its contents undefined.
nb::object new_array(const Array& like, std::span<const int64_t> shape, DataType dtype);

/// "float16", numpy.float16, torch.float16 and so on. LaunchError for what is no element type.
DataType dtype_of(nb::handle object);

/// The device of arrays that are all on one: their CUDA GPU; for host arrays the virtual GPU of `target`. LaunchError
/// where they are not on one.
Device device_of(std::span<const Array* const> arrays, const std::string& target);
/// The virtual GPU for a target: one for the process, made on the first request, or the one that was set.
Device virtual_gpu(const std::string& target);
/// From now on host arrays of this target run on `device`; without one, on the usual.
void set_default_virtual_gpu(const std::string& target, const std::optional<Device>& device);

/// An array as a tensor on a device. Host arrays are copied to it; finish() copies those back that a call may write.
class OnDevice {
 public:
  explicit OnDevice(const Device& device) : device_(device) {}
  /// `may_write`: whether the call may write it, which a read-only array does not bear; host arrays are copied back.
  const DeviceTensor& add(const Array& array, bool may_write);
  /// Of a call that may write it or not, as only its end shows: if it has written a read-only host array, finish() throws
  /// LaunchError, and the array is as it was.
  const DeviceTensor& add_unknown(const Array& array);
  /// The stream of the arrays' library; Stream() for host arrays.
  Stream stream(const Array& array) const;
  void finish();

 private:
  struct Copy {
    const Array* array;
    std::shared_ptr<const DeviceTensor> tensor;  // others may know it, too
    bool may_write;
    bool is_compared = false;  // at the end, with what it was
  };
  Device device_;
  std::vector<Copy> copies_;
};

}  // namespace imbrex::python
