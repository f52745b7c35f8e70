// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace imbrex::ir {

/// docs/ops.md: every op of the table, for readers.
std::string ops_reference();

}  // namespace imbrex::ir
