// SPDX-License-Identifier: Apache-2.0
// Random valid kernels, for property tests of the text form and of the passes.
#pragma once

#include <cstdint>
#include <memory>

#include "ir/ir.h"

namespace imbrex::ir {

/// A valid kernel of about `size` ops: scalar arithmetic over two parameters, variables, nested control flow,
/// and a `printf` of what was computed (its observable behaviour). The same seed gives the same kernel.
std::unique_ptr<Function> random_function(uint64_t seed, int size);

}  // namespace imbrex::ir
