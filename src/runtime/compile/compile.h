// SPDX-License-Identifier: Apache-2.0
// From a traced kernel to PTX and its launch plan.
#pragma once

#include "codegen/codegen.h"
#include "ir/ir.h"

namespace imbrex::runtime {

/// Runs every pass on `function`, which is rewritten, and generates code. Throws CompileError.
codegen::CompiledKernel compile(ir::Function& function, const codegen::Options& options = {});

}  // namespace imbrex::runtime
