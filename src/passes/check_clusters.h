// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ir/ir.h"

namespace imbrex::passes {

/// Throws CompileError when ranks, masks of CTAs or pairs do not fit the kernel's cluster, or a request for
/// work is answered to nobody.
void check_clusters(ir::Function& function);

}  // namespace imbrex::passes
