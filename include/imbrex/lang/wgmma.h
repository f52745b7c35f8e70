// SPDX-License-Identifier: Apache-2.0
// wgmma: warp groups multiply matrices from shared memory into registers (sm_90a).
//
// Products run asynchronously. A block of them stands between fence() and commit_group(). Until wait_group()
// has waited for its group, its accumulator and A registers must not be touched, and the shared memory that
// it reads must not be overwritten:
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
// All of these are executed by whole warp groups, 128 threads from a multiple of 128: a CTA of warps(4), or
// warp_group(4, 8), ... Several warp groups compute equal parts of the rows of d, in order.
// [PTX: Asynchronous Warpgroup Level Matrix Multiply-Accumulate Instructions]
#pragma once

#include "imbrex/lang/tensor.h"

namespace imbrex::wgmma {

/// A variable for sums of products, [m, n], uninitialised: the first mma() into it must have scale_d = false.
/// (`RegisterTensor acc = zeros(float32, {m, n});` starts from zeros.)
RegisterTensor accumulator(DataType dtype, const Shape& shape,
                           SourceLocation where = SourceLocation::current());

/// Orders the threads' accesses to the registers of an accumulator, or of A, before the products that follow.
/// Needed before the first mma() of a block; not between products into the same accumulator.
/// [PTX: wgmma.fence]
void fence(SourceLocation where = SourceLocation::current());

struct MmaOptions {
  ScalarArg scale_d;  ///< false: d = a x b; true: d = a x b + d. Required; may be a run-time value.
  bool negate_a = false, negate_b = false;  ///< floating point
  bool saturate = false;                    ///< int32 sums stop at their limits instead of wrapping
};
/// Starts d = a x b (+ d): a [m, k] in shared memory or registers, b [k, n] in shared memory, d [m, n] a
/// variable. For each warp group m is a multiple of 64, n of 8 (of 8-bit integers: 8, 16, 24 or a multiple of
/// 16), and k of 32 bytes; larger tiles take several instructions. In shared memory either dimension of a
/// 16-bit operand may be the contiguous one; of other types it is k.
///
///   a and b                                   d
///   float16                                   float32, float16
///   bfloat16                                  float32
///   tfloat32; float32, taken as tfloat32      float32
///   float8_e4m3, float8_e5m2, mixed           float32, float16
///   int8, uint8, mixed                        int32
///
/// [PTX: wgmma.mma_async]
void mma(const SharedTensor& a, const SharedTensor& b, RegisterTensor& d, const MmaOptions& options,
         SourceLocation where = SourceLocation::current());
void mma(const TileArg& a, const SharedTensor& b, RegisterTensor& d, const MmaOptions& options,
         SourceLocation where = SourceLocation::current());

/// Closes a group of the products started since the last group. [PTX: wgmma.commit_group]
void commit_group(SourceLocation where = SourceLocation::current());
/// Waits until at most `pending` groups, the youngest, are in flight. [PTX: wgmma.wait_group]
void wait_group(int64_t pending, SourceLocation where = SourceLocation::current());

}  // namespace imbrex::wgmma
