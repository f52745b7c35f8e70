// SPDX-License-Identifier: Apache-2.0
// Results in float8 in two launches: one multiplies by any tiles, as scales need not be known there, and leaves its sums in
// memory, of one part of k or several; one adds them up and quantises blocks. What they write and read is little where rows
// are few, and then no block of 128 columns keeps a multiprocessor idle.
#pragma once

#include <memory>
#include <vector>

#include "grouped/fused_product.h"
#include "imbrex/runtime/stream.h"
#include "matmul/matmul_choice.h"

namespace imbrex {

/// Whether one product has all columns: those that gate follow the others in memory, as where weights are one matrix.
bool has_one_factor(const FusedProduct& p);

/// `choice`: of choose_in_parts(), for elements of 16 bits, p.columns() of them and a product that has_one_factor().
LaunchReport quantise_parts(const FusedProduct& p, const Device& device, const MatmulChoice& choice,
                            const Stream& stream);

/// Its second kernel, and machine code of it. (The first one is matmul()'s.)
std::vector<std::shared_ptr<ir::Function>> trace_second_launch(const FusedProduct& p);
void ship_second_launch(const FusedProduct& p, Cache& folder);

}  // namespace imbrex
