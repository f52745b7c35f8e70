// SPDX-License-Identifier: Apache-2.0
// Loads that stand in a crowd in front of matrix products are dealt out among the products.
#pragma once

#include "ptx/ptx.h"

namespace imbrex::codegen {

/// Moves ldmatrix and cp.async (with its commit_group) down among the mma.sync that follow them, in their
/// order, where no product of that run reads what they load: the fragments of the next step, the copies of a
/// later stage. The assembler keeps roughly the order it is given; a crowd of loads fills the queue of the
/// memory unit, and the warp stands still in front of it with products it could issue.
void interleave_loads(ptx::Function& function);

}  // namespace imbrex::codegen
