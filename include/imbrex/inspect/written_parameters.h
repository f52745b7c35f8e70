// SPDX-License-Identifier: Apache-2.0
// Through which of its parameters a kernel may write memory, from its IR.
#pragma once

#include <vector>

namespace imbrex {

namespace ir {
struct Function;
}

/// For each run-time parameter of a traced kernel (Kernel::trace), in order, whether the kernel may write memory through
/// it. Never false where it does.
std::vector<bool> written_parameters(const ir::Function& function);

}  // namespace imbrex
