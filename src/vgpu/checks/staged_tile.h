// SPDX-License-Identifier: Apache-2.0
// Does a tensor store read the tile with the swizzle with which threads wrote it? Where what they wrote comes
// from tensor memory, each thread one lane of it: every column of the box holds the same columns of tensor
// memory in all rows. Reported is a box in which it does not, but would under another swizzle.
#pragma once

#include "vgpu/checks/tile_context.h"
#include "vgpu/memory/tensor_box.h"

namespace imbrex::vgpu {

/// For a box about to be stored from shared address `from` of the CTA.
void check_staged_tile(const TileContext& tiles, const Who& who, const TensorBox& box, uint32_t from);

}  // namespace imbrex::vgpu
