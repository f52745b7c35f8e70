// SPDX-License-Identifier: Apache-2.0
// malloc and free of kernels, as Builtins.
#pragma once

#include "vgpu/insns/builtins.h"

namespace imbrex::vgpu {

Step malloc_builtin(Warp& w, const Instruction& n, Mask active, const std::vector<int64_t>& arguments,
                    const std::vector<int64_t>& results);
Step free_builtin(Warp& w, const Instruction& n, Mask active, const std::vector<int64_t>& arguments,
                  const std::vector<int64_t>& results);

}  // namespace imbrex::vgpu
