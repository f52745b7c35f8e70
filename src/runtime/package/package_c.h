// SPDX-License-Identifier: Apache-2.0
// The C text of a packaged kernel.
#pragma once

#include <string>
#include <vector>

#include "codegen/compiled_kernel.h"

namespace imbrex::runtime {

struct PackagedVariant {
  std::string target;
  codegen::CompiledKernel kernel;
  std::string cubin;  ///< "" where there is no ptxas: the loader then holds the PTX
};

/// NAME.h; `about` is a line on sizes and configuration for its comment.
std::string package_header(const codegen::CompiledKernel& kernel, const std::string& about);
/// NAME.c, with the machine code (or the PTX) of every variant.
std::string package_loader(const std::vector<PackagedVariant>& variants, const std::string& about);

}  // namespace imbrex::runtime
