// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ir/ir.h"

namespace imbrex::passes {

/// Throws CompileError for a scalar variable that some threads of a group assign and all of them read afterwards: the others
/// would have another value. (Each thread has a copy of its own; groups that share no thread may use a variable in their turns.)
void check_variables(ir::Function& function);

}  // namespace imbrex::passes
