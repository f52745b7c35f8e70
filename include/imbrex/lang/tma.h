// SPDX-License-Identifier: Apache-2.0
// TMA: a hardware unit copies whole tiles between global and shared memory (sm_90).
//
// A tile of rank t is copied from or to a global tensor of rank r >= t, at most 5. Offsets are in elements,
// one per dimension of the tensor; dimension i of the tile runs along dimension dims[i] of the tensor, by
// default along its last t dimensions, in order. Loads fill elements outside the tensor with zeros, stores
// leave them out.
//
// The compiler makes the tensor maps. They need
//   - a base address, extents and strides that are known at launch;
//   - one dimension of stride 1; the base, and all other strides, multiples of 16 bytes;
//   - along the dimension of stride 1, offsets that are multiples of 16 bytes; in stores, its extent too: the
//     unit writes 16 bytes at a time and would overwrite what follows (docs/conformance.md);
//   - in stores, no negative offset.
//
// A copy is executed by one warp, of which one elected thread issues it, or by one thread. Copies are
// asynchronous. A load completes its bytes on a barrier, which expects them: arrive_and_expect_tx() with the
// nbytes() of what is loaded. Stores are waited for in groups. The unit accesses shared memory through the
// async proxy: after store_shared(), every writing thread executes fence::proxy_async(), then a barrier
// follows, then the store may be issued.
// [PTX: Data Movement and Conversion Instructions: cp.async.bulk.tensor]
#pragma once

#include <array>

#include "imbrex/lang/mbarrier.h"
#include "imbrex/lang/memory.h"
#include "imbrex/lang/tensor.h"

namespace imbrex::tma {

using imbrex::CachePolicy;  // a hint to the L2 cache

struct LoadOptions {
  Shape dims = {};  ///< see the head of this file
  /// CTAs of the cluster that receive the tile, a bit each; the number 0: this one. A run-time scalar may be any mask but
  /// 0, the same in all threads that execute the copy.
  ScalarArg multicast_mask = 0;
  int cta_group = 1;  ///< 2: the barrier may be in the other CTA of the pair; sm_100a
  CachePolicy cache_policy = CachePolicy::kDefault;
};
/// Starts loading the tile of dst's shape at the offsets in src; its bytes complete on `barrier`. With a
/// multicast mask the tile arrives at the same offset in every CTA named, and its bytes complete on the
/// barrier at the same offset there. One warp or one thread. [PTX: cp.async.bulk.tensor]
void global_to_shared(const GlobalTensor& src, const SharedTensor& dst, const Scalars& offsets,
                      const Barrier& barrier, const LoadOptions& options = {},
                      SourceLocation where = SourceLocation::current());

/// Starts loading four rows of a matrix, wherever they lie: row i of dst, [4, columns], is row rows[i] of src, [m, n], from
/// `column` on. Rows outside src become zeros; all four are bytes that the barrier expects. Tiles of more rows take one
/// call for every four: `gather4(g, s.slice({4 * i, 0}, {4, columns}), ...)`. One warp or one thread. sm_100; with
/// multicast or a CTA pair, sm_100a. [PTX: cp.async.bulk.tensor.2d.tile::gather4]
void gather4(const GlobalTensor& src, const SharedTensor& dst, const std::array<ScalarArg, 4>& rows,
             const ScalarArg& column, const Barrier& barrier, const LoadOptions& options = {},
             SourceLocation where = SourceLocation::current());

/// What a store does with the element in global memory: replaces it, or combines with it atomically.
enum class Reduce : uint8_t { kNone, kAdd, kMin, kMax, kAnd, kOr, kXor };

struct StoreOptions {
  Shape dims = {};  ///< see the head of this file
  Reduce reduce = Reduce::kNone;
  CachePolicy cache_policy = CachePolicy::kDefault;
};
/// Starts storing the tile at the offsets in dst. One warp or one thread.
/// [PTX: cp.async.bulk.tensor, cp.reduce.async.bulk.tensor]
void shared_to_global(const SharedTensor& src, const GlobalTensor& dst, const Scalars& offsets,
                      const StoreOptions& options = {}, SourceLocation where = SourceLocation::current());

/// Starts storing the rows of src, [4, columns], to rows of a matrix: row i to row rows[i] of dst, from `column` on. Rows
/// outside dst are left out. Where rows are equal, one of them is stored. Without a reduction. One warp or one thread.
/// sm_100a. [PTX: cp.async.bulk.tensor.2d.tile::scatter4]
void scatter4(const SharedTensor& src, const GlobalTensor& dst, const std::array<ScalarArg, 4>& rows,
              const ScalarArg& column, const StoreOptions& options = {},
              SourceLocation where = SourceLocation::current());

/// Closes a group of the stores that the executing warp or thread has started.
/// [PTX: cp.async.bulk.commit_group]
void commit_group(SourceLocation where = SourceLocation::current());

struct WaitOptions {
  bool read = false;  ///< wait only until shared memory has been read and may be overwritten
};
/// Waits until at most `pending` groups, the youngest, are in flight. Executed by the warp or thread that
/// closed the groups. A CTA must not exit before its stores have read shared memory.
/// [PTX: cp.async.bulk.wait_group]
void wait_group(int64_t pending, const WaitOptions& options = {},
                SourceLocation where = SourceLocation::current());

}  // namespace imbrex::tma
