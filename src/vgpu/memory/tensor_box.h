// SPDX-License-Identifier: Apache-2.0
// One box of one tensor: all that is needed to walk it.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "vgpu/memory/tensor_map.h"

namespace imbrex::vgpu {

/// tile, the four rows of tile::gather4 and tile::scatter4, or the pixels of im2col and im2col_no_offs.
enum class TileMode : uint8_t { kTile, kFourRows, kIm2col };

/// What a copy of a box moves of global memory: sectors of 32 bytes, and lines of 128 that it touches sectors of in part.
struct BoxTraffic {
  int32_t sectors = 0, partial_lines = 0;
};

struct TensorBox {
  TensorMapFields map;
  TileMode mode = TileMode::kTile;
  std::array<int32_t, kMaxTensorRank> coordinates{};
  std::array<uint32_t, kMaxTensorRank - 2> offsets{};  // of im2col loads

  uint32_t bytes() const { return map.transaction_bytes() * (mode == TileMode::kFourRows ? 4 : 1); }
  /// The same with the padding of shared memory.
  uint32_t shared_bytes() const {
    return map.rows() * map.row_bytes() * (mode == TileMode::kFourRows ? 4 : 1);
  }
  uint32_t footprint() const {
    return mode == TileMode::kFourRows ? 3 * map.row_pitch() + map.row_bytes() : map.footprint();
  }
  /// Equal for boxes of equal elements, for the prediction of what hits L2.
  uint64_t identity() const;
  /// Of its first row in global memory; coordinates before the tensor count as 0.
  uint64_t address() const;
  /// Of its elements inside the tensor.
  BoxTraffic traffic() const;
  /// "box of 64x128 elements at {0, 64}", "column of 64 pixels with 32 channels at {0, -1, -1, 0}".
  std::string text() const;

  /// Calls body(const BoxRow&) for every row, the first at shared address `shared`.
  template <class Body>
  void for_each_row(uint32_t shared, Body&& body) const;
};

/// Pieces in which a row goes through the swizzle unbroken.
constexpr uint32_t swizzle_piece(Swizzle mode) { return mode == Swizzle::k128BAtom32BFlip8B ? 8 : 16; }

template <class Body>
void TensorBox::for_each_row(uint32_t shared, Body&& body) const {
  if (mode == TileMode::kTile) return vgpu::for_each_row(map, coordinates, shared, body);
  if (mode == TileMode::kIm2col) return for_each_pixel(map, coordinates, offsets, shared, body);
  for (uint32_t r = 0; r < 4; ++r)
    vgpu::for_each_row(map, {coordinates[0], coordinates[1 + r]}, shared + r * map.row_pitch(), body);
}

}  // namespace imbrex::vgpu
