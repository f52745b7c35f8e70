// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "ir/ir.h"

namespace imbrex::analysis {

/// For each parameter of a traced kernel, whether the kernel may write memory through it. Never false where it does.
std::vector<bool> written_parameters(const ir::Function& function);

}  // namespace imbrex::analysis
