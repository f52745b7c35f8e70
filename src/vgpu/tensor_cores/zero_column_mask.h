// SPDX-License-Identifier: Apache-2.0
// The zero-column mask descriptor of tcgen05.mma.ws: a run-length pattern of columns of B that count as
// zeros.
#pragma once

#include <cstdint>
#include <vector>

#include "vgpu/memory/matrix_descriptor.h"

namespace imbrex::vgpu {

/// True for every column of B (of n, for a product with m rows) that the descriptor zeroes. The polarity
/// follows the worked examples of the PTX manual; no hardware has confirmed it.
std::vector<bool> masked_columns(uint64_t descriptor, uint32_t m, uint32_t n);

/// Zeroes those columns in B's patterns.
void clear_masked_columns(uint64_t descriptor, uint32_t m, uint32_t n, uint32_t k, Major major,
                          std::vector<uint8_t>& patterns);

}  // namespace imbrex::vgpu
