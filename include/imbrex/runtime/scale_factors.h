// SPDX-License-Identifier: Apache-2.0
// Scale factors of block-scaled matrices in global memory.
//
// A matrix [rows, k] of narrow floats has a factor for every `block` elements of a row: [rows, k / block].
// The tensor core takes factors from tensor memory, where copies put 512 bytes at a time, so that memory
// holds them in such tiles: 128 rows by 4 factors, row r, factor f at byte
//
//     (r % 32) * 16 + (r / 32) * 4 + f
//
// Tiles follow one another along a row of tiles, then down: the factors are a dense tensor [ceil(rows / 128),
// ceil(k / block / 4), 2, 256], the last two being the bytes of a tile. Factors beyond the last row or block
// of the matrix, which fill up the last tiles, are zero. This is the order that cuBLAS and CUTLASS use, too.
// Kernels load tiles by TMA and view them with tcgen05::scale_factor_matrix().
// [PTX: Block Scaling for tcgen05.mma]
#pragma once

#include <cstdint>
#include <vector>

#include "imbrex/runtime/host_tensor.h"

namespace imbrex {

inline constexpr int64_t kScaleTileRows = 128;  ///< rows of the matrix in one tile
inline constexpr int64_t kScaleTileBlocks = 4;  ///< factors of each row in one tile
/// The last two extents: the bytes of one tile, so that TMA copies rows of 256.
inline constexpr int64_t kScaleTileShape[2] = {2, 256};

/// The shape of the tensor that holds the factors of `rows` rows of `blocks` blocks.
std::vector<int64_t> scale_factor_shape(int64_t rows, int64_t blocks);
/// `factors` [rows, blocks] in the order of global memory, of scale_factor_shape(). LaunchError unless they
/// are a matrix of an 8-bit type.
HostTensor tile_scale_factors(const HostTensor& factors);

}  // namespace imbrex
