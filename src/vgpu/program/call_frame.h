// SPDX-License-Identifier: Apache-2.0
// What each call of a function that may call itself, at once or through others, keeps for itself.
//
// Registers and .local variables have one place per function, which is enough while no thread is in a function
// twice. Functions in a circle of calls have frames instead: their .local variables and parameters lie at a distance from
// the lane's stack pointer, which a call moves up, and their registers are put aside while they call within the circle.
#pragma once

#include <cstdint>
#include <vector>

#include "vgpu/program/instruction.h"

namespace imbrex::vgpu {

struct CallFrame {
  struct Register {
    Slot slot = 0;
    uint32_t lane_bytes = 0;  // 0: a predicate
  };
  uint32_t circle = 0;       // functions that may all reach each other have the same
  uint32_t bytes = 0;        // of local memory; variables lie that far below the stack pointer, or less
  uint32_t stack_bytes = 0;  // what a chip's stack needs for it at the least, estimated
  std::vector<Register> registers;
  std::vector<uint32_t> numbers;    // of those, dense
  std::vector<uint32_t> unwritten;  // of those that are no parameters
};

}  // namespace imbrex::vgpu
