// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ir/ir.h"

namespace imbrex::passes {

/// Reads of a variable become the value last assigned to it, wherever every path to the read agrees on it; a
/// variable that is never assigned becomes its initial value. Assignments that are overwritten before any
/// read go away. Variables left without reads are dead_code's.
void promote_variables(ir::Function& function);

}  // namespace imbrex::passes
