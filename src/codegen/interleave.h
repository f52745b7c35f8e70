// SPDX-License-Identifier: Apache-2.0
// Spreads groups of loads over the matrix products that follow them.
#pragma once

#include "ptx/ptx.h"

namespace imbrex::codegen {

/// Moves ldmatrix and cp.async (with its commit_group) down among the mma.sync that follow them, keeping their order,
/// where no product of that run reads what they load: the fragments of the next step, the copies of a later stage.
/// The assembler roughly keeps the order it is given. A run of loads without products between them fills the memory
/// unit's queue, and the warp stalls on it although it has products to issue.
void interleave_loads(ptx::Function& function);

}  // namespace imbrex::codegen
