// SPDX-License-Identifier: Apache-2.0
// Global and shared memory: views, allocations, loads, stores and cp.async copies.
//
// Tiles move between a tensor of rank r and a tile of rank t <= r. Offsets are in elements, one per dimension
// of the tensor. Dimension i of the tile runs along dimension dims[i] of the tensor; by default along its
// last t dimensions, in order. Any thread group executes these functions, and shares the tile's elements
// among its threads as the compiler finds best.
#pragma once

#include <optional>

#include "imbrex/lang/pointer.h"
#include "imbrex/lang/tensor.h"

namespace imbrex {

/// A view of global memory as a row-major tensor of the pointer's element type. Extents are known at run time
/// or when compiling. CompileError where the pointer has no element type.
GlobalTensor global_view(const PtrArg& pointer, const Scalars& shape,
                         SourceLocation where = SourceLocation::current());
/// The same with strides in elements, one per dimension.
GlobalTensor global_view(const PtrArg& pointer, const Scalars& shape, const Scalars& strides,
                         SourceLocation where = SourceLocation::current());
/// The same for any pointer; the element type must be the pointer's where it has one.
GlobalTensor global_view(const PtrArg& pointer, DataType dtype, const Scalars& shape,
                         SourceLocation where = SourceLocation::current());
GlobalTensor global_view(const PtrArg& pointer, DataType dtype, const Scalars& shape, const Scalars& strides,
                         SourceLocation where = SourceLocation::current());

/// A tensor in the CTA's shared memory, uninitialised. Its layout (swizzle) is inferred from its uses, unless
/// annotate_layout() demands one. CompileError where all of a kernel's tensors together do not fit the
/// target's shared memory.
SharedTensor shared_tensor(DataType dtype, const Shape& shape,
                           SourceLocation where = SourceLocation::current());

/// The tensor, a whole one, is not used after this line (CompileError): tensors made after it may take its memory. The
/// author sees to it that everyone is done with it: between the last use of it by any thread, copy or tensor core and the
/// first use of what takes its place there is a sync(), or a barrier. The virtual GPU reports a race where there is none.
void free_shared(const SharedTensor& tensor, SourceLocation where = SourceLocation::current());

/// A hint to the L2 cache: which data to evict first or last. Data that every CTA reads wants kEvictLast, data that is
/// touched once kEvictFirst. [PTX: createpolicy.fractional, .L2::cache_hint]
enum class CachePolicy : uint8_t { kDefault, kEvictFirst, kEvictNormal, kEvictLast };
/// A hint to the L1 cache. kNoAllocate: what is not there yet stays out of it, which leaves the room to what is read
/// again. [PTX: ld.L1::evict_first, ld.L1::no_allocate and so on]
enum class L1Priority : uint8_t { kDefault, kEvictFirst, kEvictNormal, kEvictLast, kNoAllocate };

struct LoadOptions {
  double other = 0;  ///< the value of elements outside the tensor
  Shape dims = {};   ///< see the head of this file
  L1Priority l1_priority = L1Priority::kDefault;
  CachePolicy cache_policy = CachePolicy::kDefault;
};
struct StoreOptions {
  Shape dims = {};  ///< see the head of this file
  L1Priority l1_priority =
      L1Priority::kDefault;  ///< CompileError in copy_async(), whose hint is that of the L2 cache
  CachePolicy cache_policy = CachePolicy::kDefault;
};

/// The tile of this shape at the offsets, in registers; `other` for elements outside the tensor.
/// [PTX: ld.global]
RegisterValue load_global(const GlobalTensor& src, const Scalars& offsets, const Shape& shape,
                          const LoadOptions& options = {}, SourceLocation where = SourceLocation::current());
/// Stores the tile at the offsets; elements outside the tensor are left out. The types must be equal.
/// [PTX: st.global]
void store_global(const GlobalTensor& dst, const TileArg& value, const Scalars& offsets,
                  const StoreOptions& options = {}, SourceLocation where = SourceLocation::current());

/// The whole tensor or view, in registers. Becomes ldmatrix where the tile feeds tensor cores.
/// [PTX: ld.shared, ldmatrix]
RegisterValue load_shared(const SharedTensor& src, SourceLocation where = SourceLocation::current());
/// Stores the tile into the whole tensor or view; shapes and types must be equal. Other threads see it after
/// a sync(). [PTX: st.shared, stmatrix]
void store_shared(const SharedTensor& dst, const TileArg& value,
                  SourceLocation where = SourceLocation::current());

/// Starts cp.async copies of the tile of dst's shape at the offsets in src; elements outside src become zero.
/// A thread copies 16 bytes at a time, or 8 or 4 where alignment and extents allow no more.
/// [PTX: cp.async]
void copy_async(const GlobalTensor& src, const SharedTensor& dst, const Scalars& offsets,
                const StoreOptions& options = {}, SourceLocation where = SourceLocation::current());
/// The same of places that are data: offsets and options as for gather(), of which at least one is a tile of indices.
/// `copy_async_gather(g_table, s_rows, {rows, column})` with rows [n, 1] fetches n rows. What the mask leaves out becomes
/// zero. Indices must be inside the tensor. Elements that lie together are copied 16, 8 or 4 bytes at a time: CompileError
/// where that is not possible. [PTX: cp.async]
void copy_async_gather(const GlobalTensor& src, const SharedTensor& dst, const std::vector<NumArg>& offsets,
                       const Shape& dims = {}, const std::optional<TileArg>& mask = {},
                       SourceLocation where = SourceLocation::current());
/// Closes a group of the copies that each executing thread has started. [PTX: cp.async.commit_group]
void copy_async_commit_group(SourceLocation where = SourceLocation::current());
/// Waits until at most `pending` of the executing thread's groups, the youngest, are in flight. Other threads
/// see the data after a sync(). [PTX: cp.async.wait_group]
void copy_async_wait_group(int64_t pending, SourceLocation where = SourceLocation::current());
/// Waits for all copies that the executing thread has started. Other threads see the data after a sync().
/// [PTX: cp.async.wait_all]
void copy_async_wait_all(SourceLocation where = SourceLocation::current());

/// A tensor in global or shared memory as an argument.
class MemoryArg {
 public:
  MemoryArg(const GlobalTensor& tensor) : handle(tensor.handle()) {}
  MemoryArg(const SharedTensor& tensor) : handle(tensor.handle()) {}
  detail::Handle handle;
};

/// Offsets of which some may be tiles of indices.
using Offsets = std::vector<NumArg>;

struct GatherOptions {
  double other = 0;                  ///< the value of elements outside the tensor, or left out by the mask
  Shape dims = {};                   ///< as for load_global(); -1 for a dimension of the tile that has none
  std::optional<TileArg> mask = {};  ///< a bool tile that broadcasts to the shape: the elements to move
};
using ScatterOptions = GatherOptions;

/// A tile of this shape, some of whose places are read from index tiles. One offset per dimension of the tensor: along
/// a dimension with a scalar offset the tile lies as in load_global(), elements outside are `other`; an integer tile
/// that broadcasts to the shape gives each element's index itself.
///
///   gather(g_table, {rows, column}, {n, width})   rows: [n, 1]; row i of the tile is g_table[rows[i], column ...]
///   gather(s_lut, {codes}, {n})                   codes: [n]; element i is s_lut[codes[i]]
///
/// Indices of a tile must be inside the tensor where the mask holds: that is not tested on a GPU, and reported by the
/// virtual GPU. Any thread group. [PTX: ld.global, ld.shared]
RegisterValue gather(const MemoryArg& src, const Offsets& offsets, const Shape& shape,
                     const GatherOptions& options = {}, SourceLocation where = SourceLocation::current());
/// Stores the tile to places given as for gather(). Where several elements have the same place, one of them is stored,
/// and the virtual GPU reports a race; atomic::add() and its like combine them. [PTX: st.global, st.shared]
void scatter(const MemoryArg& dst, const TileArg& value, const Offsets& offsets,
             const ScatterOptions& options = {}, SourceLocation where = SourceLocation::current());

}  // namespace imbrex
