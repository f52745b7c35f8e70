// SPDX-License-Identifier: Apache-2.0
// A mask and a constant behind it as one lop3.
#pragma once

#include "ptx/ptx.h"

namespace imbrex::codegen {

/// Makes (x & constant) | constant, and with ^, one lop3 where nothing else reads the masked value. A machine
/// instruction takes one constant from its own word and the other from a register, so that the assembler keeps
/// two instructions where it is given two, although one register serves all masks of a loop: half of what it
/// costs to put codes into the mantissas of floats.
void fuse_logic(ptx::Function& function);

}  // namespace imbrex::codegen
