// SPDX-License-Identifier: Apache-2.0
// What the functions of the kernel library have in common when Python calls them.
#pragma once

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <initializer_list>
#include <optional>
#include <span>
#include <string>

#include "arrays.h"
#include "imbrex/kernels/activation.h"
#include "report.h"

namespace imbrex::python {

// A file each.
void bind_attention(nb::module_& m);
void bind_fused(nb::module_& m);
void bind_grouped(nb::module_& m);
void bind_matmul(nb::module_& m);
void bind_parallel(nb::module_& m);
void bind_rows(nb::module_& m);

/// An array that may be left out.
struct Optional {
  std::optional<Array> array;
  Optional(const char* name, nb::handle object) {
    if (!object.is_none()) array.emplace(name, object);
  }
  explicit operator bool() const { return array.has_value(); }
  const Array* get() const { return array ? &*array : nullptr; }
};

/// Whether torch would differentiate a call on these arrays, of which some may be null.
bool needs_gradient(std::initializer_list<const Array*> arrays);
/// The operator by torch, which calls the kernel below its autograd.
template <class... Arguments>
nb::object differentiable(const char* name, Arguments&&... arguments) {
  return nb::module_::import_("imbrex._gradients")
      .attr("differentiable")(name, std::forward<Arguments>(arguments)...);
}

/// LaunchError unless the array is of this type and shape, or of this shape.
void expect(const Array& array, DataType dtype, std::span<const int64_t> shape);
void expect_shape(const Array& array, std::span<const int64_t> shape);
/// Of "relu" and so on; kNone of None.
Activation activation_of(nb::handle given);
/// LaunchError unless so many columns can share a scale of float8.
void check_block(int block);
/// The shape with another last extent.
std::vector<int64_t> with_last(std::span<const int64_t> shape, int64_t last);

/// What a call returns: the array given as `out`, or a new one of the library that `like` is of.
class Result {
 public:
  Result(const Array& like, nb::handle given, std::span<const int64_t> shape, DataType dtype)
      : Result(like, given.is_none() ? new_array(like, shape, dtype) : nb::borrow(given), !given.is_none()) {}
  /// A new array; `name` as messages call it.
  Result(const Array& like, nb::object made, bool is_given = false, const char* name = "out")
      : like_(like.library), made_(std::move(made)), is_given_(is_given), array(name, made_) {}

  bool is_given() const { return is_given_; }
  bool is_empty() const { return array.elements() == 0; }
  /// To be returned: of JAX's host arrays, which cannot be written, one of JAX.
  nb::object take() {
    if (is_given_ || like_ != Library::kJax) return std::move(made_);
    return nb::module_::import_("jax").attr("numpy").attr("asarray")(made_);
  }

 private:
  Library like_;
  nb::object made_;
  bool is_given_;

 public:
  Array array;
};

/// One call of the kernel library: its tensors on the device that all arrays are on, and the stream.
class Call {
 public:
  /// The first array is there; others may be null.
  Call(const char* function, std::initializer_list<const Array*> arrays, const std::string& target);

  const DeviceTensor& in(const Array& array) { return on_.add(array, false); }
  /// A null tensor where it was left out.
  DeviceTensor in(const Optional& array) { return array ? in(*array.array) : DeviceTensor(); }
  const DeviceTensor& out(const Array& array) { return on_.add(array, true); }
  const Stream& stream() const { return stream_; }

  /// Calls with the interpreter's lock released, raises what was found, and copies back to host arrays.
  template <class Launch>
  void run(const Launch& launch) {
    LaunchReport report;
    {
      const nb::gil_scoped_release released;
      report = launch();
    }
    if (!report.clean()) expect_clean(std::move(report), function_);
    on_.finish();
  }

 private:
  const char* function_;
  OnDevice on_;
  Stream stream_;
};

}  // namespace imbrex::python
