// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ir/ir.h"

namespace imbrex::passes {

/// Finds scalars that are the same number each time they are computed, through variables and around loops: a
/// ring-buffer stage that comes back to where it started after each (unrolled) trip of a loop is a number
/// everywhere in its body.
void propagate_constants(ir::Function& function);

}  // namespace imbrex::passes
