// SPDX-License-Identifier: Apache-2.0
#include "imbrex/runtime/scale_factors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "imbrex/core/error.h"

namespace imbrex {
namespace {

int64_t tiles(int64_t extent, int64_t tile) { return (extent + tile - 1) / tile; }

}  // namespace

std::vector<int64_t> scale_factor_shape(int64_t rows, int64_t blocks) {
  return {tiles(rows, kScaleTileRows), tiles(blocks, kScaleTileBlocks), kScaleTileShape[0],
          kScaleTileShape[1]};
}

HostTensor tile_scale_factors(const HostTensor& factors) {
  if (factors.shape().size() != 2 || factors.dtype().bits() != 8)
    throw LaunchError(Diagnostic{
        {},
        fmt::format("tile_scale_factors of {}[{}]", factors.dtype().name(), fmt::join(factors.shape(), ", ")),
        {},
        "factors are a matrix [rows, blocks] of 8-bit floats"});
  const int64_t rows = factors.shape()[0], blocks = factors.shape()[1];
  HostTensor tiled(factors.dtype(), scale_factor_shape(rows, blocks));
  const int64_t tiles_of_row = tiled.shape()[1];
  constexpr int64_t kTileBytes = kScaleTileShape[0] * kScaleTileShape[1];
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t f = 0; f < blocks; ++f) {
      const int64_t tile = r / kScaleTileRows * tiles_of_row + f / kScaleTileBlocks;
      const int64_t byte = r % 32 * 16 + r % kScaleTileRows / 32 * 4 + f % kScaleTileBlocks;
      tiled.bytes()[static_cast<size_t>(tile * kTileBytes + byte)] =
          factors.bytes()[static_cast<size_t>(r * blocks + f)];
    }
  return tiled;
}

}  // namespace imbrex
