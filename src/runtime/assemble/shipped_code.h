// SPDX-License-Identifier: Apache-2.0
// Machine code that comes with Imbrex: entries of a cache that was filled where Imbrex was built, so that first calls of
// the kernels in it compile nothing, and need no ptxas.
//
//   $IMBREX_CODE_DIR, else the folder `code` beside the program or library that Imbrex is a part of, or
//   ../share/imbrex/code or ../../share/imbrex/code from there, else share/imbrex/code where this build of Imbrex is
//   installed (set but empty: none)
#pragma once

#include <optional>
#include <string>

#include "codegen/compiled_kernel.h"
#include "imbrex/runtime/cache.h"
#include "runtime/assemble/assembler.h"

namespace imbrex::runtime {

/// The folder; "" where there is none.
std::string shipped_code_folder();

/// What was shipped under this key; none where nothing was.
std::optional<std::string> shipped_entry(const CacheKey& key);

/// Machine code of a kernel, whose PTX has this digest, by whatever assembler, for the kernel's own target. None where it has
/// not been shipped.
std::optional<Cubin> shipped_code(const codegen::CompiledKernel& kernel, const std::string& ptx_digest);

/// Keeps machine code for the kernel's own target in `folder` where shipped_code() finds it. False where it cannot be kept.
bool ship_code(const codegen::CompiledKernel& kernel, const Cubin& cubin, Cache& folder);

}  // namespace imbrex::runtime
