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

#include "imbrex/lang/mbarrier.h"
#include "imbrex/lang/tensor.h"

namespace imbrex::tma {

/// A hint to the L2 cache: which data to evict first or last. [PTX: createpolicy]
enum class CachePolicy : uint8_t { kDefault, kEvictFirst, kEvictNormal, kEvictLast };

struct LoadOptions {
  Shape dims = {};         ///< see the head of this file
  int multicast_mask = 0;  ///< CTAs of the cluster that receive the tile, a bit each; 0: this one
  int cta_group = 1;       ///< 2: the barrier may be in the other CTA of the pair; sm_100a
  CachePolicy cache_policy = CachePolicy::kDefault;
};
/// Starts loading the tile of dst's shape at the offsets in src; its bytes complete on `barrier`. With a
/// multicast mask the tile arrives at the same offset in every CTA named, and its bytes complete on the
/// barrier at the same offset there. One warp or one thread. [PTX: cp.async.bulk.tensor]
void global_to_shared(const GlobalTensor& src, const SharedTensor& dst, const Scalars& offsets,
                      const Barrier& barrier, const LoadOptions& options = {},
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
