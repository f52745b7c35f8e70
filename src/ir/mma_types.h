// SPDX-License-Identifier: Apache-2.0
// Which products mma.sync computes.
#pragma once

#include "ir/ir.h"

namespace imbrex::ir {

/// Whether mma takes matrices of these types and shapes, whatever the number of warps.
bool mma_sync_takes(const Type& a, const Type& b, const Type& c);

}  // namespace imbrex::ir
