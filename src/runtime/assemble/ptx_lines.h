// SPDX-License-Identifier: Apache-2.0
// From lines of PTX text back to lines of the kernel's source.
#pragma once

#include <string>
#include <string_view>

#include "codegen/compiled_kernel.h"
#include "imbrex/core/error.h"

namespace imbrex::runtime {

/// The kernel line in force at line `ptx_line` (from 1) of PTX text, by its .file and .loc directives.
SourceLocation kernel_line(std::string_view ptx, int ptx_line);

/// What an assembler's log says about `kernel`, as a CompileError with diagnostics at the kernel's lines;
/// `fallback` where the log says nothing.
CompileError assembly_error(const codegen::CompiledKernel& kernel, std::string_view log,
                            const std::string& fallback);

}  // namespace imbrex::runtime
