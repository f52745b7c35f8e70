// SPDX-License-Identifier: Apache-2.0
// Which instructions use a register that an asynchronous instruction may still be writing. Compilers put moves
// between tcgen05.ld or wgmma and its wait; the assembler makes them wait, and so does this machine.
#pragma once

#include <cstdint>
#include <vector>

#include "ptx/ptx.h"

namespace imbrex::vgpu {

/// What may still be writing a register.
enum RegisterWriter : uint8_t {
  kLoadWrites = 1,     // tcgen05.ld
  kProductWrites = 2,  // wgmma
};

/// For every instruction of the body the RegisterWriters that may, on some path, not have been waited for when
/// it reads or overwrites their results; empty when there are none at all. Products into the same
/// accumulators may follow each other without a wait.
std::vector<uint8_t> uses_in_flight(const ptx::Function& function);

}  // namespace imbrex::vgpu
