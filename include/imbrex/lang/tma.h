// SPDX-License-Identifier: Apache-2.0
// TMA: copies of whole tiles between global and shared memory by a unit of its own (sm_90).
//
// A tile of rank t is copied from or to a global tensor of rank r >= t, at most 5, at one offset a tensor
// dimension; tile dimension i runs along tensor dimension dims[i], by default the last t dimensions, in
// order. Loads fill elements outside the tensor with zeros, stores leave them out. The compiler makes the
// tensor maps: views that are copied need a base, extents and strides known at launch, the base and all
// strides but one multiples of 16 bytes and the remaining stride 1. Along that dimension offsets are
// multiples of 16 bytes, and the extent of what is stored to too: the unit writes 16 bytes at a time, and
// would overwrite what is behind (docs/conformance.md). In stores no offset is negative.
//
// One warp executes a copy, of which one elected thread issues it, or a single thread. Copies are
// asynchronous: a load makes `barrier` complete once the bytes announced to it (arrive_and_expect_tx() with
// the nbytes() of what is loaded) are there, stores are waited for in groups. The unit reads shared memory
// through the async proxy: after writing it with store_shared(), every writer executes fence::proxy_async(),
// then a barrier, then the store may be issued. [PTX: Data Movement and Conversion Instructions:
// cp.async.bulk.tensor]
#pragma once

#include "imbrex/lang/mbarrier.h"
#include "imbrex/lang/tensor.h"

namespace imbrex::tma {

/// How likely the data will be used again, a hint to the L2 cache. [PTX: createpolicy]
enum class CachePolicy : uint8_t { kDefault, kEvictFirst, kEvictNormal, kEvictLast };

struct LoadOptions {
  Shape dims = {};         ///< see the head of this file
  int multicast_mask = 0;  ///< CTAs of the cluster that get the tile, at the same place; 0: this one
  int cta_group = 1;       ///< 2: the barrier may be that of the other CTA of the pair; sm_100a
  CachePolicy cache_policy = CachePolicy::kDefault;
};
/// Starts loading the tile of dst's shape at the offsets in src. With a multicast mask, each CTA's barrier at
/// the same place gets the bytes of its own copy. [PTX: cp.async.bulk.tensor]
void global_to_shared(const GlobalTensor& src, const SharedTensor& dst, const Scalars& offsets,
                      const Barrier& barrier, const LoadOptions& options = {},
                      SourceLocation where = SourceLocation::current());

/// What a store does with the element that is there: replaces it, or combines with it atomically.
enum class Reduce : uint8_t { kNone, kAdd, kMin, kMax, kAnd, kOr, kXor };

struct StoreOptions {
  Shape dims = {};  ///< see the head of this file
  Reduce reduce = Reduce::kNone;
  CachePolicy cache_policy = CachePolicy::kDefault;
};
/// Starts storing the tile at the offsets in dst. [PTX: cp.async.bulk.tensor, cp.reduce.async.bulk.tensor]
void shared_to_global(const SharedTensor& src, const GlobalTensor& dst, const Scalars& offsets,
                      const StoreOptions& options = {}, SourceLocation where = SourceLocation::current());

/// Closes a group of the stores that the warp, or thread, has started.
/// [PTX: cp.async.bulk.commit_group]
void commit_group(SourceLocation where = SourceLocation::current());

struct WaitOptions {
  bool read = false;  ///< only until shared memory has been read and may be written again
};
/// Waits until at most `pending` groups are under way. The same warp or thread must execute it that closed
/// the groups. A kernel must not end before its stores have read. [PTX: cp.async.bulk.wait_group]
void wait_group(int64_t pending, const WaitOptions& options = {},
                SourceLocation where = SourceLocation::current());

}  // namespace imbrex::tma
