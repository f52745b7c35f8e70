// SPDX-License-Identifier: Apache-2.0
// Lanes of registers that were never written, followed through arithmetic to where they matter.
#pragma once

#include "vgpu/machine/warp.h"

namespace imbrex::vgpu {

/// For the body of a kShuffled instruction: of the lanes of `members`, whose value comes from lane
/// `from[lane]`.
void pass_shuffled(Warp& warp, const Instruction& insn, Mask members, const int* from);

}  // namespace imbrex::vgpu
