// SPDX-License-Identifier: Apache-2.0
// How often a bank or an L2 sector is passed for one atomic instruction of a warp, and which sectors its stores write.
#pragma once

#include <cstddef>
#include <cstdint>

#include "vgpu/memory/memory.h"
#include "vgpu/timeline/recording.h"

namespace imbrex::vgpu {

/// Clocks that atom or red takes of an SM's shared memory. The lanes of a bank follow each other; those of one word too where they
/// want its old value, else they are added first. `is_native`: the update is one of shared memory's own (32-bit integers); others are
/// loops around a comparison, which repeat for every lane of a word.
double shared_update_clocks(const std::byte* const* host, Mask lanes, bool returns, bool is_native);

/// Passes that it takes of L2: of each sector, as many as its most wanted word has lanes.
int global_update_passes(const std::byte* const* host, Mask lanes);

/// Of a warp's store: the sectors of 32 bytes that it writes, wholly or in part, and the lines of which it writes some in part.
struct StoredSectors {
  int sectors = 0, partial_lines = 0;
};
StoredSectors stored_sectors(const std::byte* const* host, Mask lanes, uint32_t bytes);

/// The last stores that a warp has submitted, from work `first` on, fill their lines: where those go to L2 as one, the others cost nothing.
void gather_stores(Recording& recording, size_t warp, int32_t first);

}  // namespace imbrex::vgpu
