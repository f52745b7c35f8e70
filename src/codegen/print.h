// SPDX-License-Identifier: Apache-2.0
// What printing ops need of the module.
#pragma once

#include "codegen/generator.h"

namespace imbrex::codegen {

/// Declares vprintf, as function 0, when an op of the kernel prints. Must come before the kernel itself.
void declare_print(ptx::Module& module, const ir::Function& function, const Options& options);

/// Where the predicate does not hold, prints the op's place and `what`, and traps. With numbers, 64-bit integers, `what` is
/// a format of printf with a %lld for each.
void trap_unless(Generator& g, const ir::Op& op, Reg holds, const std::string& what,
                 std::span<const Operand> numbers = {});

}  // namespace imbrex::codegen
