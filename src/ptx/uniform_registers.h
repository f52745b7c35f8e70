// SPDX-License-Identifier: Apache-2.0
// Which registers of a kernel hold the same in every thread of a warp.
#pragma once

#include <vector>

#include "ptx/ptx.h"

namespace imbrex::ptx {

/// True for the integer registers, by id, whose value is the same in all threads of a warp because it comes
/// of parameters, the CTA's place and constants by integer arithmetic alone. Newer chips keep such values in
/// registers that a warp has once, beside those of its threads.
std::vector<bool> uniform_registers(const ptx::Function& function);

}  // namespace imbrex::ptx
