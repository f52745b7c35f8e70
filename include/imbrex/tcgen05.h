// SPDX-License-Identifier: Apache-2.0
// tcgen05: fifth-generation tensor cores and tensor memory (sm_100a).
//
// Tensor memory has 128 lanes of 512 32-bit columns a CTA. Its tensors lie with dimension -2 along lanes and
// the last along columns; a leading dimension (stages) goes along columns too. mma runs asynchronously and in
// order; commit makes an mbarrier complete when it is done. The fences a block barrier needs between tcgen05
// operations of different threads are placed by the compiler. [PTX: TensorCore 5th Generation Family
// Instructions]
#pragma once

#include "imbrex/mbarrier.h"
#include "imbrex/tensor.h"

namespace imbrex::tcgen05 {

struct AllocOptions {
  int cta_group = 1;  ///< 1, or 2: allocated in both CTAs of a pair
};
/// A tensor in tensor memory, uninitialised. Whole warps must execute it (one of them allocates); every
/// allocation must be freed by dealloc() before the kernel ends. [PTX: tcgen05.alloc]
TMemoryTensor alloc(DataType dtype, const Shape& shape, const AllocOptions& options = {},
                    SourceLocation where = SourceLocation::current());
/// Frees what alloc() gave (not a view of it). [PTX: tcgen05.dealloc]
void dealloc(const TMemoryTensor& t, SourceLocation where = SourceLocation::current());
/// The CTA will not allocate again, so that others may. [PTX: tcgen05.relinquish_alloc_permit]
void relinquish_alloc_permit(const AllocOptions& options = {},
                             SourceLocation where = SourceLocation::current());

struct MmaOptions {
  ScalarArg enable_input_d;  ///< false: d = a x b; true: d = a x b + d. Must be said.
  int cta_group = 1;         ///< 2: the CTA pair computes one product; CTA 0 issues
  bool negate_a = false, negate_b = false;
};
/// Starts d = a x b (+ d): a [m, k], b [k, n], d [m, n]; a in shared or tensor memory, b in shared memory.
/// float16 or bfloat16 (float32 or float16 d), tfloat32 and 8-bit floats (float32 d), int8 (int32 d). One
/// warp must execute it. [PTX: tcgen05.mma]
void mma(const SharedTensor& a, const SharedTensor& b, const TMemoryTensor& d, const MmaOptions& options,
         SourceLocation where = SourceLocation::current());
void mma(const TMemoryTensor& a, const SharedTensor& b, const TMemoryTensor& d, const MmaOptions& options,
         SourceLocation where = SourceLocation::current());

struct CommitOptions {
  int cta_group = 1;
  int multicast_mask = 0;  ///< CTAs of the cluster whose barrier at the same offset arrives; 0: this CTA's
};
/// Arrives once on the barrier when every tcgen05 operation the warp has started is done. One warp must
/// execute it. [PTX: tcgen05.commit]
void commit(const Barrier& barrier, const CommitOptions& options = {},
            SourceLocation where = SourceLocation::current());

/// Tensor memory to registers. A warp group must execute it: each warp reaches its own quarter of the lanes.
/// The values may be used after wait_load(), which the compiler adds where it is missing. [PTX: tcgen05.ld]
RegisterValue load(const TMemoryTensor& src, SourceLocation where = SourceLocation::current());
/// Waits for the thread's loads. [PTX: tcgen05.wait::ld]
void wait_load(SourceLocation where = SourceLocation::current());
/// Registers to tensor memory; shapes and types must be equal. [PTX: tcgen05.st]
void store(const TMemoryTensor& dst, const TileArg& value, SourceLocation where = SourceLocation::current());
/// Waits for the thread's stores. [PTX: tcgen05.wait::st]
void wait_store(SourceLocation where = SourceLocation::current());

/// Orders earlier tcgen05 operations before the thread's next synchronisation, and later ones after its last.
/// [PTX: tcgen05.fence]
void fence_before_thread_sync(SourceLocation where = SourceLocation::current());
void fence_after_thread_sync(SourceLocation where = SourceLocation::current());

}  // namespace imbrex::tcgen05
