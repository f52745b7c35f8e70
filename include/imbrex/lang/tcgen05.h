// SPDX-License-Identifier: Apache-2.0
// tcgen05: fifth-generation tensor cores and tensor memory (sm_100a).
//
// Tensor memory has 128 lanes of 512 columns of 32 bits per CTA. Dimension -2 of a tensor runs along lanes
// and the last along columns; a leading dimension (stages) runs along columns too. Products run
// asynchronously and in order; commit() makes an mbarrier complete when they are done. The tcgen05 fences
// that sync() and mbarriers need between operations of different threads are placed by the compiler. "The
// pair" are two CTAs of a cluster whose ranks differ in the last bit.
// [PTX: TensorCore 5th Generation Family Instructions]
#pragma once

#include "imbrex/lang/mbarrier.h"
#include "imbrex/lang/tensor.h"

namespace imbrex::tcgen05 {

struct AllocOptions {
  int cta_group = 1;  ///< 1, or 2: allocated in both CTAs of a pair
};
/// A tensor in tensor memory, uninitialised. Whole warps execute it (one of them allocates, and waits while
/// other CTAs of the multiprocessor hold the columns); each allocation is freed by dealloc() before the
/// kernel ends. [PTX: tcgen05.alloc]
TMemoryTensor alloc(DataType dtype, const Shape& shape, const AllocOptions& options = {},
                    SourceLocation where = SourceLocation::current());
/// Frees a tensor that alloc() returned, not a view of one. All uses must be over, in all threads. Whole
/// warps. [PTX: tcgen05.dealloc]
void dealloc(const TMemoryTensor& t, SourceLocation where = SourceLocation::current());
/// The same bits of a matrix as elements of another width: `view(scores.slice({0, 0}, {128, 64}), float16, {128, 128})`
/// is where the first 64 columns of float32 are. Rows stay, and have as many bits. Whoever writes through one and reads
/// through the other orders the two as accesses to one tensor. CompileError where rows are not dense in tensor memory.
TMemoryTensor view(const TMemoryTensor& t, DataType dtype, const Shape& shape,
                   SourceLocation where = SourceLocation::current());
/// Declares that the CTA will not allocate again, so that others may. Whole warps.
/// [PTX: tcgen05.relinquish_alloc_permit]
void relinquish_alloc_permit(const AllocOptions& options = {},
                             SourceLocation where = SourceLocation::current());

struct MmaOptions {
  ScalarArg enable_input_d;                 ///< false: d = a x b; true: d = a x b + d. Required.
  int cta_group = 1;                        ///< 2: the CTA pair computes one product; CTA 0 issues
  bool negate_a = false, negate_b = false;  ///< not of integers
  /// Where the types fit several kinds: "mxf8f6f4", "mxf4" or "mxf4nvf4" for float4_e2m1.
  std::string_view kind = {};
};
/// Starts d = a x b (+ d): a [m, k] in shared or tensor memory, b [k, n] in shared memory, d [m, n]. m is 64
/// or a multiple of 128, n a multiple of 8 (for a pair a multiple of 16, up to 256); larger tiles take
/// several instructions. With cta_group 2, each CTA holds its half of the rows of a and d, and its half of
/// the columns of b; CTA 0 of the pair issues. One warp executes it.
///
///   a and b                                   d
///   float16                                   float32, float16
///   bfloat16                                  float32
///   tfloat32; float32, taken as tfloat32      float32
///   floats of 8, 6 and 4 bits, mixed          float32, float16
///   int8, uint8, mixed                        int32
///
/// Elements of less than a byte lie in shared memory in groups of 16 that take 16 bytes: only TMA writes them
/// so, and only mma, scaled_mma and copy read them.
/// [PTX: tcgen05.mma]
void mma(const SharedTensor& a, const SharedTensor& b, const TMemoryTensor& d, const MmaOptions& options,
         SourceLocation where = SourceLocation::current());
void mma(const TMemoryTensor& a, const SharedTensor& b, const TMemoryTensor& d, const MmaOptions& options,
         SourceLocation where = SourceLocation::current());

/// Starts a product with scale factors for blocks of k: d = sum of (a * scale_a) * (b * scale_b) (+ d).
/// scale_a [m, k / block] and scale_b [n or more, k / block] are in tensor memory, where copy() puts them:
/// rows in multiples of 32, blocks in multiples of 4. m is a multiple of 128; with cta_group 2, each CTA
/// holds the factors of its rows of a and of all columns of b. One warp executes it.
///
///   a and b                               factors (elements per factor)
///   floats of 8, 6 and 4 bits, mixed      float8_e8m0 (32)
///   float4_e2m1 alone                     float8_e8m0 (32 or 16), float8_ue4m3 (16)
///
/// In the last row shared memory holds two elements per byte.
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
/// Starts a copy from shared to tensor memory, of the same shape and type. Products started later see it;
/// other readers see it after a commit. The compiler picks the shape of the instruction that the layouts
/// need: 128 lanes, 64 lanes twice (02_13 and 01_23), 32 lanes four times (scale factors), or every 32nd
/// lane; CompileError if none does. Elements of less than a byte in groups of 16 bytes are expanded to a byte
/// each. One warp executes it.
/// [PTX: tcgen05.cp]
void copy(const SharedTensor& src, const TMemoryTensor& dst, const CopyOptions& options = {},
          SourceLocation where = SourceLocation::current());

/// Tiles of scale factors as global memory holds them (imbrex/runtime/scale_factors.h), [row tiles, block
/// tiles, 2, 256], viewed as the matrix of the factors, [128 * row tiles, 4 * block tiles], which copy()
/// takes.
inline SharedTensor scale_factor_matrix(const SharedTensor& tiles,
                                        SourceLocation where = SourceLocation::current()) {
  const int64_t rows = tiles.shape(0), blocks = tiles.shape(1);
  // Byte (r % 32) * 16 + (r / 32) * 4 + f of a tile is factor f of row r.
  return tiles.reshape({rows, blocks, 32, 4, 4}, where)
      .permute({0, 3, 2, 1, 4}, where)
      .reshape({128 * rows, 4 * blocks}, where);
}

/// Starts moving the contents of 128 lanes down by one lane: lane i receives those of lane i + 1, the last of
/// each 32 keeps its own. In order with the products around it. One warp executes it. [PTX: tcgen05.shift]
void shift(const TMemoryTensor& t, const CopyOptions& options = {},
           SourceLocation where = SourceLocation::current());

struct CommitOptions {
  int cta_group = 1;
  /// CTAs of the cluster, a bit each, on whose barriers it arrives; the number 0: this one. A run-time scalar may be any
  /// mask but 0.
  ScalarArg multicast_mask = 0;
};
/// Arrives once on the barrier when all products, copies and shifts that the warp has started are complete.
/// One warp executes it. [PTX: tcgen05.commit]
void commit(const Barrier& barrier, const CommitOptions& options = {},
            SourceLocation where = SourceLocation::current());

/// Tensor memory to registers. A warp group executes it: each warp reaches its own quarter of the lanes. A warp
/// alone loads from its quarter, 32 lanes from lane 32 * (its number in the CTA % 4) on: `t.slice({32, 0}, {32, n})` in
/// warp 1, 5, ... The values may be used after wait_load(), which the compiler adds where it is missing.
/// [PTX: tcgen05.ld]
RegisterValue load(const TMemoryTensor& src, SourceLocation where = SourceLocation::current());
/// Waits for the executing thread's loads. [PTX: tcgen05.wait::ld]
void wait_load(SourceLocation where = SourceLocation::current());
/// Registers to tensor memory; shapes and types must be equal. A warp group executes it, or one warp as load().
/// [PTX: tcgen05.st]
void store(const TMemoryTensor& dst, const TileArg& value, SourceLocation where = SourceLocation::current());
/// Waits for the executing thread's stores. [PTX: tcgen05.wait::st]
void wait_store(SourceLocation where = SourceLocation::current());

/// Orders earlier tcgen05 operations before the thread's next synchronisation, and later ones after its last
/// one. The compiler places those that sync() and mbarriers need; a kernel rarely calls these. Any thread.
/// [PTX: tcgen05.fence]
void fence_before_thread_sync(SourceLocation where = SourceLocation::current());
void fence_after_thread_sync(SourceLocation where = SourceLocation::current());

}  // namespace imbrex::tcgen05
