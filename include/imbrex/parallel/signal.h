// SPDX-License-Identifier: Apache-2.0
// What kernels on several GPUs need of the language: tensors of peers, and signals between them.
//
// Memory that every rank has at the same place (parallel::SymmetricTensor) is one tensor with the rank as its first
// dimension. Loads, stores, atomics and TMA reach a peer's part as they reach this rank's own:
//
//   auto g_x = symmetric_view(x_ptr, float16, rank_stride, ranks, {n});   // g_x[r]: the part of rank r
//   auto g_signals = symmetric_view(signal_ptr, int32, rank_stride, ranks, {count});
//   store_global(g_x[peer], tile, {offset});
//   signal::set(g_signals[peer][index], round);                           // "my tile is there"
//   signal::wait(g_signals[rank][index], round);                          // the peer's is here
#pragma once

#include "imbrex/lang/atomic.h"

namespace imbrex {

/// A view of symmetric memory: [ranks, shape ...], dense on each rank. `rank_stride_bytes`:
/// SymmetricTensor::rank_stride_bytes(), a multiple of the element's size.
inline GlobalTensor symmetric_view(const PtrArg& pointer, DataType dtype, int64_t rank_stride_bytes,
                                   int ranks, const Scalars& shape,
                                   SourceLocation where = SourceLocation::current()) {
  Scalars extents{ScalarArg(ranks, where)}, dense{ScalarArg(1, where)};
  extents.insert(extents.end(), shape.begin(), shape.end());
  for (size_t d = shape.size(); d-- > 1;)
    dense.insert(dense.begin(), ScalarArg(dense.front() * shape[d], where));
  Scalars strides{ScalarArg(rank_stride_bytes * 8 / dtype.bits(), where)};
  if (!shape.empty()) strides.insert(strides.end(), dense.begin(), dense.end());
  return global_view(pointer, dtype, extents, strides, where);
}

/// Signals: int32 elements of symmetric memory that begin as 0 and only grow, by which CTAs of different GPUs wait for
/// one another. All threads of the executing group take part; one of them does the work. As values grow from launch to
/// launch (count the calls), nothing need be reset, and a signal cannot be taken for an earlier one.
/// A kernel that waits for other GPUs must have all its CTAs resident at once, or wait only for CTAs that surely are.
namespace signal {

/// When all threads of the group have come here, sets the element, on whichever GPU it is: whoever waits for this value
/// sees what they did before. One group sets an element. [PTX: st.release.sys]
inline void set(const GlobalTensor& element, const ScalarArg& value,
                SourceLocation where = SourceLocation::current()) {
  semaphore::release(element, value, {.scope = Scope::kSystem}, where);
}
/// Adds to the element instead: several groups may do so. The threads of the group synchronise. [PTX: atom.release.sys]
inline void add(const GlobalTensor& element, const ScalarOperand& value,
                SourceLocation where = SourceLocation::current()) {
  atomic::add(element, value, {.sem = Sem::kRelease, .scope = Scope::kSystem}, where);
}
/// Waits until the element, of this rank's own memory, is at least the value; what was done before it was set is then
/// visible to the group. The host bounds the wait: Communicator::synchronize(). [PTX: ld.acquire.sys]
inline void wait(const GlobalTensor& element, const ScalarArg& value,
                 SourceLocation where = SourceLocation::current()) {
  semaphore::wait_at_least(element, value, {.scope = Scope::kSystem}, where);
}

}  // namespace signal
}  // namespace imbrex
