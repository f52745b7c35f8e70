// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ir/ir.h"

namespace imbrex::passes {

/// Throws CompileError for tensor memory that is not freed, is freed twice or used after, and for allocations
/// that cannot be made, as far as control flow tells.
void check_tensor_memory(ir::Function& function);

}  // namespace imbrex::passes
