// SPDX-License-Identifier: Apache-2.0
// How often a bank or an L2 sector is passed for one atomic instruction of a warp.
#pragma once

#include <cstddef>

#include "vgpu/memory/memory.h"

namespace imbrex::vgpu {

/// Clocks that atom or red takes of an SM's shared memory. The lanes of a bank follow each other; those of one word too where they
/// want its old value, else they are added first. `is_native`: the update is one of shared memory's own (32-bit integers); others are
/// loops around a comparison, which repeat for every lane of a word.
double shared_update_clocks(const std::byte* const* host, Mask lanes, bool returns, bool is_native);

/// Passes that it takes of L2: of each sector, as many as its most wanted word has lanes.
int global_update_passes(const std::byte* const* host, Mask lanes);

}  // namespace imbrex::vgpu
