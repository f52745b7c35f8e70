// SPDX-License-Identifier: Apache-2.0
// How machine code is issued: which unit takes an instruction for how long, and when a warp that is alone goes on to its next one.
#pragma once

#include <cstdint>
#include <vector>

#include "vgpu/timeline/pipes.h"

namespace imbrex::ptx {
struct MachineCode;
}

namespace imbrex::vgpu {

/// The unit that takes an instruction for longer than the clock in which it is issued, and for how long; no clocks: none.
struct Busy {
  Pipe pipe = Pipe::kAlu;
  float clocks = 0;
};
Busy busy(uint16_t opcode);
/// Clocks of the SM's shared memory that an instruction takes to exchange words between lanes.
float shuffle_clocks(uint16_t opcode);

/// For each instruction the clocks by which a warp that has its sub-partition for itself comes further: what it waits for units and for
/// results of earlier instructions, and until it may issue the next. A warp issues in the order of the code. What waits for other SMs or
/// other warps is not in it: loads from memory, barriers, products of a warp group.
std::vector<float> issue_clocks(const ptx::MachineCode& code);

}  // namespace imbrex::vgpu
