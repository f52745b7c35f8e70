// SPDX-License-Identifier: Apache-2.0
// Global and shared memory: views, allocations, loads, stores and cp.async copies.
//
// Tiles move between a tensor of rank r and a tile of rank t <= r at one offset a tensor dimension. Tile
// dimension i runs along tensor dimension dims[i]; by default the last t dimensions, in order.
#pragma once

#include "imbrex/lang/pointer.h"
#include "imbrex/lang/tensor.h"

namespace imbrex {

/// A tensor in global memory of the pointer's element type: run-time or compile-time extents, row-major.
GlobalTensor global_view(const PtrArg& pointer, const Scalars& shape,
                         SourceLocation where = SourceLocation::current());
/// The same with strides in elements, one a dimension.
GlobalTensor global_view(const PtrArg& pointer, const Scalars& shape, const Scalars& strides,
                         SourceLocation where = SourceLocation::current());
/// The same for any pointer; the element type must be the pointer's where it has one.
GlobalTensor global_view(const PtrArg& pointer, DataType dtype, const Scalars& shape,
                         SourceLocation where = SourceLocation::current());
GlobalTensor global_view(const PtrArg& pointer, DataType dtype, const Scalars& shape, const Scalars& strides,
                         SourceLocation where = SourceLocation::current());

/// A tensor in the CTA's shared memory, uninitialised.
SharedTensor shared_tensor(DataType dtype, const Shape& shape,
                           SourceLocation where = SourceLocation::current());

struct LoadOptions {
  double other = 0;  ///< the value of elements outside the tensor
  Shape dims = {};   ///< see the head of this file
};
struct StoreOptions {
  Shape dims = {};  ///< see the head of this file
};

/// The tile of this shape at the offsets, in registers; outside the tensor, `other`. [PTX: ld.global]
RegisterValue load_global(const GlobalTensor& src, const Scalars& offsets, const Shape& shape,
                          const LoadOptions& options = {}, SourceLocation where = SourceLocation::current());
/// Stores the tile at the offsets; nothing outside the tensor. The types must be equal. [PTX: st.global]
void store_global(const GlobalTensor& dst, const TileArg& value, const Scalars& offsets,
                  const StoreOptions& options = {}, SourceLocation where = SourceLocation::current());

/// The whole tensor or view, in registers. [PTX: ld.shared]
RegisterValue load_shared(const SharedTensor& src, SourceLocation where = SourceLocation::current());
/// Registers into the whole tensor or view; shapes and types must be equal. [PTX: st.shared]
void store_shared(const SharedTensor& dst, const TileArg& value,
                  SourceLocation where = SourceLocation::current());

/// Starts cp.async copies of the tile of dst's shape at the offsets in src; elements outside src become zero.
/// [PTX: cp.async]
void copy_async(const GlobalTensor& src, const SharedTensor& dst, const Scalars& offsets,
                const StoreOptions& options = {}, SourceLocation where = SourceLocation::current());
/// Closes a group of the copies each thread has started. [PTX: cp.async.commit_group]
void copy_async_commit_group(SourceLocation where = SourceLocation::current());
/// Waits until at most `pending` of the thread's groups are under way. [PTX: cp.async.wait_group]
void copy_async_wait_group(int64_t pending, SourceLocation where = SourceLocation::current());
/// Waits for every copy the thread has started. Other threads see the data after a sync().
/// [PTX: cp.async.wait_all]
void copy_async_wait_all(SourceLocation where = SourceLocation::current());

}  // namespace imbrex
