// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ir/ranges.h"

namespace imbrex::codegen {

using ir::Range;
using ir::Ranges;

}  // namespace imbrex::codegen
