// SPDX-License-Identifier: Apache-2.0
// By functions of Python's C API from 3.9 on, which the interpreter exports: nothing of Python is linked.
#include "cuda_host/program/python_frame.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <string_view>

namespace imbrex::cuda {
namespace {

using Object = void*;

template <class Function>
bool find(Function*& function, const char* name) {
  function = reinterpret_cast<Function*>(dlsym(RTLD_DEFAULT, name));
  return function != nullptr;
}

struct Python {
  int (*is_initialised)();
  void* (*state_of_thread)();
  int (*take_lock)();
  void (*give_lock)(int);
  Object (*frame)();               // borrowed
  Object (*frame_before)(Object);  // this and those that follow are the caller's
  Object (*code)(Object);
  int (*line)(Object);
  Object (*attribute)(Object, const char*);
  const char* (*text)(Object);
  void (*release)(Object);
  void (*retain)(Object);
  void (*clear_error)();

  bool is_there() {
    return find(is_initialised, "Py_IsInitialized") &&
           find(state_of_thread, "PyGILState_GetThisThreadState") && find(take_lock, "PyGILState_Ensure") &&
           find(give_lock, "PyGILState_Release") && find(frame, "PyEval_GetFrame") &&
           find(frame_before, "PyFrame_GetBack") && find(code, "PyFrame_GetCode") &&
           find(line, "PyFrame_GetLineNumber") && find(attribute, "PyObject_GetAttrString") &&
           find(text, "PyUnicode_AsUTF8") && find(release, "Py_DecRef") && find(retain, "Py_IncRef") &&
           find(clear_error, "PyErr_Clear");
  }
  std::string text_of(Object object, const char* name) const {
    const Object value = attribute(object, name);
    const char* found = value == nullptr ? nullptr : text(value);
    std::string copy = found == nullptr ? "" : found;
    if (found == nullptr) clear_error();
    if (value != nullptr) release(value);
    return copy;
  }
};

/// Of the interpreter, of an installed package, or of what `imbrex run` puts beside the program.
bool is_library(std::string_view file) {
  const auto has = [&](const char* part) { return file.find(part) != std::string_view::npos; };
  const std::string_view name = file.substr(file.rfind('/') + 1);
  return file.starts_with('<') || has("/site-packages/") || has("/dist-packages/") || has("/lib/python3") ||
         name.starts_with("imbrex_");
}

std::string place_in(const Python& python) {
  Object frame = python.frame();
  if (frame != nullptr) python.retain(frame);
  std::string place;
  while (frame != nullptr && place.empty()) {
    const Object code = python.code(frame);
    if (const std::string file = python.text_of(code, "co_filename"); !is_library(file))
      place = fmt::format("{} ({}:{})", python.text_of(code, "co_name"), file, python.line(frame));
    python.release(code);
    const Object before = python.frame_before(frame);
    python.release(frame);
    frame = before;
  }
  if (frame != nullptr) python.release(frame);
  return place;
}

}  // namespace

std::string python_place() {
  Python python;
  if (!python.is_there() || python.is_initialised() == 0 || python.state_of_thread() == nullptr) return "";
  const int kept = python.take_lock();
  std::string place = place_in(python);
  python.give_lock(kept);
  return place;
}

}  // namespace imbrex::cuda
