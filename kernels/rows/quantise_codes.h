// SPDX-License-Identifier: Apache-2.0
// Machine code of what quantises the results of products in a second launch.
#pragma once

#include <vector>

#include "imbrex/kernels/matmul.h"

namespace imbrex {

/// quantise_float8() of dense matrices of bfloat16 whose rows 16 elements divide, however long they are, with scales of
/// blocks and of whole rows.
std::vector<MatmulCode> quantise_codes();

}  // namespace imbrex
