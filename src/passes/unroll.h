// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ir/ir.h"

namespace imbrex::passes {

/// Carries out the `unroll` attribute of each `for`: n copies of the body per trip, 0 for all of them, with a
/// remainder where the number of trips is not a multiple of n (copies when it is known, a loop when it is
/// not). A loop known to run at most once is taken apart in any case. Breaks are kept intact. Throws
/// CompileError for a complete unrolling without a known trip count or of absurd size.
void unroll(ir::Function& function);

}  // namespace imbrex::passes
