// SPDX-License-Identifier: Apache-2.0
// The machine's own instructions, which stand between those of the PTX.
#pragma once

#include "vgpu/program/instruction.h"

namespace imbrex::vgpu {

/// Stands where lanes that parted meet again.
Instruction join_instruction();
/// Stands at the end of every function.
Instruction return_instruction();
/// Stands before instructions that use registers which asynchronous instructions may still be writing
/// (RegisterWriter), and waits for those.
Instruction registers_written_instruction(uint8_t writers);
/// Stands behind every call and fetches its results.
Instruction call_result_instruction(const Instruction& call);

/// Stands behind every bar.red and barrier.red and fetches the result.
Instruction barrier_result_instruction(const Instruction& barrier);

}  // namespace imbrex::vgpu
