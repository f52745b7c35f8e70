// SPDX-License-Identifier: Apache-2.0
// One box of one tensor: all that is needed to walk it.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "vgpu/memory/tensor_map.h"

namespace imbrex::vgpu {

/// tile, or the four rows of tile::gather4 and tile::scatter4.
enum class TileMode : uint8_t { kTile, kFourRows };

struct TensorBox {
  TensorMapFields map;
  TileMode mode = TileMode::kTile;
  std::array<int32_t, kMaxTensorRank> coordinates{};

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
  /// "box of 64x128 elements at {0, 64}".
  std::string text() const;

  /// Calls body(const BoxRow&) for every row, the first at shared address `shared`.
  template <class Body>
  void for_each_row(uint32_t shared, Body&& body) const;
};

/// Pieces in which a row goes through the swizzle unbroken.
constexpr uint32_t swizzle_piece(Swizzle mode) { return mode == Swizzle::k128BAtom32BFlip8B ? 8 : 16; }

template <class Body>
void TensorBox::for_each_row(uint32_t shared, Body&& body) const {
  if (mode == TileMode::kTile) {
    vgpu::for_each_row(map, coordinates, shared, body);
    return;
  }
  for (uint32_t r = 0; r < 4; ++r)
    vgpu::for_each_row(map, {coordinates[0], coordinates[1 + r]}, shared + r * map.row_pitch(), body);
}

}  // namespace imbrex::vgpu
