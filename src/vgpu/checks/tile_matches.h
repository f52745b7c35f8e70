// SPDX-License-Identifier: Apache-2.0
// Looks through the list of accesses to a tile of shared memory (shared_shadow.h), by the host's widest vectors.
#pragma once

#include <cstddef>
#include <cstdint>

namespace imbrex::vgpu {

inline constexpr size_t kMatchedAtOnce = 4;
/// Some accesses of the list: their cells, a bit each, and the two words of Access. Behind the end of the list anything.
struct TilePart {
  uint64_t cells[kMatchedAtOnce], who[kMatchedAtOnce], what[kMatchedAtOnce];
};

/// Of accesses, a bit each: those that touch cells of which an access touches one, and those of the same agent and clock.
struct TileMatches {
  uint64_t meeting = 0, same_who = 0;
};
using MatchTile = TileMatches (*)(const TilePart* parts, size_t count, uint64_t cells, uint64_t who);
extern const MatchTile match_tile;

}  // namespace imbrex::vgpu
