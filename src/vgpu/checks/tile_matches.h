// SPDX-License-Identifier: Apache-2.0
// Looks through the list of accesses to a tile of shared memory (shared_shadow.h), by the host's widest vectors.
#pragma once

#include <cstddef>
#include <cstdint>

namespace imbrex::vgpu {

/// Of accesses, a bit each: those that touch cells of which an access touches one, and those of the same agent and clock.
struct TileMatches {
  uint64_t meeting = 0, same_who = 0;
};

/// Lists are read so many at once, behind their end as well.
inline constexpr size_t kMatchedAtOnce = 8;
using MatchTile = TileMatches (*)(const uint64_t* cells, const uint64_t* who, size_t count,
                                  uint64_t now_cells, uint64_t now_who);
extern const MatchTile match_tile;

}  // namespace imbrex::vgpu
