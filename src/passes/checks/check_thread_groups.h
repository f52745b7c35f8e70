// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ir/ir.h"

namespace imbrex::passes {

/// Checks that each op runs in a thread group it can run in (its Scope), that groups lie within the one
/// around them, that barriers have more than one thread and are not too many, and that neither they nor item() stand under a
/// condition on the thread's number. Throws CompileError with
/// every finding, naming the group and the lines that narrowed it.
void check_thread_groups(ir::Function& function);

}  // namespace imbrex::passes
