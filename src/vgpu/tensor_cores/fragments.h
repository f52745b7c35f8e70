// SPDX-License-Identifier: Apache-2.0
// Matrix fragments in registers, as wgmma and the m16n8 shapes of mma.sync hold them. Lane l: g = l / 4, q =
// l % 4.
#pragma once

#include <cstdint>
#include <cstring>

#include "vgpu/lanes.h"

namespace imbrex::vgpu {

/// A of 16 rows and 32 bytes (four registers), whatever the type: register r is the word at byte 4q + 16 (r /
/// 2) of row g + 8 (r % 2). Shapes of 16 bytes have registers 0 and 1 only.
inline void gather_a(const uint32_t* const* registers, int count, uint8_t* rows, int64_t row_bytes) {
  for (int r = 0; r < count; ++r)
    for (int l = 0; l < kWarpSize; ++l)
      std::memcpy(rows + (l / 4 + 8 * (r % 2)) * row_bytes + 4 * (l % 4) + 16 * (r / 2), registers[r] + l, 4);
}

/// D of 16 rows and 8 columns of 32-bit elements: registers 0, 1 are columns 2q, 2q + 1 of row g, registers
/// 2, 3 of row g + 8. Two registers together are an 8 x 8 block, lane by lane.
inline void gather_d(const uint32_t* const* registers, uint32_t* tile, int64_t pitch) {
  for (int half = 0; half < 2; ++half) {
    const uint32_t *even = registers[2 * half], *odd = registers[2 * half + 1];
    for (int row = 0; row < 8; ++row)
      for (int q = 0; q < 4; ++q) {
        tile[(row + 8 * half) * pitch + 2 * q] = even[4 * row + q];
        tile[(row + 8 * half) * pitch + 2 * q + 1] = odd[4 * row + q];
      }
  }
}
inline void scatter_d(const uint32_t* tile, int64_t pitch, uint32_t* const* registers) {
  for (int half = 0; half < 2; ++half) {
    uint32_t *even = registers[2 * half], *odd = registers[2 * half + 1];
    for (int row = 0; row < 8; ++row)
      for (int q = 0; q < 4; ++q) {
        even[4 * row + q] = tile[(row + 8 * half) * pitch + 2 * q];
        odd[4 * row + q] = tile[(row + 8 * half) * pitch + 2 * q + 1];
      }
  }
}

/// The same for f16 elements, two per register: register `half` holds columns 2q (low) and 2q + 1 (high) of
/// row g + 8 half. In the tile every element has a cell of its own.
inline void gather_d16(const uint32_t* const* registers, uint32_t* tile, int64_t pitch) {
  for (int half = 0; half < 2; ++half)
    for (int l = 0; l < kWarpSize; ++l) {
      uint32_t* at = tile + (l / 4 + 8 * half) * pitch + 2 * (l % 4);
      at[0] = registers[half][l] & 0xFFFF;
      at[1] = registers[half][l] >> 16;
    }
}
inline void scatter_d16(const uint32_t* tile, int64_t pitch, uint32_t* const* registers) {
  for (int half = 0; half < 2; ++half)
    for (int l = 0; l < kWarpSize; ++l) {
      const uint32_t* at = tile + (l / 4 + 8 * half) * pitch + 2 * (l % 4);
      registers[half][l] = at[0] | at[1] << 16;
    }
}

}  // namespace imbrex::vgpu
