// SPDX-License-Identifier: Apache-2.0
#include "operators.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

namespace imbrex::python {

bool needs_gradient(std::initializer_list<const Array*> arrays) {
  static PyObject* const name = PyUnicode_InternFromString("requires_grad");
  for (const Array* array : arrays) {
    if (array == nullptr || array->library != Library::kTorch) continue;
    const nb::object value = nb::steal(PyObject_GetAttr(array->object.ptr(), name));
    if (!value.is_valid()) throw nb::python_error();
    if (value.ptr() != Py_True) continue;
    static const nb::handle is_enabled = nb::object(nb::module_::import_("torch").attr("is_grad_enabled")).release();
    return is_enabled().ptr() == Py_True;
  }
  return false;
}

Activation activation_of(nb::handle given) {
  if (given.is_none()) return Activation::kNone;
  const std::string name = to_text(given);
  static const std::map<std::string, Activation, std::less<>> kNames = {
      {"relu", Activation::kRelu},         {"gelu_tanh", Activation::kGelu}, {"gelu_fast", Activation::kGeluFast},
      {"gelu", Activation::kGeluErf},      {"silu", Activation::kSilu}};
  const auto found = kNames.find(name);
  if (found == kNames.end())
    refuse(fmt::format("activation is '{}'", name), "give None, 'relu', 'gelu', 'gelu_tanh', 'gelu_fast' or 'silu'");
  return found->second;
}

void check_block(int block) {
  if (block != 0 && block != 128) refuse(fmt::format("block is {}", block), "give 128, or 0 for a scale per row");
}

void expect(const Array& array, DataType dtype, std::span<const int64_t> shape) {
  if (array.dtype != dtype || !std::ranges::equal(array.shape(), shape))
    array.refuse(fmt::format("is {}", array.text()),
                 fmt::format("make it {}[{}]", dtype.name(), fmt::join(shape, ", ")));
}

void expect_shape(const Array& array, std::span<const int64_t> shape) { expect(array, array.dtype, shape); }

std::vector<int64_t> with_last(std::span<const int64_t> shape, int64_t last) {
  std::vector<int64_t> changed(shape.begin(), shape.end());
  changed.back() = last;
  return changed;
}

Call::Call(const char* function, std::initializer_list<const Array*> arrays, const std::string& target)
    : function_(function), on_([&] {
        const Array* there[16];
        size_t count = 0;
        for (const Array* array : arrays)
          if (array != nullptr) there[count++] = array;
        return device_of({there, count}, target);
      }()),
      stream_(on_.stream(**arrays.begin())) {}

}  // namespace imbrex::python
