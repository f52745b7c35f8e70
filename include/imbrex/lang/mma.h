// SPDX-License-Identifier: Apache-2.0
// mma.sync: the tensor cores as every warp of an sm_80 (or later) has them, register tile times register
// tile.
//
// Operands are register tensors of a whole thread group; which warp computes which part, and which thread
// holds which element, is the compiler's business: tiles that load_shared() gives lie as the tensor cores
// want them (through ldmatrix), accumulators stay in the same registers from one product to the next.
#pragma once

#include "imbrex/lang/tensor.h"

namespace imbrex {

struct MmaOptions {
  /// The warps of the group as a grid over the product: warp i * warps_n + j computes box (i, j) of
  /// warps_m x warps_n. 0: the grid whose boxes are nearest to squares, which load least.
  int warps_m = 0, warps_n = 0;
};
/// a x b + c: a [m, k], b [k, n], c and the result [m, n]; m a multiple of 16 in each warp's box, n of 8, k
/// of 16 (16-bit elements), 8 (32 bits) or 32 (8 bits). float16 (with a float32 or float16 c), bfloat16,
/// tfloat32, float32 (taken as tfloat32: the low 13 bits are ignored) and from sm_90 float8 e4m3 and e5m2
/// (float32 c), int8 and uint8 (int32 c, which wraps). Whole warps must execute it. [PTX: mma.sync]
RegisterValue mma(const TileArg& a, const TileArg& b, const TileArg& c, const MmaOptions& options = {},
                  SourceLocation where = SourceLocation::current());

}  // namespace imbrex
