// SPDX-License-Identifier: Apache-2.0
// Variables that are never assigned.
#pragma once

#include "ir/ir.h"

namespace imbrex::passes {

/// The front end makes a variable of every Int32, Float32, ... that the kernel's author declares. One that is never
/// assigned is its initial value: reads of it go, and its name moves to the value. Runs before the passes that check
/// the kernel, so that they see constants as such and their messages say the author's names.
void promote_constant_variables(ir::Function& function);

}  // namespace imbrex::passes
