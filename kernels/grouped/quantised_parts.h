// SPDX-License-Identifier: Apache-2.0
// quantised_matmul() in two launches: one multiplies by any tiles, as scales need not be known there, and leaves its sums in
// memory, of one part of k or several; one adds them up and quantises blocks. What they write and read is little where rows
// are few, and then no block of 128 columns keeps a multiprocessor idle.
#pragma once

#include "grouped/fused_product.h"
#include "imbrex/runtime/stream.h"
#include "matmul/matmul_choice.h"

namespace imbrex {

/// `choice`: of choose_in_parts(), for elements of 16 bits.
LaunchReport quantise_parts(const FusedProduct& p, const Device& device, const MatmulChoice& choice,
                            const Stream& stream);

}  // namespace imbrex
