// SPDX-License-Identifier: Apache-2.0
// tcgen05: fifth-generation tensor cores and tensor memory (sm_100a).
//
// Tensor memory has 128 lanes of 512 32-bit columns a CTA. Its tensors lie with dimension -2 along lanes and
// the last along columns; a leading dimension (stages) goes along columns too. mma runs asynchronously and in
// order; commit makes an mbarrier complete when it is done. The fences a block barrier needs between tcgen05
// operations of different threads are placed by the compiler. [PTX: TensorCore 5th Generation Family
// Instructions]
#pragma once

#include "imbrex/lang/mbarrier.h"
#include "imbrex/lang/tensor.h"

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
  ScalarArg enable_input_d;                 ///< false: d = a x b; true: d = a x b + d. Must be said.
  int cta_group = 1;                        ///< 2: the CTA pair computes one product; CTA 0 issues
  bool negate_a = false, negate_b = false;  ///< not of integers
  /// Where the types fit several kinds: "mxf8f6f4", "mxf4" or "mxf4nvf4" for float4_e2m1.
  std::string_view kind = {};
};
/// Starts d = a x b (+ d): a [m, k], b [k, n], d [m, n]; a in shared or tensor memory, b in shared memory. m
/// is 64 or a multiple of 128, n a multiple of 8 (of 16, up to 256, for a pair); larger tiles than one
/// instruction multiplies are several. With cta_group 2, each CTA holds its half of the rows of a and d, and
/// its half of the columns of b. One warp must execute it. Of types, for d:
///   float16, bfloat16                      float32, and float16 for float16
///   tfloat32 (float32 counts as such)      float32
///   floats of 8, 6 and 4 bits, mixed       float32, float16. Those below a byte lie in shared memory 16 to
///   16
///                                          bytes, which TMA loads and this read, and no other instruction.
///   int8, uint8, mixed                     int32
/// [PTX: tcgen05.mma]
void mma(const SharedTensor& a, const SharedTensor& b, const TMemoryTensor& d, const MmaOptions& options,
         SourceLocation where = SourceLocation::current());
void mma(const TMemoryTensor& a, const SharedTensor& b, const TMemoryTensor& d, const MmaOptions& options,
         SourceLocation where = SourceLocation::current());

/// Starts the same with blocks of k scaled: d = sum of (a * scale_a) * (b * scale_b) (+ d). scale_a [m, k /
/// block] and scale_b [n or more, k / block] are in tensor memory, put there by copy(): rows in multiples of
/// 32, blocks of 4. m is a multiple of 128; with cta_group 2, each CTA holds the factors of its rows of a and
/// of all columns of b.
///   floats of 8, 6 and 4 bits, mixed    float8_e8m0 for 32 elements
///   float4_e2m1 alone                   the same, and float8_ue4m3 or float8_e8m0 for 16; shared memory is
///   full
/// [PTX: tcgen05.mma.block_scale]
void scaled_mma(const SharedTensor& a, const SharedTensor& b, const TMemoryTensor& d,
                const TMemoryTensor& scale_a, const TMemoryTensor& scale_b, const MmaOptions& options,
                SourceLocation where = SourceLocation::current());
void scaled_mma(const TMemoryTensor& a, const SharedTensor& b, const TMemoryTensor& d,
                const TMemoryTensor& scale_a, const TMemoryTensor& scale_b, const MmaOptions& options,
                SourceLocation where = SourceLocation::current());

struct CopyOptions {
  int cta_group = 1;  ///< 2: both CTAs of the pair copy from their own shared to their own tensor memory
};
/// Starts a copy from shared to tensor memory, of the same shape and type. It is in order with the mma that
/// follow; others see it after a commit. What the layouts ask for is found among the shapes of the
/// instruction: 128 lanes, 64 lanes twice (02_13 and 01_23), 32 lanes four times (scale factors), every 32nd
/// lane. Elements of less than a byte that lie 16 to 16 bytes get a byte each. One warp must execute it.
/// [PTX: tcgen05.cp]
void copy(const SharedTensor& src, const TMemoryTensor& dst, const CopyOptions& options = {},
          SourceLocation where = SourceLocation::current());

/// Tiles of scale factors as global memory holds them (scale_factors.h), [row tiles, block tiles, 2, 256], as
/// the matrix of the factors, [128 * row tiles, 4 * block tiles]: what copy() takes. A view.
inline SharedTensor scale_factor_matrix(const SharedTensor& tiles,
                                        SourceLocation where = SourceLocation::current()) {
  const int64_t rows = tiles.shape(0), blocks = tiles.shape(1);
  // Byte (r % 32) * 16 + (r / 32) * 4 + f of a tile is factor f of row r.
  return tiles.reshape({rows, blocks, 32, 4, 4}, where)
      .permute({0, 3, 2, 1, 4}, where)
      .reshape({128 * rows, 4 * blocks}, where);
}

/// Starts moving the cells of 128 lanes to the lanes below: lane i takes those of lane i + 1, the last of
/// each 32 keeps its own. In order with the mma around it. One warp must execute it. [PTX: tcgen05.shift]
void shift(const TMemoryTensor& t, const CopyOptions& options = {},
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
