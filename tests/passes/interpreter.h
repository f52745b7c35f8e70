// SPDX-License-Identifier: Apache-2.0
// Runs the int32 subset of the IR that random_ir.h generates, to see that passes keep what a kernel does.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ir/ir.h"

namespace imbrex::passes {

/// What one thread of the kernel prints, given its int32 parameters: one line a printf. Ends with "..." when
/// more than `max_ops` ops would have run.
std::string interpret(const ir::Function& function, const std::vector<int32_t>& params, int64_t thread,
                      int64_t max_ops = 20000);

}  // namespace imbrex::passes
