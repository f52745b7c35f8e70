// SPDX-License-Identifier: Apache-2.0
// What an op tells the caches, as words and operands of its instructions.
#pragma once

#include "codegen/tile.h"

namespace imbrex::codegen {

/// The hints of an op that has the attributes l1_priority and cache_policy. The policy is made once in a kernel.
CacheHints cache_hints(Generator& g, const ir::Op& op);

}  // namespace imbrex::codegen
