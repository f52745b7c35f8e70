// SPDX-License-Identifier: Apache-2.0
// The extension imbrex._imbrex: what the Python of the package stands on. Kernels that imbrex.Kernel compiles are
// linked against it, so that it exports Imbrex's C++ functions.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "arrays.h"
#include "imbrex/command.h"
#include "imbrex/core/version.h"
#include "operators.h"

NB_MODULE(_imbrex, m) {
  namespace python = imbrex::python;
  nanobind::set_leak_warnings(false);  // what a program still refers to when it exits is no leak
  python::bind_errors(m);
  python::bind_reports(m);
  python::bind_virtual_gpu(m);
  python::bind_kernels(m);
  python::bind_matmul(m);
  python::bind_attention(m);
  python::bind_fused(m);
  python::bind_grouped(m);
  python::bind_parallel(m);
  python::bind_rows(m);
  m.def("version", [] { return std::string(imbrex::version()); });
  m.def("describe", [](nanobind::handle object) { return python::Array("array", object).text(); });
  m.def(
      "command",
      [](std::vector<std::string> words, const std::vector<std::string>& itself) {
        std::vector<char*> arguments;
        for (std::string& word : words) arguments.push_back(word.data());
        const nanobind::gil_scoped_release released;
        return imbrex::command_main(static_cast<int>(arguments.size()), arguments.data(), itself);
      },
      nanobind::arg("words"), nanobind::arg("itself") = std::vector<std::string>());
}
