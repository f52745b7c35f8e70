// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ir/ir.h"

namespace imbrex::passes {

/// Throws CompileError when ranks, masks of CTAs or pairs do not fit the kernel's cluster, and for
/// responses of cluster launch control that are never requested or complete on another CTA's barrier.
void check_clusters(ir::Function& function);

}  // namespace imbrex::passes
