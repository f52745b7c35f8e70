// SPDX-License-Identifier: Apache-2.0
// Lanes and masks: a warp is 32 lanes, a set of lanes is a 32-bit mask.
#pragma once

#include <bit>
#include <cstdint>

namespace imbrex::vgpu {

inline constexpr int kWarpSize = 32;

/// A set of lanes: bit i is lane i.
using Mask = uint32_t;
inline constexpr Mask kAllLanes = 0xFFFF'FFFFu;

constexpr Mask lane_bit(int lane) { return Mask{1} << lane; }
constexpr int first_lane(Mask mask) { return std::countr_zero(mask); }
/// std::has_single_bit, which counts the bits by a call where there is no instruction for it that every CPU has.
constexpr bool is_power_of_two(uint64_t x) { return x != 0 && (x & (x - 1)) == 0; }
constexpr int count_lanes(Mask mask) { return mask == kAllLanes ? kWarpSize : std::popcount(mask); }

/// Calls body(lane) for every lane of the mask, lowest first.
template <class Body>
inline void for_each_lane(Mask mask, Body&& body) {
  for (; mask != 0; mask &= mask - 1) body(std::countr_zero(mask));
}

}  // namespace imbrex::vgpu
