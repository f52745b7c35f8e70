// SPDX-License-Identifier: Apache-2.0
// Which bytes of an instruction's result come from which bytes of its operands: compilers pack, permute and
// convert with registers of which only some bytes have been written.
#pragma once

#include <vector>

#include "ptx/ptx.h"
#include "vgpu/program/instruction.h"

namespace imbrex::vgpu {

class FunctionLayout;

/// Of an instruction whose results' bytes do not depend on all bytes of its operands; else empty.
std::vector<BytePart> byte_parts(const FunctionLayout& layout, const ptx::Instruction& insn);

}  // namespace imbrex::vgpu
