// SPDX-License-Identifier: Apache-2.0
// Which instructions belong to loops of compare-and-swap: atom.cas, and the plain load before the loop whose
// value is the first one to be compared (the CUDA programming guide's way to make any operation atomic).
#pragma once

#include <vector>

#include "ptx/ptx.h"

namespace imbrex::vgpu {

/// For every instruction of the body whether it does; empty when there is no atom.cas.
std::vector<bool> in_cas_loops(const ptx::Function& function);

}  // namespace imbrex::vgpu
