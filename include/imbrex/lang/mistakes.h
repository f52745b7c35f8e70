// SPDX-License-Identifier: Apache-2.0
// What first attempts at a kernel call with the wrong kind of thing, and an error of compilation that says what to write
// instead; the author's line is the one that is "required from here". Nothing here compiles when it is used.
#pragma once

#include "imbrex/lang/memory.h"
#include "imbrex/lang/mma.h"
#include "imbrex/lang/tensor.h"
#include "imbrex/lang/tma.h"

namespace imbrex {
namespace detail {

template <class T>
inline constexpr bool kIsPointer = false;
template <DataType T>
inline constexpr bool kIsPointer<Ptr<T>> = true;

template <class T>
concept NoTile = !std::convertible_to<const T&, TileArg>;
template <class T>
concept NoGlobal = !std::derived_from<T, GlobalTensor>;
template <class T>
concept NoShared = !std::derived_from<T, SharedTensor>;

template <class T>
constexpr void explain_tile() {
  if constexpr (NoTile<T>) {
    static_assert(NoGlobal<T>,
                  "a tensor of global memory where a register tensor is wanted: load the tile first, "
                  "`load_global(g, {row, column}, {rows, columns})`");
    static_assert(NoShared<T>,
                  "a shared tensor where a register tensor is wanted: load it first, `load_shared(s)` "
                  "(wgmma::mma() and tcgen05::mma() multiply shared tensors themselves)");
    static_assert(!ScalarLike<T> || !NoGlobal<T> || !NoShared<T>,
                  "a number where a register tensor is wanted: `full(float32, {m, n}, x)` is a tile of it, "
                  "`full(float32, {1}, x)` one element");
    static_assert(ScalarLike<T>,
                  "a register tensor is wanted here, as load_global() and arithmetic return it");
  }
}
template <class T>
constexpr void explain_global() {
  if constexpr (NoGlobal<T>) {
    constexpr bool is_tile = std::derived_from<T, RegisterBase>;
    static_assert(!kIsPointer<T>,
                  "a pointer where a tensor of global memory is wanted: give it a shape first, "
                  "`auto g = global_view(p, {m, n})`");
    static_assert(
        NoShared<T>,
        "a shared tensor where one of global memory is wanted: load_shared() and store_shared() are for "
        "those; copies take the source first, then the destination");
    static_assert(!is_tile,
                  "a register tensor where a tensor of global memory is wanted: stores take the destination "
                  "first, `store_global(g, tile, {row, column})`");
    static_assert(kIsPointer<T> || !NoShared<T> || is_tile,
                  "a tensor of global memory is wanted here, as global_view() returns it");
  }
}
template <class T>
constexpr void explain_shared() {
  if constexpr (NoShared<T>) {
    constexpr bool is_tile = std::derived_from<T, RegisterBase>;
    static_assert(
        NoGlobal<T>,
        "a tensor of global memory where a shared one is wanted: load_global() and store_global() are for "
        "those; copies take the source first, then the destination");
    static_assert(!is_tile,
                  "a register tensor where a shared one is wanted: stores take the destination first, "
                  "`store_shared(s, tile)`");
    static_assert(!NoGlobal<T> || is_tile, "a shared tensor is wanted here, as shared_tensor() returns it");
  }
}

/// The extents of shared and register tensors that are known only when the kernel runs.
template <class T>
constexpr void explain_extents() {
  static_assert(
      kNever<T>,
      "the extents of shared and register tensors are known when the kernel is traced: take them from an "
      "int parameter or a member, and let the tensor in global memory have the ragged edge");
}

}  // namespace detail

template <detail::NoGlobal T>
RegisterValue load_global(const T&, const Scalars&, const Shape&, const LoadOptions& = {}) {
  detail::explain_global<T>();
  return zeros(float32, {1});
}
template <detail::NoShared T>
RegisterValue load_shared(const T&) {
  detail::explain_shared<T>();
  return zeros(float32, {1});
}
template <class To, class T>
requires(detail::NoGlobal<To> || detail::NoTile<T>) void store_global(const To&, const T&, const Scalars&,
                                                                      const StoreOptions& = {}) {
  detail::explain_global<To>();
  detail::explain_tile<T>();
}
template <class To, class T>
requires(detail::NoShared<To> || detail::NoTile<T>) void store_shared(const To&, const T&) {
  detail::explain_shared<To>();
  detail::explain_tile<T>();
}
template <class From, class To>
requires(detail::NoGlobal<From> || detail::NoShared<To>) void copy_async(const From&, const To&,
                                                                         const Scalars&,
                                                                         const StoreOptions& = {}) {
  detail::explain_global<From>();
  detail::explain_shared<To>();
}
template <class A, class B>
requires(detail::NoTile<A> || detail::NoTile<B>) RegisterValue dot(const A&, const B&) {
  detail::explain_tile<A>();
  detail::explain_tile<B>();
  return zeros(float32, {1});
}
template <class A, class B, class C>
requires(detail::NoTile<A> || detail::NoTile<B> || detail::NoTile<C>) RegisterValue
    dot(const A&, const B&, const C&) {
  detail::explain_tile<A>();
  detail::explain_tile<B>();
  detail::explain_tile<C>();
  return zeros(float32, {1});
}
template <class A, class B, class C>
requires(detail::NoTile<A> || detail::NoTile<B> || detail::NoTile<C>) RegisterValue
    mma(const A&, const B&, const C&, const MmaOptions& = {}) {
  detail::explain_tile<A>();
  detail::explain_tile<B>();
  detail::explain_tile<C>();
  return zeros(float32, {1});
}
#define IMBREX_REDUCES_TILES(name)              \
  template <detail::NoTile T>                   \
  Expr name(const T&) {                         \
    detail::explain_tile<T>();                  \
    return name(zeros(float32, {1}));           \
  }                                             \
  template <detail::NoTile T>                   \
  RegisterValue name(const T&, ReduceOptions) { \
    detail::explain_tile<T>();                  \
    return zeros(float32, {1});                 \
  }
IMBREX_REDUCES_TILES(sum)
IMBREX_REDUCES_TILES(any)
IMBREX_REDUCES_TILES(all)
#undef IMBREX_REDUCES_TILES

template <class T = void>
SharedTensor shared_tensor(DataType, const Scalars&) {
  detail::explain_extents<T>();
  return SharedTensor(detail::Handle{});
}
template <class T = void>
RegisterValue zeros(DataType, const Scalars&) {
  detail::explain_extents<T>();
  return RegisterValue(detail::Handle{});
}
template <class T = void>
RegisterValue full(DataType, const Scalars&, const ScalarArg&) {
  detail::explain_extents<T>();
  return RegisterValue(detail::Handle{});
}
template <class T = void>
RegisterValue load_global(const GlobalTensor&, const Scalars&, const Scalars&, const LoadOptions& = {}) {
  detail::explain_extents<T>();
  return RegisterValue(detail::Handle{});
}

template <class T = void>
RegisterValue load_global(const GlobalTensor&, const Scalars&) {
  static_assert(detail::kNever<T>,
                "which tile? give its place and its shape: `load_global(g, {row, column}, {rows, columns})`");
  return RegisterValue(detail::Handle{});
}
template <class T = void>
void store_global(const GlobalTensor&, const TileArg&) {
  static_assert(detail::kNever<T>, "where to? give the tile's place: `store_global(g, tile, {row, column})`");
}

namespace tma {
template <class From, class To>
requires(imbrex::detail::NoGlobal<From> ||
         imbrex::detail::NoShared<To>) void global_to_shared(const From&, const To&, const Scalars&,
                                                             const Barrier&, const LoadOptions& = {}) {
  imbrex::detail::explain_global<From>();
  imbrex::detail::explain_shared<To>();
}
template <class From, class To>
requires(imbrex::detail::NoShared<From> ||
         imbrex::detail::NoGlobal<To>) void shared_to_global(const From&, const To&, const Scalars&,
                                                             const StoreOptions& = {}) {
  imbrex::detail::explain_shared<From>();
  imbrex::detail::explain_global<To>();
}
}  // namespace tma

}  // namespace imbrex
