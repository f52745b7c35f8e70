// SPDX-License-Identifier: Apache-2.0
// mma.sync: a product of register tiles on the tensor cores of any warp (sm_80 and later).
//
// Operands are register tensors of a whole thread group. The compiler decides which warp computes which part
// and which thread holds which element: tiles from load_shared() arrive as the tensor cores need them
// (through ldmatrix), accumulators stay in the same registers from one product to the next.
#pragma once

#include <optional>

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
///   float8_e4m3, float8_e5m2, mixed (sm_89)             float32             32
///   int8, uint8, mixed                                  int32, wraps        32
///
/// [PTX: mma.sync]
RegisterValue mma(const TileArg& a, const TileArg& b, const TileArg& c, const MmaOptions& options = {},
                  SourceLocation where = SourceLocation::current());

struct MmaScaledOptions {
  int warps_m = 0, warps_n = 0;  ///< as in MmaOptions
  /// What the bytes of an operand of uint8 hold, one element each: float8_e4m3, float8_e5m2, float6_e2m3, float6_e3m2 (in
  /// the low 6 bits) or float4_e2m1 (in bits 2 to 5).
  std::optional<DataType> a_type = {}, b_type = {};
};
/// a x b + c with block scales, on the tensor cores of GeForce RTX 50 and RTX PRO Blackwell (sm_120a): each element of a
/// and b is multiplied by the scale of its block along k. a [m, k], scale_a [m, k / block], b [k, n], scale_b
/// [k / block, n], c and the result [m, n] float32; in each warp's box m is a multiple of 16 and n of 8. Whole warps.
///
///   a and b                                          scales          block   k is a multiple of
///   float8_e4m3, float8_e5m2, mixed; bytes, above    float8_e8m0     32      32     (MXFP8, MXFP6, MXFP4)
///   float4_e2m1                                      float8_e8m0     32      64     (MXFP4)
///   float4_e2m1                                      float8_ue4m3    16      64     (NVFP4)
///
/// [PTX: mma.sync .kind::mxf8f6f4, .kind::mxf4, .kind::mxf4nvf4, .block_scale]
RegisterValue mma_scaled(const TileArg& a, const TileArg& scale_a, const TileArg& b, const TileArg& scale_b,
                         const TileArg& c, const MmaScaledOptions& options = {},
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
