// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ir/ir.h"

namespace imbrex::passes {

/// Places every tensor and barrier in shared memory (attribute `offset`), sizes tensor-memory allocations
/// (`columns`), and records the totals on the function. Each allocation has memory of its own: nothing in the
/// IR says when asynchronous copies and the tensor core are done with a tensor, so none is reused. Runs after
/// infer_layouts. Throws CompileError when the target has less than is needed, naming what takes it.
void allocate_memory(ir::Function& function);

}  // namespace imbrex::passes
