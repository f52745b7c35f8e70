// SPDX-License-Identifier: Apache-2.0
// Shipping a kernel without Imbrex: its machine code, its PTX, a C header and a loader in one C file that
// needs nothing but a CUDA driver at run time.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "imbrex/runtime/registry.h"

namespace imbrex {

struct PackageFile {
  std::string name;  ///< "softmax.h"
  std::string content;
};

struct Package {
  std::vector<PackageFile> files;
  std::string note;  ///< what the user should know: why the package holds PTX alone; else ""
};

/// NAME.h, NAME.c, and NAME.ARCH.ptx and NAME.ARCH.cubin for each of `targets`. The kernel is compiled for
/// each target anew; its compile-time arguments and the configuration are fixed, its run-time arguments are
/// those of NAME_launch().
///
/// Machine code is made by ptxas. Where it is not installed, or IMBREX_PTXAS is "none", NAME.c holds the
/// PTX, which the driver assembles when the program loads the kernel; there are no .cubin files, and a
/// note says so.
///
/// Throws CompileError where the kernel cannot be compiled for a target, spills, or is serialized by ptxas,
/// LaunchError for an unknown target, and DeviceError where IMBREX_PTXAS names no ptxas.
Package make_package(const RegisteredKernel& kernel, const std::map<std::string, int64_t>& sizes,
                     const Configuration& configuration, const std::vector<std::string>& targets);

}  // namespace imbrex
