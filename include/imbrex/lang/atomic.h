// SPDX-License-Identifier: Apache-2.0
// Atomic updates of global and shared memory, and semaphores made of them.
//
//   atomic::add(g_count[0], 1);                      one element: once for the whole executing thread group, whose
//                                                    threads all get the old value as a scalar
//   atomic::add(s_histogram, 1, {bins});             one update per element of the index tile `bins`
//   atomic::add(g_sums, partial, {row, column});     the tile at the offsets, as store_global(); offsets as gather()
//   atomic::add(s_tile, values);                     the whole tensor or view
//
// Tiles are updated element by element, each once; the result is the tile of old values. Where no one uses the old
// values, a reduction (red) is emitted, which does not wait for memory; neighbouring elements go together where the
// target can do that. Elements outside the tensor are left out, and their old value is no particular one.
//
//   add              int32, uint32, uint64, int64, float32, float64, float16; bfloat16 (sm_90)
//   min, max         int32, uint32, int64, uint64
//   bit_and, _or, _xor, exch, cas
//                    32 and 64 bits (exch and cas: float32 and float64 as bits)
//
// kDefault is relaxed order; the scope is the GPU for global and the CTA for shared memory. On one element, a release
// covers what all threads of the group did before, and an acquire what they do after: the group synchronises. On
// tiles, each thread orders its own accesses. [PTX: atom, red]
#pragma once

#include "imbrex/lang/memory.h"
#include "imbrex/lang/memory_order.h"

namespace imbrex {

namespace detail {
enum class Atomic : uint8_t { kAdd, kMin, kMax, kAnd, kOr, kXor, kExch, kCas };
}  // namespace detail

namespace atomic {

/// See the head of this file.
struct Options {
  Sem sem = Sem::kDefault;
  Scope scope = Scope::kDefault;
  Shape dims = {};                   ///< of offsets: as for gather()
  std::optional<TileArg> mask = {};  ///< of tiles: the elements to update
};

}  // namespace atomic

namespace detail {
Expr atomic_element(Atomic kind, const MemoryArg& element, const ScalarOperand* compare,
                    const ScalarOperand& value, const atomic::Options& options, SourceLocation where);
RegisterValue atomic_tile(Atomic kind, const MemoryArg& dst, const NumArg* compare, const NumArg& value,
                          const Offsets* offsets, const atomic::Options& options, SourceLocation where);
}  // namespace detail

namespace atomic {

#define IMBREX_ATOMIC(name, kind)                                                                            \
  inline Expr name(const MemoryArg& element, const ScalarOperand& value, const Options& options = {},        \
                   SourceLocation where = SourceLocation::current()) {                                       \
    return detail::atomic_element(detail::Atomic::kind, element, nullptr, value, options, where);            \
  }                                                                                                          \
  inline RegisterValue name(const MemoryArg& dst, const TileArg& value, const Options& options = {},         \
                            SourceLocation where = SourceLocation::current()) {                              \
    return detail::atomic_tile(detail::Atomic::kind, dst, nullptr, value, nullptr, options, where);          \
  }                                                                                                          \
  inline RegisterValue name(const MemoryArg& dst, const NumArg& value, const Offsets& offsets,               \
                            const Options& options = {}, SourceLocation where = SourceLocation::current()) { \
    return detail::atomic_tile(detail::Atomic::kind, dst, nullptr, value, &offsets, options, where);         \
  }
/// old + value, the smaller and the larger of old and value.
IMBREX_ATOMIC(add, kAdd)
IMBREX_ATOMIC(min, kMin)
IMBREX_ATOMIC(max, kMax)
/// Bitwise.
IMBREX_ATOMIC(bit_and, kAnd)
IMBREX_ATOMIC(bit_or, kOr)
IMBREX_ATOMIC(bit_xor, kXor)
/// value.
IMBREX_ATOMIC(exch, kExch)
#undef IMBREX_ATOMIC

/// `value` where the old one equals `compare`, else the old one.
inline Expr cas(const MemoryArg& element, const ScalarOperand& compare, const ScalarOperand& value,
                const Options& options = {}, SourceLocation where = SourceLocation::current()) {
  return detail::atomic_element(detail::Atomic::kCas, element, &compare, value, options, where);
}
inline RegisterValue cas(const MemoryArg& dst, const NumArg& compare, const NumArg& value,
                         const Offsets& offsets, const Options& options = {},
                         SourceLocation where = SourceLocation::current()) {
  return detail::atomic_tile(detail::Atomic::kCas, dst, &compare, value, &offsets, options, where);
}

}  // namespace atomic

/// Semaphores: int32 or uint32 elements of global memory by which CTAs wait for each other. All threads of the executing
/// group take part, any group of whole warps, of threads of one warp, or the CTA; one of its threads does the work.
/// A CTA may wait only for CTAs that are sure to run: those that come before it in the grid, or the others of a grid
/// that fits the GPU.
namespace semaphore {

/// The threads that an operation synchronises with; the GPU's by default.
struct Options {
  Scope scope = Scope::kDefault;
};

/// Waits until the element equals the value; then what was done before the release() that stored it is visible.
/// [PTX: ld.acquire]
void wait(const GlobalTensor& element, const ScalarArg& value, const Options& options = {},
          SourceLocation where = SourceLocation::current());
/// The same until the element is at least the value.
void wait_at_least(const GlobalTensor& element, const ScalarArg& value, const Options& options = {},
                   SourceLocation where = SourceLocation::current());
/// Sets the element when all threads of the group have come here: what they did before is visible to whoever waits for
/// this value. [PTX: st.release]
void release(const GlobalTensor& element, const ScalarArg& value, const Options& options = {},
             SourceLocation where = SourceLocation::current());
/// Waits until the element is 0 and sets it to 1, for one group at a time. [PTX: atom.acquire.cas]
void lock(const GlobalTensor& element, const Options& options = {},
          SourceLocation where = SourceLocation::current());
/// Sets it to 0 again, as release().
void unlock(const GlobalTensor& element, const Options& options = {},
            SourceLocation where = SourceLocation::current());

}  // namespace semaphore
}  // namespace imbrex
