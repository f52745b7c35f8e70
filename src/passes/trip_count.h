// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "ir/ir.h"

namespace imbrex::passes {

/// How often a `for` runs its body, breaks aside, when begin, end and step are numbers.
std::optional<int64_t> trip_count(const ir::Op& loop);

}  // namespace imbrex::passes
