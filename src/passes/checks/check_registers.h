// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ir/ir.h"

namespace imbrex::passes {

/// Tiles that no assembler can keep in registers: at some place more is alive at once than a thread has. Throws
/// CompileError with the place, the tiles, and what is allowed. Behind infer_layouts().
///
/// Counted are only tiles that must be in registers there, whatever the assembler does: variables that a loop carries from
/// trip to trip, and what was loaded or multiplied before a barrier, or before a reduction with whose result it meets again.
/// Nothing is added for addresses, indices or what arithmetic holds for a moment, so that a kernel which passes may still
/// spill; one that does not certainly spills.
void check_registers(const ir::Function& function);

}  // namespace imbrex::passes
