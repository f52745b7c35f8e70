// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "codegen/compiled_kernel.h"

namespace imbrex::runtime {

/// Throws LaunchError, at the copy that the map is for, when no tensor map has these extents and strides.
/// `plan` is one of the kernel's; `slots` are those of the host program.
void check_tensor_map(const codegen::CompiledKernel& kernel, const codegen::TensorMapPlan& plan,
                      std::span<const int64_t> slots);

}  // namespace imbrex::runtime
