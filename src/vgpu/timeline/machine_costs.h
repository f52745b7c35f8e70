// SPDX-License-Identifier: Apache-2.0
// What a kernel's instructions take of a warp and of its sub-partition where its machine code is at hand.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "vgpu/program/program.h"
#include "vgpu/timeline/pipes.h"

namespace imbrex::ptx {
struct MachineCode;
}

namespace imbrex::vgpu {

/// By index into Program::code: how many instructions the assembler made of one of PTX, for how many clocks they keep each of their
/// sub-partition's units and the SM's shared memory (shuffles), and for how many each time they keep their warp from issuing more.
/// All may be fractions, and 0: of what is merged into another, or lifted out of a loop.
struct MachineCosts {
  struct Cost {
    float issue = 0, stall = 0, shared = 0;
    PipeClocks pipes = {};
    uint32_t code = 0;        // where its lines of code begin in `code` ...
    uint16_t code_count = 0;  // ... and how many they are
  };
  int registers = 0;  // of a thread
  std::vector<Cost> costs;
  size_t code_lines = 0;  // of the kernel, of 128 bytes each
  std::vector<uint16_t> code;
};

MachineCosts machine_costs(const Program& program, const ptx::MachineCode& code);

/// By the assembler of the process (imbrex/vgpu/timeline_assembler.h); null where there is none, or it cannot. `program` must live at least
/// as long as the result, by which it is found again.
std::shared_ptr<const MachineCosts> assembled_costs(const Program& program, const std::string& target,
                                                    int sm);
/// What assembled_costs() returned for the program; null where it did not, or that is no longer kept.
const MachineCosts* assembled_costs_of(const Program& program);

}  // namespace imbrex::vgpu
