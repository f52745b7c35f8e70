// SPDX-License-Identifier: Apache-2.0
// What a kernel's machine code says that its PTX does not: registers, and for each line of the PTX the instructions that
// the assembler made of it, with their stalls and the loops that they lie in.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace imbrex::ptx {

struct MachineInstruction {
  int ptx_line = 0;     ///< from 1; 0: of none
  uint16_t opcode = 0;  ///< without the form of its operands: 9 bits
  uint8_t stall = 0;    ///< clocks until the warp's next instruction may issue
  uint8_t depth = 0;    ///< in how many loops it lies
  uint8_t waits = 0;    ///< for which of its warp's six barriers, a bit each, it waits before it is issued
  uint8_t sets = 7;     ///< the barrier that waits for its result; 7: none
};

struct MachineCode {
  int registers = 0;  ///< of a thread, when the kernel starts
  std::vector<MachineInstruction> instructions;
};

/// Of the kernel of that name in a cubin that was assembled with -lineinfo (`sm`: 90 for sm_90a). None where it is not there, or
/// where the cubin has another form than those of CUDA 12 and 13 for Ampere and later chips.
std::optional<MachineCode> read_machine_code(std::string_view cubin, std::string_view kernel, int sm);

}  // namespace imbrex::ptx
