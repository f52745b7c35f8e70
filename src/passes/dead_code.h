// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ir/ir.h"

namespace imbrex::passes {

/// Removes what has no effect and no use: pure and reading ops without used results, variables that are never
/// read together with their assignments, unused allocations of shared memory, empty ifs, fors and thread
/// groups.
void dead_code(ir::Function& function);

}  // namespace imbrex::passes
