// SPDX-License-Identifier: Apache-2.0
// From a traced kernel to PTX and its launch plan.
#pragma once

#include <string>

#include "codegen/codegen.h"
#include "imbrex/runtime/cache.h"
#include "ir/ir.h"

namespace imbrex::runtime {

/// Runs every pass on `function`, which is rewritten, and generates code. Throws CompileError.
codegen::CompiledKernel compile(ir::Function& function, const codegen::Options& options = {});

/// Whether the environment leaves the passes as they are: none dumped, skipped, timed or stopped at.
bool is_compiled_as_usual();

/// Keeps machine code of a traced kernel in `folder`, and its plan where it has an identity. Errors: see Kernel::ship.
void ship(ir::Function& function, const std::string& identity, Cache& folder);

}  // namespace imbrex::runtime
