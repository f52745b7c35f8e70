// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ir/ir.h"

namespace imbrex::passes {

/// Computes what is known at compile time, simplifies algebra, merges equal pure ops where one dominates the
/// other, and takes ifs on a known condition apart. Leaves what it replaced for dead_code.
void fold(ir::Function& function);

}  // namespace imbrex::passes
