// SPDX-License-Identifier: Apache-2.0
// Between neighbouring words of memory and the lanes of registers, for the host's widest vectors.
#pragma once

#include <cstdint>

namespace imbrex::vgpu {

struct LaneMoves {
  /// Is each lane's address `step` further than the one before?
  bool (*are_apart64)(const uint64_t* lanes, uint64_t step);
  bool (*are_apart32)(const uint32_t* lanes, uint32_t step);
  /// Lane i of register e is word count * i + e, where `count` is 2 or 4.
  void (*to_lanes)(uint32_t count, const uint32_t* words, uint32_t* const* lanes);
  void (*from_lanes)(uint32_t count, uint32_t* words, const uint32_t* const* lanes);
};
extern const LaneMoves lane_moves;

}  // namespace imbrex::vgpu
