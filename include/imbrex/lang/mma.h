// SPDX-License-Identifier: Apache-2.0
// mma.sync: a product of register tiles on the tensor cores of any warp (sm_80 and later).
//
// Operands are register tensors of a whole thread group. The compiler decides which warp computes which part
// and which thread holds which element: tiles from load_shared() arrive as the tensor cores need them
// (through ldmatrix), accumulators stay in the same registers from one product to the next.
#pragma once

#include "imbrex/lang/tensor.h"

namespace imbrex {

struct MmaOptions {
  /// The warps of the group as a grid over the product: warp i * warps_n + j computes box (i, j) of warps_m x
  /// warps_n equal boxes. 0, for both: the grid whose boxes are nearest to squares, which load least.
  int warps_m = 0, warps_n = 0;
};
/// a x b + c: a [m, k], b [k, n], c and the result [m, n]; in each warp's box m is a multiple of 16 and n of
/// 8. Whole warps execute it.
///
///   a and b                                             c, result           k is a multiple of
///   float16                                             float32, float16    16
///   bfloat16                                            float32             16
///   tfloat32; float32, whose low 13 bits are ignored    float32             8
///   float8_e4m3, float8_e5m2, mixed (sm_90)             float32             32
///   int8, uint8, mixed                                  int32, wraps        32
///
/// [PTX: mma.sync]
RegisterValue mma(const TileArg& a, const TileArg& b, const TileArg& c, const MmaOptions& options = {},
                  SourceLocation where = SourceLocation::current());

/// a x b + c of any numbers on any GPU: mma() where it takes the types and extents exactly (not float32, which it would
/// round), else by the threads' own arithmetic. Then operands are converted to the type of c, of 32 or 64 bits, each
/// thread computes a box of c and holds the rows of a and columns of b that it needs: multiply in steps of k of about 16
/// elements. Without c, sums start from 0, in float64 or int64 where an operand has that, else in float32 or int32.
/// Any thread group for products by threads whose operands lie as they need them, whole warps else. [PTX: mma.sync, fma]
RegisterValue dot(const TileArg& a, const TileArg& b, const TileArg& c,
                  SourceLocation where = SourceLocation::current());
RegisterValue dot(const TileArg& a, const TileArg& b, SourceLocation where = SourceLocation::current());

}  // namespace imbrex
