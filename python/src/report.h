// SPDX-License-Identifier: Apache-2.0
// Reports of launches as Python objects, and the package's exceptions.
#pragma once

#include <nanobind/nanobind.h>

#include "imbrex/runtime/device.h"

namespace imbrex::python {

namespace nb = nanobind;

/// What Python sees of a launch.
struct Report {
  LaunchReport launch;
  std::string kernel;
};

/// Raises imbrex.FindingError, which has the report, unless it is clean.
void expect_clean(LaunchReport&& launch, std::string kernel);

void bind_errors(nb::module_& m);
void bind_reports(nb::module_& m);
void bind_kernels(nb::module_& m);
void bind_virtual_gpu(nb::module_& m);

}  // namespace imbrex::python
