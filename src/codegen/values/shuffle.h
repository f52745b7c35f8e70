// SPDX-License-Identifier: Apache-2.0
// Values of other lanes.
#pragma once

#include "codegen/generator.h"

namespace imbrex::codegen {

/// The lanes of a group inside one warp, or all of its warps': what shfl.sync takes.
int64_t members_of(const Group& group);
/// shfl.sync of a register of any class. `mode` is bfly, up, down or idx.
Operand shuffle(Generator& g, Mod mode, ScalarType reg, const Operand& value, const Operand& lane,
                int64_t clamp, int64_t members);

}  // namespace imbrex::codegen
