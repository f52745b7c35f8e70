// SPDX-License-Identifier: Apache-2.0
// The loops of machine code.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace imbrex::ptx {

/// For every instruction of a kernel, in how many loops it lies. A loop is natural: its first instruction comes before all
/// others on every way. So the code that the assembler puts behind a kernel's end, for waits that take long, makes none.
std::vector<uint8_t> machine_loop_depths(std::string_view code, int sm);

}  // namespace imbrex::ptx
