// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ir/ir.h"

namespace imbrex::passes {

/// Moves what depends on the launch alone to the host block (design D7): the grid's extents (the launch_grid
/// op goes away), divisors of fast_divmod, extents and strides of global views, and divisions, with all they
/// are computed from. Cheap arithmetic that nothing of these needs stays in the kernel. Throws CompileError
/// for a grid or divisor that depends on more than the launch.
void lift_grid_constants(ir::Function& function);

}  // namespace imbrex::passes
