// SPDX-License-Identifier: Apache-2.0
#include "python_line.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <set>
#include <string>

namespace imbrex::python {

namespace nb = nanobind;

SourceLocation python_line() {
  static auto& files = *new std::set<std::string>;  // a SourceLocation's file lives as long as the program
  if (PyEval_GetFrame() == nullptr) return {};
  nb::object frame = nb::module_::import_("sys").attr("_getframe")();
  while (!frame.is_none()) {
    const nb::object module = frame.attr("f_globals").attr("get")("__name__", "");
    const auto name = nb::cast<std::string>(nb::str(module));
    if (name != "imbrex" && !name.starts_with("imbrex.")) break;
    frame = frame.attr("f_back");
  }
  if (frame.is_none()) return {};
  const auto file = nb::cast<std::string>(frame.attr("f_code").attr("co_filename"));
  return {files.insert(file).first->c_str(), nb::cast<uint32_t>(frame.attr("f_lineno")), ""};
}

}  // namespace imbrex::python
