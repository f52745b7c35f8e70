// SPDX-License-Identifier: Apache-2.0
// The C function that turns the arguments of a launch into its grid and its parameter buffer.
#pragma once

#include <string>

#include "codegen/compiled_kernel.h"

namespace imbrex::runtime {

/// The statements of plan_TARGET() in templates/plan.c.in, each in a line of its own.
std::string plan_statements(const codegen::CompiledKernel& kernel);
/// True when the plan calls divmod_magic().
bool needs_divmod_magic(const codegen::CompiledKernel& kernel);

}  // namespace imbrex::runtime
