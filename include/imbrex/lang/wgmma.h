// SPDX-License-Identifier: Apache-2.0
// wgmma: warp groups multiply matrices, operands in shared memory, sums in registers (sm_90a).
//
// Products run asynchronously. A block of them stands between fence() and commit_group(), and until
// wait_group() has waited for its group, nothing may touch its accumulator or its A registers, and shared
// memory that it reads must not be overwritten:
//
//   auto acc = wgmma::accumulator(float32, {128, 256});
//   for (Int32 k : range(k_blocks)) {
//     ... stage k has arrived ...
//     wgmma::fence();
//     wgmma::mma(s_a[stage], s_b[stage].transpose(), acc, {.scale_d = k != 0});
//     wgmma::commit_group();
//     wgmma::wait_group(0);
//   }
//   store_global(g_c, acc.to(float16), ...);
//
// The thread group must consist of whole warp groups, 128 threads from a multiple of 128: a CTA of warps(4),
// or warp_group(4, 8), ... Each of several warp groups computes an equal part of the rows of d, in order.
// [PTX: Asynchronous Warpgroup Level Matrix Multiply-Accumulate Instructions]
#pragma once

#include "imbrex/lang/tensor.h"

namespace imbrex::wgmma {

/// A variable for sums of products, [m, n]: not initialised, so that the first mma() must say
/// `scale_d = false`. (`RegisterTensor acc = zeros(float32, {m, n});` starts from zeros.)
RegisterTensor accumulator(DataType dtype, const Shape& shape,
                           SourceLocation where = SourceLocation::current());

/// Orders what the threads did with the registers of an accumulator, or of A, and the products that follow.
/// Before the first mma() of a block; not between products into one accumulator. [PTX: wgmma.fence]
void fence(SourceLocation where = SourceLocation::current());

struct MmaOptions {
  ScalarArg scale_d;  ///< false: d = a x b; true: d = a x b + d. Must be said; may differ from trip to trip.
  bool negate_a = false, negate_b = false;  ///< floating point
  bool saturate = false;                    ///< int32 sums stop at their limits instead of wrapping
};
/// Starts d = a x b (+ d): a [m, k] in shared memory or registers, b [k, n] in shared memory, d [m, n] a
/// variable. float16 (d float32 or float16), bfloat16 (float32), tfloat32 and float32 bits taken as such
/// (float32), float8_e4m3 and float8_e5m2 in any mix (float32 or float16), int8 and uint8 in any mix (int32).
/// m is a multiple of 64 for each warp group, k of 32 bytes, n of 8 (int8: 8, 16, 24 or a multiple of 16);
/// larger tiles are computed by several instructions. In shared memory either dimension of a 16-bit operand
/// may be the contiguous one; of others it is k. [PTX: wgmma.mma_async]
void mma(const SharedTensor& a, const SharedTensor& b, RegisterTensor& d, const MmaOptions& options,
         SourceLocation where = SourceLocation::current());
void mma(const TileArg& a, const SharedTensor& b, RegisterTensor& d, const MmaOptions& options,
         SourceLocation where = SourceLocation::current());

/// Closes a group of the products started since the last one. [PTX: wgmma.commit_group]
void commit_group(SourceLocation where = SourceLocation::current());
/// Waits until at most `pending` groups, the youngest, are under way. [PTX: wgmma.wait_group]
void wait_group(int64_t pending, SourceLocation where = SourceLocation::current());

}  // namespace imbrex::wgmma
