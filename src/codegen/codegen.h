// SPDX-License-Identifier: Apache-2.0
// From a kernel's IR to PTX: the entry of the code generator.
#pragma once

#include "codegen/compiled_kernel.h"
#include "ir/ir.h"

namespace imbrex::codegen {

struct Options {
  bool comments = false;           ///< the IR op in a comment above its PTX
  bool check_assumptions = false;  ///< trap where an assume() does not hold, as check() does
  bool source_lines = true;  ///< .loc: profilers, sanitizers and the virtual GPU show the kernel's C++ lines
};

/// Generates PTX and the launch plan for a function on which every pass has run: each register, shared and
/// tensor-memory tensor has its layout. Throws CompileError at the op's line for what the target or its
/// instructions cannot do. The same function and options give the same bytes.
CompiledKernel generate(const ir::Function& function, const Options& options = {});

}  // namespace imbrex::codegen
