// SPDX-License-Identifier: Apache-2.0
// The units of a sub-partition that are narrower than a warp: an instruction is issued to one in a clock, and keeps it for more.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace imbrex::vgpu {

enum class Pipe : uint8_t {
  kAlu,      // 16 lanes: integers, comparisons, selections, minima, conversions between floats
  kProduct,  // 16 lanes: products of integers; those of float32 have as many more lanes beside them
  kSpecial,  // 4 lanes: special functions, conversions of integers
};
inline constexpr size_t kPipes = 3;

/// Clocks of each.
using PipeClocks = std::array<float, kPipes>;

}  // namespace imbrex::vgpu
