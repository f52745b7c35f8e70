// SPDX-License-Identifier: Apache-2.0
// Functions that the driver brings along: vprintf and __assertfail.
#pragma once

#include <string_view>
#include <vector>

#include "vgpu/machine/warp.h"

namespace imbrex::vgpu {

/// `arguments` and `results`: offsets in local memory of each.
using Builtin = Step (*)(Warp& warp, const Instruction& insn, Mask active,
                         const std::vector<int64_t>& arguments, const std::vector<int64_t>& results);

/// Null when there is no such function.
Builtin find_builtin(std::string_view name);

}  // namespace imbrex::vgpu
