// SPDX-License-Identifier: Apache-2.0
// Which loads from shared memory may still be on their way when the thread gives the memory back.
#pragma once

#include "vgpu/program/program.h"

namespace imbrex::vgpu {

/// Is a value that this instruction loads first used behind an arrival at an mbarrier? Nothing makes the thread wait for
/// such a load before it arrives. In the order of the text, which is that of the loops of compilers.
bool is_in_use_late(const Program& program, uint32_t load);

}  // namespace imbrex::vgpu
